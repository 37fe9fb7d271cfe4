"""What Spark runs, and what plans it."""
