"""Kernels: typed expressions, rendered as DuckDB queries over Arrow. Each node's result equals Spark's."""
