"""The engine on a real cluster: driver, executors and Python workers are separate processes, and the store is in S3."""
