"""Plain data that crosses processes: cells and their addresses, an epoch's task, the flush decision. No Spark, no store."""
