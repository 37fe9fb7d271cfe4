"""Spark's Python daemon (`spark.python.daemon.module`) whose actors reach the points of points.py."""

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark import daemon

from tests.support.exactly_once.points import reach
from tussock.jobs.task import level_flush
from tussock.jobs.task import unit as actors
from tussock.jobs.wire import flush
from tussock.statestore.hummock import ingest


def watch_levels() -> None:
    """Make the beginning and the end of each unit's level a point."""
    run = actors.Unit.run

    def watched(unit: actors.Unit) -> Iterator[pa.RecordBatch]:
        reach(f"level {unit.level} begins")
        yield from run(unit)
        reach(f"level {unit.level} ends")

    actors.Unit.run = watched  # type: ignore[method-assign,assignment]


def watch_uploads() -> None:
    """Make every upload of SSTs a point. Workers look the function up by name, so all of them use this one."""
    upload: Callable[..., Any] = ingest.batch_ingest

    def batch_ingest(*arguments: Any) -> Any:
        reach("flush begins")
        infos = upload(*arguments)
        reach("flush ends")
        return infos

    for module in (ingest, level_flush, flush):
        module.batch_ingest = batch_ingest  # type: ignore[attr-defined]


if __name__ == "__main__":
    watch_levels()
    watch_uploads()
    daemon.manager()
