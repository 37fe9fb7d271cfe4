"""Run the sides in turns over each query, and compare their rows with the rows of Spark's own SELECT."""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from benchmarks.nexmark.figures import Measured, Run
from benchmarks.nexmark.peers import CannotExpressError, Peer, Stopwatch, reference
from benchmarks.nexmark.workload import Events, Query, Sizes

_RELATIVE = 1e-9
_WARM_UP = Sizes(events=2_000, epochs=2, small_epochs=0)


def compare_nexmark(
    spark: SparkSession,
    scratch: Path,
    queries: Sequence[Query],
    sides: Mapping[str, Peer],
    sizes: Sizes,
    progress: Callable[[str], None],
) -> Iterator[list[Measured]]:
    """Run each query on all sides in turns, `sizes.runs` times.

    An uncounted run of each query on each side, over few events, starts Spark's workers, imports modules and lets the
    JVM compile. Without it, the first queries of a run would look slower than the last.

    Yields: the results of each query, one per side.
    """
    warm_up = Events(scratch, _WARM_UP)
    for query in queries:
        for side in sides.values():
            _run(side, query, warm_up, scratch)
    events = Events(scratch, sizes)
    for query in queries:
        expected = _Expected(reference(spark, query, events))
        found = {name: Measured(query.name, name) for name in sides}
        for _ in range(sizes.runs):
            for name, side in sides.items():
                one = found[name]
                if not one.refused:
                    _measure(one, _run(side, query, events, scratch), expected)
        for one in found.values():
            progress(one.text)
        yield list(found.values())


def _run(side: Peer, query: Query, events: Events, scratch: Path) -> tuple[Run, pa.Table] | CannotExpressError:
    # A new folder each time: a stopped streaming query can still write for a moment, and so make its folder again.
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=scratch))
    watch = Stopwatch()
    try:
        rows = side.run(query, events, folder, watch)
    except CannotExpressError as err:
        return err
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return Run(tuple(watch.wall), tuple(watch.cpu)), rows


def _measure(one: Measured, ran: tuple[Run, pa.Table] | CannotExpressError, expected: "_Expected") -> None:
    if isinstance(ran, CannotExpressError):
        one.refused = str(ran)
        return
    run, rows = ran
    one.runs.append(run)
    one.rows = rows.num_rows
    one.wrong = one.wrong or expected.difference(rows)


class _Expected:
    """The rows of Spark's own SELECT."""

    def __init__(self, rows: pa.Table) -> None:
        self._schema = pa.schema([(field.name, field.type) for field in rows.schema])
        self._rows = _ordered(rows.cast(self._schema))

    def difference(self, found: pa.Table) -> str:
        """Describe the first difference between the rows and the expected ones, as multisets. Empty if there is none.

        Floats may differ by 1e-9 of the largest value of their column.
        """
        if found.column_names != self._schema.names:
            return f"found the columns {found.column_names}, expected {self._schema.names}"
        if found.num_rows != self._rows.num_rows:
            return f"found {found.num_rows:,} rows, expected {self._rows.num_rows:,}"
        try:
            found = _ordered(found.cast(self._schema))
        except pa.ArrowInvalid as err:
            return f"found other values than {self._schema} can hold: {err}"
        same = np.ones(found.num_rows, np.bool_)
        for ours, theirs in zip(found.columns, self._rows.columns, strict=True):
            same &= _same(ours, theirs)
        if same.all():
            return ""
        first = int(np.argmin(same))
        ours, theirs = (rows.slice(first, 1).to_pylist()[0] for rows in (found, self._rows))
        return f"found the row {ours}, expected {theirs}"


def _ordered(rows: pa.Table) -> pa.Table:
    """The rows in the order of their exact columns, and then of their floats, whose last bits may differ."""
    fields = sorted(rows.schema, key=lambda field: pa.types.is_floating(field.type))
    return rows.sort_by([(field.name, "ascending") for field in fields])


def _same(ours: pa.ChunkedArray, theirs: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Which values are equal, position by position. NULL equals NULL."""
    if pa.types.is_floating(ours.type):
        numbers, expected = (column.to_numpy() for column in (ours, theirs))
        scale = float(np.nanmax(np.abs(expected), initial=0.0))
        equal: npt.NDArray[np.bool_] = np.isclose(numbers, expected, _RELATIVE, _RELATIVE * scale, equal_nan=True)
    else:
        equal = pc.fill_null(pc.equal(ours, theirs), False).to_numpy()
    both_null = pc.and_(ours.is_null(), theirs.is_null()).to_numpy()
    result: npt.NDArray[np.bool_] = both_null | (equal & (ours.is_null().to_numpy() == theirs.is_null().to_numpy()))
    return result
