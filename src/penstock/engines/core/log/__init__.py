"""What is known of one log beside its store: its tail, and sequence ids."""
