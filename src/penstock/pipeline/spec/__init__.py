"""A declared pipeline: the TOML file, its keys, and the rules that must hold before anything runs. No Spark."""
