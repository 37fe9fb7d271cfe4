"""The state store: relational state tables over an LSM tree over object storage. Knows no SQL, no Spark, no Airflow."""
