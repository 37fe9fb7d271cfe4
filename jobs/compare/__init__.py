"""Differences between the rows of a store at two epochs, or of two stores."""
