"""Relational tables on Hummock: StateTable with its MemTable for actors, StorageTable for readers."""
