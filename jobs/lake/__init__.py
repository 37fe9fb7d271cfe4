"""Table formats, for sources and sinks: where a table is, its log, its columns, and the calls of its package."""
