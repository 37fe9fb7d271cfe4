"""What sources and sinks of table formats share: where a table is, and what its log says."""
