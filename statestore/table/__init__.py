"""Relational tables over Hummock: StateTable with its MemTable for actors, StorageTable for readers."""
