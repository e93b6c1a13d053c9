"""Verification: everything a database keeps is read, and compared with what says what it should be."""
