"""What the relations of a store are, now and once the log is taken, and how their rows are read."""
