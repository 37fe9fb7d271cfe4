"""Change the catalog: what each statement of the log does to relations, fragments and identifiers."""
