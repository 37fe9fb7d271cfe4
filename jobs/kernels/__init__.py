"""Kernels: typed expressions rendered to DuckDB over Arrow, equal to Spark node by node."""
