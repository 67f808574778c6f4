"""Topics as a source: options of a query, its start and end, and fetching of messages."""
