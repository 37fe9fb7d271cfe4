"""Reads of what is stored: rows, changes and queries at an epoch."""
