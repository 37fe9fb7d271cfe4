"""Sources: files become rows. Listing, what has been taken, and readers whose meaning is Spark's."""
