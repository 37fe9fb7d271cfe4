"""Sources turn files, topics and Delta tables into rows, with the semantics of Spark's readers."""
