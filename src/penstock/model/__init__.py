"""Values every other part speaks in. Imports nothing of the project."""
