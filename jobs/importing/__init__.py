"""Projects of other tools as pipelines: `tussock import`."""
