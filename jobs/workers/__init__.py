"""Worker processes on the driver's host, which run the units of an epoch without Spark.

    pool.py           the driver's side: starts the workers, gives them an epoch, collects their cells
    fork_server.py    a process that imports the engine once, and forks the workers
    worker.py         a worker: runs the levels of epochs on its units, until the driver closes the connection
    budgets.py        the memory of each worker

Workers exchange cells as Spark's tasks do (jobs/exchange/).
"""
