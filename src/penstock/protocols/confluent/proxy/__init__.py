"""The REST proxy: versions 2 and 3 of its API."""
