"""Executors: one file per operator. Chunks in, chunks out, state in StateTables."""
