"""Locators: the file and the position of each row of a published table, by the row's key."""
