"""Watches of writers and readers in a world full of faults."""
