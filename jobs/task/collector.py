"""Python's garbage collector in Spark's workers: kept away from what lives long.

A worker collects after every task, before it takes the next. Each time it looked through all that was imported, pyarrow and DuckDB among
it, which takes 65 ms, and through every block and row that the caches hold, which takes as long again where they are full.

So a task that ends collects what itself has made, and takes what is left out of the collector's sight. It is still freed when nothing
refers to it any more; only what refers to itself would stay, so now and then the collector looks at everything.
"""

import gc
import time

EVERYTHING_S = 10.0  # between two looks at everything: less than a hundredth of a worker's time

_looked = float("-inf")


def collect_own_garbage() -> None:
    """Collect what this process has made since it last came here, and let the collector forget what lives on.

    Cost: about 0.1 us an object.
    """
    global _looked
    if (now := time.monotonic()) - _looked >= EVERYTHING_S:
        gc.unfreeze()
        _looked = now
    gc.collect()
    gc.freeze()
