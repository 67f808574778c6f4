"""Raw entries become Arrow record batches."""
