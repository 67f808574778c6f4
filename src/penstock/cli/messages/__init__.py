"""Messages in and out of topics: `produce`, `read`, `consume` and `request`."""
