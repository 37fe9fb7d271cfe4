"""The CPU time of an epoch by part, for small and large epochs of Nexmark's queries.

    python -m benchmarks epoch-profile
    python -m benchmarks epoch-profile --queries q4 --small-epochs 100

Each query is one view. The large epochs take 125,000 events each, and the small ones 1,000 events after all of them.
Everything runs in this process, so that one sampler sees it. Every few milliseconds of CPU time, it records the calls
of all threads. A sample counts for the innermost call that a part of `PARTS` describes. The first epochs of both kinds
are not counted.
"""

import argparse
import signal
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from benchmarks.nexmark.peers import Stopwatch, define
from benchmarks.nexmark.workload import Events, Query, Sizes, queries
from tussock import Session
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.spark.session import build_spark
from tussock.jobs.texts.table import align_cells

INTERVAL_S = 0.001  # of CPU time; the kernel may use longer steps
COLD_EPOCHS = 2  # of each kind
OTHER = "other"

#: The parts, by the path of a module or by the start of such paths. The innermost call that is listed counts, so a part
#: does not contain the parts that it calls.
PARTS: Mapping[str, tuple[str, ...]] = {
    "files of the store: read, write, sync": ("statestore/objectstore/",),
    "versions, barriers, manifests as JSON": ("statestore/meta/", "jobs/driver/", "jobs/plan/", "statestore/decoding"),
    "sources: list, pin, keep": ("jobs/sources/",),
    "sources: read rows": ("jobs/sources/parquet", "jobs/sources/plain"),
    "expressions (DuckDB)": ("jobs/kernels/",),
    "operators": ("jobs/executors/",),
    "keys: encode, sort, search": (
        "statestore/hummock/key",
        "statestore/hummock/sorted_keys",
        "statestore/table/key_order",
        "statestore/vnode",
    ),
    "state: remembered rows": ("statestore/table/row_cache", "statestore/table/known_run"),
    "state: read blocks": ("statestore/hummock/",),
    "state: tables and MemTables": ("statestore/table/",),
    "SSTs: encode": (
        "statestore/hummock/ingest",
        "statestore/hummock/sst_writer",
        "statestore/hummock/sst_bytes",
        "statestore/hummock/merge",
    ),
    "cells: encode, send, decode": ("jobs/chunks/", "jobs/wire/", "jobs/exchange/", "statestore/nested"),
    "levels and fragments": ("jobs/task/",),
}


class Sampler:
    """Counts samples by part. Only the main thread can start it."""

    def __init__(self) -> None:
        self.found: Counter[str] = Counter()
        self._places: dict[str, str] = {}  # the part of each file

    @contextmanager
    def running(self) -> Iterator[None]:
        """Sample this process's threads during the block."""
        before = signal.signal(signal.SIGPROF, self._sample)
        signal.setitimer(signal.ITIMER_PROF, INTERVAL_S, INTERVAL_S)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, before)

    def _sample(self, _: int, frame: FrameType | None) -> None:
        """Count the main thread, or another thread's work if the main one waits for it."""
        threads = {i: f for i, f in sys._current_frames().items() if i != threading.main_thread().ident}
        if frame is None or frame.f_code.co_filename != threading.__file__:
            self.found[self.part_of(frame)] += 1
            return
        working = [f for f in threads.values() if f.f_code.co_filename != threading.__file__]
        self.found[next((part for f in working if (part := self.part_of(f)) != OTHER), OTHER)] += 1

    def part_of(self, frame: FrameType | None) -> str:
        """The part of a frame or of its nearest caller that belongs to one."""
        while frame is not None:
            if part := self._part_of_file(frame.f_code.co_filename):
                return part
            frame = frame.f_back
        return OTHER

    def _part_of_file(self, path: str) -> str:
        if (known := self._places.get(path)) is None:
            of = {start: part for part, starts in PARTS.items() for start in starts}
            rooms = [path[path.rfind(f"/{room}/") + 1 :] for room in ("jobs", "statestore") if f"/{room}/" in path]
            longest = max((s for s in of if any(p.startswith(s) for p in rooms)), key=len, default="")
            known = self._places[path] = of.get(longest, "")
        return known


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks epoch-profile", description=__doc__.splitlines()[0] if __doc__ else None
    )
    parser.add_argument("--queries", nargs="+", choices=queries(), default=["q4", "q5", "q3", "q18"], metavar="Q")
    parser.add_argument("--events", type=int, default=1_000_000, help="events of all large epochs together")
    parser.add_argument("--epochs", type=int, default=8, help="number of large epochs")
    parser.add_argument("--small-epochs", type=int, default=40, help="small epochs of 1,000 events after the others")
    parser.add_argument("--scratch", type=Path, help="folder for temporary files; default: the system's")
    options = parser.parse_args(arguments)
    sizes = Sizes(options.events, options.epochs, small_epochs=options.small_epochs)
    columns: dict[str, Mapping[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="tussock-profile-", dir=options.scratch) as scratch:
        spark = build_spark("tussock-profile", settings={"spark.local.dir": f"{scratch}/spark"})
        try:
            events = Events(Path(scratch), sizes)
            with Session(f"{scratch}/views", spark) as session:  # its JVM is not part of any measured epoch
                for name in options.queries:
                    large, small = _profiled(session, queries()[name], events, sizes, Path(scratch) / name)
                    columns[f"{name}, {sizes.per_epoch[0]:,}"] = large
                    columns[f"{name}, {sizes.small_events:,}"] = small
        finally:
            spark.stop()
    print(table_of(columns))
    return 0


def _profiled(
    session: Session, query: Query, events: Events, sizes: Sizes, folder: Path
) -> tuple[dict[str, float], dict[str, float]]:
    """CPU milliseconds of a large epoch and of a small one, by part."""
    found = []
    shown, watch = folder / "shown", Stopwatch()
    with Session(str(folder / "store"), session.spark, runner=LocalRunner()) as own:
        for first, end in ((0, sizes.epochs), (sizes.epochs, events.epochs)):
            sampler, counted = Sampler(), 0
            watch.cpu.clear()
            for epoch in range(first, end):
                events.show(query, epoch, shown)
                if epoch == 0:
                    define(own, query, shown)
                if epoch < first + COLD_EPOCHS:
                    own.flush()
                    continue
                watch.start()
                with sampler.running():
                    own.flush()
                watch.lap()
                counted += 1
            found.append(shares(sampler.found, 1e3 * sum(watch.cpu) / max(1, counted)))
    return found[0], found[1]


def shares(samples: Mapping[str, int], whole: float) -> dict[str, float]:
    """Divide a whole by the samples of its parts."""
    count = sum(samples.values())
    return {part: whole * samples.get(part, 0) / max(1, count) for part in (*PARTS, OTHER)}


def table_of(columns: Mapping[str, Mapping[str, float]]) -> str:
    """CPU milliseconds of an epoch, as text: a row per part, a column per query and number of events."""
    lines = [("part", *columns)]
    lines += [(part, *(f"{column[part]:.1f}" for column in columns.values())) for part in (*PARTS, OTHER)]
    lines.append(("all", *(f"{sum(column.values()):.1f}" for column in columns.values())))
    return align_cells(lines, [False, *[True] * len(columns)])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
