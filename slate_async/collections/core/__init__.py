"""What persistent collections decide: pure functions over times, frontiers and columns. No asyncio and no I/O."""
