"""Tables beside those of delta-rs and pyiceberg."""
