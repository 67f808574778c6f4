"""Tables: a Delta table as sink and source, its maintenance, and the positions of the topics that it archives."""
