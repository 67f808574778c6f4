"""What the engines have in common, whatever their logs are."""
