"""Maintenance of a store: compaction, retention, vacuum and rebalancing."""
