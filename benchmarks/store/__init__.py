"""The state store beside RocksDB and SlateDB, and over an object store as slow as S3."""
