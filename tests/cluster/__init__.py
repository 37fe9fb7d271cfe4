"""The engine on a real cluster: driver, executors and Python workers are different processes, and the store is in S3."""
