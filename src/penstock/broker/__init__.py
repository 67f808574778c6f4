"""The contract between the engines and everything above them: Protocols and values."""
