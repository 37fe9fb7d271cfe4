"""Spark's session, its JVM's errors, its executors and its class archive."""
