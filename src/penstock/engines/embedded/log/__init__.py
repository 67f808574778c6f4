"""What is known of one log beside its store: its tail, offsets, sequence ids, and what compaction left."""
