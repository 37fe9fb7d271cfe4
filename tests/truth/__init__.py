"""Views against Spark: the same SELECT over the same rows, at every epoch."""
