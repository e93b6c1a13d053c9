"""What a collection stores, one kind of object a module: checked reads, writes with three outcomes, no decisions."""
