"""Tests of views: rows in, rows expected, without the data of the pipeline."""
