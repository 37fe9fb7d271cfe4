"""Queries that nobody here wrote: TPC-H, TPC-DS and SSB as Spark's own tests have them, each a view kept through changes."""
