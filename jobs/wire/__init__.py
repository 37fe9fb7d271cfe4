"""Plain data that crosses processes: chunks, cells, failures. No Spark, no store."""
