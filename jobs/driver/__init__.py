"""Runs epochs: from the barrier to the commit and the publish."""
