"""What the simulator runs. A scenario makes a `World` from a seed and judges what happened in it."""
