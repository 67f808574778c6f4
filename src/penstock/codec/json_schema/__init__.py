"""JSON Schema: documents and their references, and which document may follow which."""
