"""Changes of a view over a short and a long history: does an epoch cost the change?

    python -m benchmarks history
    python -m benchmarks history --histories 1000000 4000000 16000000 --peers duckdb spark merge
    python -m benchmarks history --views all --histories 20000 80000 --beside ../tussock-of-before

The history of 100,000 customers in 200 shops grows, and the changes stay the same: a new file (`appended`), an existing
file of 20,000 rows of which 100 differ (`corrected`), five such files in one run (`five corrected`), and rows of a
table that get another amount (`updated`). Each epoch runs in a new process, as a scheduler does it, and new files also
in the process that loaded the history (`long-lived`). The peers compute the same rows from all files; `merge` brings
Delta tables up to date by hand, which only works for new rows. With --beside, the code of another checkout runs in
turns on its own stores.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.history_views import ALL, TABLE, Views
from benchmarks.report import Figure, write_json

ROOT = Path(__file__).resolve().parent.parent
RESULTS = Path(__file__).parent / "results"
CHANGES = ("appended", "corrected", "five corrected", "updated")
PEERS = ("duckdb", "spark", "merge")
GROWTH_BUDGET = 1.3
_BEGAN = 1_700_000_000  # the moment of the first row, Unix seconds
_FILE_ROWS = 1_000_000
_DIFFERENT = 200  # one in so many rows of a corrected file differs from its version before
_FIVE = 5
COLUMNS = "id bigint, customer bigint, shop int, ts timestamp, amount bigint, weight double, note string"
SHOPS = "shop int, city string, fee bigint"


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a run. `changed`: rows of a change, unless the views have their own number."""

    customers: int
    shops: int
    corrected: int
    changed: int
    runs: int


# --- rows ---


def rows_of(ids: np.ndarray, sizes: Sizes, version: int = 0) -> pa.Table:
    """The rows with these numbers. One in _DIFFERENT rows has another amount than in the version before."""
    mixed = (ids.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(20)
    amount = (mixed % np.uint64(100_003)).astype(np.int64)
    place = ids % _DIFFERENT
    return pa.table(
        {
            "id": pa.array(ids),
            "customer": pa.array((mixed % np.uint64(sizes.customers)).astype(np.int64)),
            "shop": pa.array(((mixed >> np.uint64(13)) % np.uint64(sizes.shops)).astype(np.int32)),
            "ts": pa.array((_BEGAN + ids) * 1_000_000).cast(pa.timestamp("us", tz="UTC")),
            "amount": pa.array(amount + ((place > 0) & (place <= version))),
            "weight": pa.array(amount / 7),
            "note": pa.array(np.char.add("n", (amount % 1_000).astype(str))),
        }
    )


class History:
    """The files of one history, which each store links into its own folder."""

    def __init__(self, folder: Path, rows: int, sizes: Sizes) -> None:
        self.folder, self.rows, self.sizes = folder, rows, sizes
        self.files, self.shops = folder / "events", folder / "shops.parquet"
        self.files.mkdir(parents=True)
        corrected = [(self.first_of(n), self.first_of(n + 1)) for n in range(_FIVE)]
        for n, (first, end) in enumerate(corrected):
            write_rows(self.files / f"corrected-{n}.parquet", first, end - first, sizes)
        for first, end in [(0, corrected[0][0]), (corrected[-1][1], rows)]:
            for start in range(first, end, _FILE_ROWS):
                write_rows(self.files / f"history-{start:012}.parquet", start, min(_FILE_ROWS, end - start), sizes)
        shops = np.arange(sizes.shops)
        cities, fees = [f"city {n % 20}" for n in shops], shops * 31 % 100
        pq.write_table(pa.table({"shop": shops.astype(np.int32), "city": cities, "fee": fees}), self.shops)

    def first_of(self, number: int) -> int:
        """The first row of a file that is corrected. These files are in the middle of the history."""
        return self.rows // 2 + number * self.sizes.corrected


def write_rows(path: Path, first: int, count: int, sizes: Sizes, version: int = 0) -> None:
    """Write a file at once: a link to its old content stays."""
    waiting = path.with_suffix(".waiting")
    pq.write_table(rows_of(np.arange(first, first + count), sizes, version), waiting, compression="zstd")
    waiting.rename(path)


class ViewStore:
    """The store of one view on one side, and the changes of its files or of its table."""

    def __init__(self, history: History, views: Views, folder: Path, of_table: bool) -> None:
        self.history, self.views, self.folder, self.of_table = history, views, folder, of_table
        self.changed = views.changed or history.sizes.changed
        self._next, self._version = history.rows, 0
        self._random = np.random.default_rng(7)
        self.events = folder / "events"
        self.events.mkdir(parents=True)
        if not of_table:
            for file in history.files.iterdir():
                os.link(file, self.events / file.name)

    @property
    def store(self) -> str:
        return str(self.folder / "store")

    def describe(self, runs: int) -> dict[str, Any]:
        """The document that `history_epoch load` expects."""
        history, sources = self.history, []
        if self.of_table:
            sources.append(f"CREATE TABLE events ({COLUMNS}, PRIMARY KEY (id))")
        else:
            sources.append(f"CREATE SOURCE events ({COLUMNS}) USING parquet OPTIONS (path '{self.events}')")
        shops = f"CREATE SOURCE shops ({SHOPS}) USING parquet OPTIONS (path '{history.shops}')"
        return {
            "name": self.views.name,
            "folder": self.store,
            "statements": [*sources, shops],
            "table": [str(file) for file in sorted(history.files.iterdir())] if self.of_table else None,
            "views": [f"CREATE MATERIALIZED VIEW v{n} AS {select}" for n, select in enumerate(self.views.selects)],
            "epochs": [] if self.of_table else [self._append_beside() for _ in range(runs)],
        }

    def make_change(self, change: str) -> list[str]:
        """Write the files of a change. Returns the arguments of `history_epoch epoch`."""
        sizes = self.history.sizes
        self._version += 1
        match change:
            case "appended":
                Path((place := self._append_beside())[0]).rename(place[1])
                return ["flush"]
            case "updated":
                ids = np.sort(self._random.choice(self.history.rows, self.changed, replace=False))
                rows = rows_of(ids, sizes)
                file = self.folder / f"updated-{self._version}.parquet"
                pq.write_table(rows.set_column(4, "amount", pa.array(ids % 997 + self._version)), file)
                return ["insert", str(file)]
            case _:
                files = [self.events / f"corrected-{n}.parquet" for n in range(1 if change == "corrected" else _FIVE)]
                for n, file in enumerate(files):
                    write_rows(file, self.history.first_of(n), sizes.corrected, sizes, self._version)
                return ["restate", *map(str, files)]

    def count_changed(self, change: str) -> int:
        """The rows that differ after a change."""
        files = {"corrected": 1, "five corrected": _FIVE}.get(change)
        return self.changed if files is None else files * self.history.sizes.corrected // _DIFFERENT

    def _append_beside(self) -> tuple[str, str]:
        """Write a new file beside the source's folder. Returns its path, and its path in the folder."""
        waiting = self.folder / f"new-{self._next:012}.parquet"
        write_rows(waiting, self._next, self.changed, self.history.sizes)
        self._next += self.changed
        return str(waiting), str(self.events / waiting.name)


# --- measuring ---


@dataclass(slots=True)
class Side:
    """One checkout, or a peer, and its results by (views, change, history)."""

    name: str
    checkout: Path = ROOT
    found: dict[tuple[str, str, int], list[dict[str, Any]]] = field(default_factory=dict)

    def run(self, *arguments: str) -> list[dict[str, Any]]:
        """Run a measured process. Raises RuntimeError with the end of its output if it fails."""
        env = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
        command = [sys.executable, "-m", "benchmarks.history_epoch", "--code", str(self.checkout), *arguments]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(arguments)}: exit code {done.returncode}\n{done.stderr[-3000:]}")
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    def add(self, views: Views, change: str, rows: int, results: Sequence[dict[str, Any]], changed: int = 0) -> None:
        """Record measurements, and print them. `changed`: the rows that differ."""
        results = [{**one, "changed": changed} for one in results]
        self.found.setdefault((views.name, change, rows), []).extend(results)
        for one in results:
            shown = ", ".join(f"{k} {v:,.3g}" for k, v in one.items() if isinstance(v, int | float))
            print(f"{self.name}: {rows:,} rows: {views.name}: {change}: {shown}", file=sys.stderr, flush=True)

    def figures(self) -> Iterator[Figure]:
        """All measurements, with the values of each run."""
        for (name, change, rows), found in self.found.items():
            facts = {
                of: [one.get(of) for one in found] for of in ("cpu_s", "peak_mb", "rows", "blocks", "bytes", "changed")
            }
            cpu = statistics.median(one["cpu_s"] for one in found)
            yield Figure(f"{self.name}: {name}, {change}, {rows:,} rows", cpu, "CPU s", facts=facts)

    def median(self, views: Views, change: str, rows: int, of: str = "cpu_s") -> float | None:
        """The median of a figure. None: not measured."""
        found = self.found.get((views.name, change, rows), [])
        return statistics.median(one[of] for one in found) if found else None


def measure_sides(history: History, views: Sequence[Views], sides: Sequence[Side], changes: Sequence[str]) -> None:
    """Load each view on each side, and run its epochs in turns."""
    runs, of_files = history.sizes.runs, [c for c in changes if c != "updated"]
    stores: dict[tuple[str, str, bool], ViewStore] = {}
    for side in sides:
        for view in views:
            for of_table in ([False] if of_files else []) + ([True] if "updated" in changes else []):
                folder = history.folder / side.name / f"{len(stores)}"
                stores[side.name, view.name, of_table] = ViewStore(history, view, folder, of_table)
        given = history.folder / f"{side.name}.json"
        of_side = [store for (name, _, _), store in stores.items() if name == side.name]
        given.write_text(json.dumps([store.describe(runs if "appended" in changes else 0) for store in of_side]))
        by_name = {view.name: view for view in views}
        for one in side.run("load", str(given)):
            view = by_name[one["name"]]
            side.add(view, one["what"], history.rows, [one], view.changed or history.sizes.changed)
    for view in views:
        for change in changes:
            for _ in range(runs):
                for side in sides:
                    store = stores[side.name, view.name, change == "updated"]
                    found = side.run("epoch", store.store, *store.make_change(change))
                    side.add(view, change, history.rows, found, store.count_changed(change))


def measure_peers(history: History, views: Sequence[Views], peers: Sequence[Side]) -> None:
    """Recompute each view from all files, and merge new rows by hand."""
    new = history.folder / "new.parquet"
    for view in views:
        write_rows(new, history.rows, view.changed or history.sizes.changed, history.sizes)
        for peer in peers:
            if (peer.name == "duckdb" and view.without_duckdb) or (peer.name == "merge" and len(view.selects) != 3):
                continue
            given = history.folder / f"{peer.name}.json"
            document = {
                "inputs": {"events": f"{history.files}/*.parquet", "shops": str(history.shops)},
                "selects": view.selects if peer.name == "spark" else view.of_duckdb,
                "new": str(new),
                "out": str(history.folder / f"{peer.name}-{time.monotonic_ns()}"),
            }
            given.write_text(json.dumps(document))
            peer.add(view, "all rows", history.rows, peer.run(peer.name, str(given)))


# --- results ---


def lines_of(views: Sequence[Views], sides: Sequence[Side], peers: Sequence[Side], sizes: Sequence[int]) -> list[str]:
    """A Markdown table: per view and change the CPU seconds of each side by history, and where they win."""
    heads = [f"{side.name}, {rows / 1e6:g} M" for side in sides for rows in sizes]
    columns = [*heads, "growth", "MB", "rows", "KB", *(f"{p.name}, {rows / 1e6:g} M" for p in peers for rows in sizes)]
    lines = [
        f"| view | change | {' | '.join(columns)} | cheaper from |",
        "|---|---" + "|---:" * (len(columns) + 1) + "|",
    ]
    last = sides[-1]
    for view in views:
        changes = [c for c in (*CHANGES, "long-lived") if (view.name, c, sizes[-1]) in last.found]
        for change in changes:
            cells = [_number(side.median(view, change, rows)) for side in sides for rows in sizes]
            more = [last.median(view, change, sizes[-1], of) for of in ("peak_mb", "rows", "bytes")]
            changed = last.median(view, change, sizes[-1], "changed") or 1
            rest = [_number(growth_of(view, change, last, sizes)), _whole(more[0])]
            rest += [_number(None if m is None else m / changed / by) for m, by in ((more[1], 1), (more[2], 1_000))]
            theirs = [_number(peer.median(view, "all rows", rows)) for peer in peers for rows in sizes]
            lines.append(
                f"| {view.name} | {change} | {' | '.join([*cells, *rest, *theirs])} "
                f"| {cheaper_from(view, change, last, peers, sizes)} |"
            )
    return lines


def growth_of(views: Views, change: str, side: Side, sizes: Sequence[int]) -> float | None:
    """The CPU seconds at the longest history over the ones at the shortest."""
    short, long = (side.median(views, change, rows) for rows in (sizes[0], sizes[-1]))
    return None if short is None or long is None else long / short


def cheaper_from(views: Views, change: str, side: Side, peers: Sequence[Side], sizes: Sequence[int]) -> str:
    """The shortest measured history from which the epoch costs less than the cheapest recomputation."""
    for rows in sizes:
        theirs = [
            cpu for peer in peers if peer.name != "merge" and (cpu := peer.median(views, "all rows", rows)) is not None
        ]
        ours = side.median(views, change, rows)
        if theirs and ours is not None and ours < min(theirs):
            return f"{rows / 1e6:g} M"
    return "" if not peers else "never here"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}" if value < 100 else f"{value:,.0f}"


def _whole(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def main(arguments: list[str]) -> int:
    """Measure, print a table, and write JSON. Returns 1 if an epoch grows faster than the budget allows."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks history", description=__doc__.splitlines()[0] if __doc__ else None
    )
    names = ", ".join(v.name for v in ALL)
    parser.add_argument("--histories", type=int, nargs="+", default=[1_000_000, 4_000_000, 16_000_000], help="rows")
    parser.add_argument("--views", nargs="+", default=["table"], help=f"table, all, or some of: {names}")
    parser.add_argument("--changes", nargs="+", choices=CHANGES, default=list(CHANGES), help="default: all")
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=list(PEERS), help="default: all")
    parser.add_argument("--beside", type=Path, help="another checkout to measure as well, in turns")
    parser.add_argument("--customers", type=int, default=100_000)
    parser.add_argument("--shops", type=int, default=200)
    parser.add_argument("--corrected", type=int, default=20_000, help="rows of a corrected file")
    parser.add_argument(
        "--changed", type=int, default=2_000, help="rows of a change, except for the views of the table"
    )
    parser.add_argument("--runs", type=int, default=3, help="measured epochs per view and change")
    parser.add_argument("--scratch", type=Path, help="folder of files and stores, kept; default: a temporary folder")
    parser.add_argument("--out", type=Path, help="the JSON file; default: benchmarks/results/<time>.json")
    options = parser.parse_args(arguments)
    views = _chosen_views(parser, options.views)
    sizes = Sizes(options.customers, options.shops, options.corrected, options.changed, options.runs)
    sides = [Side("before", options.beside.resolve())] if options.beside else []
    sides.append(Side("tussock"))
    peers = [Side(name) for name in options.peers]
    histories = sorted(options.histories)
    with tempfile.TemporaryDirectory(prefix="tussock-history-") as temporary:
        for rows in histories:
            if rows < 2 * (_FIVE + 1) * sizes.corrected:
                parser.error(f"a history of {rows:,} rows is too short for files of {sizes.corrected:,} rows")
            history = History((options.scratch or Path(temporary)) / str(rows), rows, sizes)
            measure_sides(history, views, sides, options.changes)
            measure_peers(history, views, peers)
            print("\n".join(lines_of(views, sides, peers, [r for r in histories if r <= rows])), flush=True)
    figures = [
        Figure(f"{view.name}, {change}: growth", growth, "x", at_most=GROWTH_BUDGET)
        for view in views
        for change in (*options.changes, "long-lived")
        if (growth := growth_of(view, change, sides[-1], histories)) is not None
    ]
    figures += [figure for side in (*sides, *peers) for figure in side.figures()]
    out = options.out or RESULTS / f"{time.strftime('%Y%m%dT%H%M%S')}.json"
    settings = {k: v for k, v in vars(options).items() if k not in ("scratch", "out", "beside")}
    write_json(out, [], settings, figures)
    print(f"wrote {out}")
    return int(any(figure.verdict == "MISSED" for figure in figures))


def _chosen_views(parser: argparse.ArgumentParser, names: Sequence[str]) -> tuple[Views, ...]:
    if names == ["table"]:
        return TABLE
    if names == ["all"]:
        return ALL
    known = {v.name: v for v in ALL}
    if unknown := [name for name in names if name not in known]:
        parser.error(f"unknown view {unknown[0]!r}; expected table, all, or some of: {', '.join(known)}")
    return tuple(known[name] for name in names)
