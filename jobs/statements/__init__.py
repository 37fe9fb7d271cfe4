"""The relations of a store, now and after the log is applied, and changes to their rows."""
