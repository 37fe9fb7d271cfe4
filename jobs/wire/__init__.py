"""Plain data that crosses processes: cells, their addresses, an epoch's task, the flush decision.

No Spark, no store.
"""
