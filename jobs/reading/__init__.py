"""Reading: rows, changes and queries at an epoch."""
