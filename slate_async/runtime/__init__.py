"""Time, chance, names, threads and supervised tasks: the only place that touches the machine."""
