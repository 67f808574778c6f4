"""Topics as a source: what a query asks for, where it begins and ends, and how its messages are fetched."""
