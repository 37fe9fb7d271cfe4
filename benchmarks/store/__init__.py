"""The state store compared with RocksDB and SlateDB, and over an object store as slow as S3."""
