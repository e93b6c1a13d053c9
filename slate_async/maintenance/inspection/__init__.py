"""What is stored, as it is: the manifest, the log, one SST, the runs. Plain values to print or export."""
