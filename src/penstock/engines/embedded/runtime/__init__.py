"""What runs the engine: tasks, timers, locks, rates, and the real clock."""
