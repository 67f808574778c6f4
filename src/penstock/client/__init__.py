"""Penstock as its users reach it: over the network. Knows codec, wire and model only."""
