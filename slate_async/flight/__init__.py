"""`slate serve`: tables over Arrow Flight."""
