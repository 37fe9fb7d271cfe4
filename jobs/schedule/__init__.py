"""Order the fragments of a catalog in levels, and tell where their columns come from."""
