"""The state store: relational state tables on an LSM tree in object storage. Independent of SQL, Spark and Airflow."""

if __name__ != "tussock.statestore":  # Importing the package under two names would create each class twice.
    raise ImportError("import the engine as tussock.statestore: add the folder that contains `tussock/` to the path")
