"""Postgres for both sources and sinks: connections, and the meaning of its errors.

connection.py   connections with one set of defaults, and the kinds of failures
copied_rows.py  rows of a COPY, as batches of columns
"""
