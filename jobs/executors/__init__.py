"""Executors: one operator a file; chunks in, chunks out, state in StateTables."""
