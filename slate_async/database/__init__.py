"""What users open, use and close: handles, the environment that shares between them, and how each is opened."""
