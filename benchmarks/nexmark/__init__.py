"""Nexmark: the queries of pipelines/nexmark, one view each, on Tussock and on its peers, in one run on one machine.

workload.py    the queries, and the files of events
peers.py       the sides: Tussock's runners, Structured Streaming, recomputing by Spark and by DuckDB
compare.py     runs the sides in turns, measures each epoch, and checks the rows at the end
figures.py     the record as JSON, and the figures made from it
"""
