"""What pipelines ask of a server over HTTP: logs, staged publishing, schemas; and again while it is away."""
