"""Rows and helpers of test_legacy_calendar.py, which is in several lanes."""

from tussock.jobs.logical.nodes import Field

FIELDS = (Field("d", "date"), Field("ts", "timestamp"), Field("n", "timestamp_ntz"))
