"""The closed list of changes of a manifest's state: pure, one module for each kind of actor."""
