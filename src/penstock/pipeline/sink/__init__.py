"""Rows of Spark into topics: exactly once through staged publishing, or at once."""
