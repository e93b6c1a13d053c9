"""Tables of Parquet blocks with numbered heads, on any object store."""
