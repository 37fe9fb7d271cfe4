"""Queries from public benchmarks: TPC-H, TPC-DS and SSB as in Spark's tests, each a view maintained through changes."""
