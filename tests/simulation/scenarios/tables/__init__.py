"""Tables in the simulator."""
