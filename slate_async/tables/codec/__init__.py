"""What tables store as bytes, and back."""
