"""Table formats for sources and sinks: a table's location, its log, its columns, and the calls of its package."""
