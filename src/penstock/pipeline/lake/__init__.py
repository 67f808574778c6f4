"""Tables: a Delta table as sink and source, the archive of a topic, its replay, and the read of both."""
