"""Sinks: tables outside the store that contain copies of published views."""
