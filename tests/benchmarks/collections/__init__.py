"""What the families of collections measure, by subject."""
