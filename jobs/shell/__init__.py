"""The `tussock` command line: one module per group of commands."""
