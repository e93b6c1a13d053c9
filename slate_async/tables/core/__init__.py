"""What tables decide, without any input or output."""
