"""The state store: relational state tables over an LSM tree over object storage. Knows no SQL, no Spark, no Airflow."""

if __name__ != "tussock.statestore":  # under two names, each class would be two classes
    raise ImportError("the engine is imported as tussock.statestore: put the folder above `tussock/` on the path")
