"""What runs the process: clock and timers, tasks and locks, rates and histograms, throttles."""
