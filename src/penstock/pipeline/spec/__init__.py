"""A declared pipeline: the TOML file, what may stand in it, and what must hold before anything runs. No Spark."""
