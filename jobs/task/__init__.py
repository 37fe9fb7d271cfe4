"""The code of a Spark task: one level of an epoch on one parallel unit."""
