"""The data that executors exchange: chunks of weighted rows, and failures for the driver.

Uses neither Spark nor the store.
"""
