"""The documentation: its examples run, its links lead somewhere, it names what there is."""
