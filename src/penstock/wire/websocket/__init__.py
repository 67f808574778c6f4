"""Frames of WebSocket."""
