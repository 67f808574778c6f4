"""The engine of a worker: another process of this server owns the log (`penstock serve --workers`)."""
