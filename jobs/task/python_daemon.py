"""Spark's daemon of Python workers, with the engine imported: `spark.python.daemon.module` of local applications.

The daemon forks a worker per task slot, and again after a minute without work. Each worker would import the engine,
which takes 2 s of CPU. Forked workers share the imports of the daemon. It has one thread, so it may fork.
"""

import gc

import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import tussock.jobs.task.spark_task
import tussock.jobs.task.stage  # noqa: F401

if __name__ == "__main__":
    gc.collect()
    gc.freeze()  # a worker's collector would copy the pages of these objects
    manager()
