"""Iceberg tables for sources and sinks: catalogs, the files of a snapshot, types, and errors of the package."""
