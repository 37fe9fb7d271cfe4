"""`python -m benchmarks kept-objects`: the objects that a store of one epoch a minute keeps, by kind, after each day.

Each epoch takes one statement and is published. Retention of a day and vacuum run each hour of the store's clock.
Epochs write no SSTs here: how many of them compaction leaves depends on the rows, and not on the number of epochs.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tussock.jobs.settings.retention import Retention
from tussock.jobs.upkeep.vacuum import clean_store
from tussock.statestore.meta.barrier import BarrierPlan
from tussock.statestore.meta.manifest import manifest_of
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.base import ObjectStore
from tussock.statestore.objectstore.local import LocalObjectStore

_MINUTE_MS, _HOUR, _DAY = 60_000, 60, 1_440  # an hour and a day in epochs


@dataclass(frozen=True, slots=True)
class Kept:
    """A store after the upkeep of an epoch."""

    epochs: int
    objects: dict[str, int]  # by the folder of their names
    bytes: int
    seconds: float  # of the last vacuum

    @property
    def total(self) -> int:
        """All objects."""
        return sum(self.objects.values())


def run_minutes(objects: ObjectStore, epochs: int, progress: Callable[[Kept], object]) -> list[Kept]:
    """Run epochs on an empty store. Returns its objects after each day and at the end; `progress` gets them too."""
    MetaStore.init(objects, vnode_count=256)
    now = [1_700_000_000_000]
    meta = MetaStore(objects, "benchmark", lambda: now[0])
    found: list[Kept] = []
    for number in range(epochs):
        now[0] += _MINUTE_MS
        position = meta.append_log(f"benchmark/{number}", b'{"insert":"a row of a table"}', is_new=True)
        version = meta.read_latest()
        barrier = meta.inject_barrier(version.epoch, BarrierPlan(mapping=version.mapping, log_end=position + 1))
        meta.commit_epoch(meta.seal_epoch(manifest_of(barrier, meta.writer, ())))
        meta.publish(barrier.epoch)
        last = number == epochs - 1
        if number % _HOUR == _HOUR - 1 or last:
            started = time.perf_counter()
            clean_store(meta, Retention())
            if number % _DAY == _DAY - 1 or last:
                listed = list(objects.list(""))
                kinds = Counter(_kind(one.name) for one in listed)
                size = sum(one.size for one in listed)
                found.append(Kept(number + 1, dict(kinds), size, time.perf_counter() - started))
                progress(found[-1])
    return found


def _kind(name: str) -> str:
    return name.split("/")[0 if name.startswith("data/") else 1]


def show(kept: Kept) -> str:
    """One line about a store."""
    kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(kept.objects.items()) if count > 1)
    return (
        f"{kept.epochs:>7,} epochs: {kept.total:>6,} objects, {kept.bytes / 1e6:.1f} MB, {kept.seconds:.2f} s: {kinds}"
    )


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks kept-objects", description="Count the objects of a store of one epoch a minute."
    )
    parser.add_argument("--epochs", type=int, default=20_000)
    parser.add_argument("--folder", type=Path, help="of the store; default: a temporary folder")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="tussock-bench-", dir=chosen.folder) as folder:
        run_minutes(LocalObjectStore(Path(folder) / "store"), chosen.epochs, lambda kept: print(show(kept), flush=True))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
