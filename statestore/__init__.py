"""The state store: relational state tables over an LSM tree over object storage. Knows no SQL, no Spark, no Airflow."""

import logging

logging.getLogger("statestore").addHandler(logging.NullHandler())  # silent, unless the program asks
