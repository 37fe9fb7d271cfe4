"""A process that vacuums a store without a pause: `python -m tests.support.exactly_once.sweeper STORE KEEP_EPOCHS`."""

import sys

from tussock.jobs.settings.process import open_meta
from tussock.jobs.upkeep.vacuum import sweep_store

if __name__ == "__main__":
    meta = open_meta(sys.argv[1])
    while True:
        meta.apply_retention(keep_epochs=int(sys.argv[2]))
        done = sweep_store(meta)
        print(f"{len(done.vacuumed.garbage)} objects removed", flush=True)
