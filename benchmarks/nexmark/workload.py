"""The queries of pipelines/nexmark, and the files that the epochs take."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.nexmark.generate import STREAMS, batch
from tussock.jobs.logical.script import split_script

PIPELINE = Path(__file__).parents[2] / "pipelines" / "nexmark"
SIDE_INPUT = "side_input"
_VIEW = re.compile(r"CREATE MATERIALIZED VIEW IF NOT EXISTS (?P<name>\w+) AS\n(?P<select>.*)", re.DOTALL)
_RELATION = re.compile(r"EXISTS (\w+)")
_INPUT = re.compile(r"\b(?:FROM|JOIN) (\w+)")


_KEYS = {"q12": ("bidder", "start_time", "end_time"), "q17": ("auction", "day")}


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of the benchmark."""

    events: int = 1_000_000
    epochs: int = 8
    small_events: int = 1_000
    small_epochs: int = 5  # after all others
    runs: int = 1

    @property
    def per_epoch(self) -> tuple[int, ...]:
        """The events of each epoch: first the large ones, then the small ones."""
        bounds = [self.events * epoch // self.epochs for epoch in range(self.epochs + 1)]
        large = (end - first for first, end in pairwise(bounds))
        return (*large, *[self.small_events] * self.small_epochs)


@dataclass(frozen=True, slots=True)
class Query:
    """A query in Spark's SQL, with the relations that it reads."""

    name: str
    select: str
    streams: tuple[str, ...]
    side_input: bool
    key: tuple[str, ...] = ()  # of the result's rows, for a query whose streaming form emits changed rows

    @property
    def in_duckdb(self) -> str:
        """The query in DuckDB's SQL, over times without a time zone."""
        return _IN_DUCKDB.get(self.name, self.select)


class Events:
    """The Parquet files of all epochs, one per stream and epoch. Existing files are kept."""

    def __init__(self, folder: Path, sizes: Sizes) -> None:
        self.epochs = len(sizes.per_epoch)
        self._folder = folder / f"events-{sizes.events}-{sizes.epochs}-{sizes.small_events}-{sizes.small_epochs}"
        first = 0
        for epoch, events in enumerate(sizes.per_epoch):
            if not all(self._file(stream, epoch).exists() for stream in STREAMS):
                for stream, rows in batch(first, events).items():
                    _write(rows, self._file(stream, epoch))
            first += events

    def folder(self, stream: str) -> Path:
        """The folder of a stream's files."""
        return self._folder / stream

    def files(self, stream: str, epochs: int) -> list[str]:
        """A stream's files of the first epochs."""
        return [str(self._file(stream, epoch)) for epoch in range(epochs)]

    def show(self, query: Query, epoch: int, folder: Path) -> None:
        """Link the files that an epoch of the query takes into `folder`, one folder per stream."""
        for stream in query.streams:
            (folder / stream).mkdir(parents=True, exist_ok=True)
            file = self._file(stream, epoch)
            os.link(file, folder / stream / file.name)

    def _file(self, stream: str, epoch: int) -> Path:
        return self._folder / stream / f"{epoch:06}.parquet"


def _write(rows: pa.Table, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pending = path.with_suffix(".pending")
    pq.write_table(rows, pending)
    seconds = 1_700_000_000 + int(path.stem)
    os.utime(pending, (seconds, seconds))  # streaming processes the oldest file first
    pending.rename(path)


def queries() -> dict[str, Query]:
    """The queries by name, in the order of their numbers."""
    found = {}
    for statement in split_script((PIPELINE / "views.sql").read_text()):
        view = _VIEW.fullmatch(statement.text)
        assert view is not None, f"views.sql contains a statement that is no view: {statement.text[:80]}"
        inputs = set(_INPUT.findall(view["select"]))
        streams = tuple(stream for stream in STREAMS if stream in inputs)
        name = view["name"]
        found[name] = Query(name, view["select"], streams, SIDE_INPUT in inputs, _KEYS.get(name, ()))
    return found


def declarations(folder: Path) -> Mapping[str, str]:
    """The statements that declare the relations that queries read, by name.

    Args:
        folder: contains a folder of files per stream.
    """
    scripts = ((PIPELINE / name).read_text().replace("${data}", str(folder)) for name in ("sources.sql", "tables.sql"))
    texts = [statement.text for script in scripts for statement in split_script(script)]
    return {_RELATION.findall(text)[0]: text for text in texts}


def side_rows() -> pa.Table:
    """The rows of side_input, as pipelines/nexmark/generate.py makes them."""
    return pa.table({"key": pa.array(range(1_000), pa.int64()), "value": [str(key) for key in range(1_000)]})


#: Functions of Spark that DuckDB has under another name.
DUCKDB_MACROS = """
CREATE MACRO date_format(moment, format) AS
    strftime(moment, CASE format WHEN 'yyyy-MM-dd' THEN '%Y-%m-%d' WHEN 'HH:mm' THEN '%H:%M' END);
CREATE MACRO tumble(moment) AS time_bucket(INTERVAL 10 SECONDS, moment);
"""

#: The queries with windows of time, which DuckDB has no functions for. Their answers equal Spark's.
_IN_DUCKDB = {
    "q5": """
        WITH counts AS (
            SELECT time_bucket(INTERVAL 2 SECONDS, date_time) - k * INTERVAL 2 SECONDS AS start_time, auction,
                   count(*) AS num
            FROM bid, range(5) AS earlier(k) GROUP BY 1, 2
        )
        SELECT c.start_time, c.auction, c.num
        FROM counts c JOIN (SELECT start_time, max(num) AS most FROM counts GROUP BY start_time) m
          ON c.start_time = m.start_time AND c.num >= m.most""",
    "q7": """
        SELECT b.auction, b.price, b.bidder, b.date_time, b.extra
        FROM bid b JOIN (SELECT tumble(date_time) AS begins, max(price) AS most FROM bid GROUP BY 1) m
          ON b.price = m.most AND tumble(b.date_time) = m.begins""",
    "q8": """
        SELECT p.id, p.name, p.begins AS start_time
        FROM (SELECT id, name, tumble(date_time) AS begins FROM person) p
        JOIN (SELECT DISTINCT seller, tumble(date_time) AS begins FROM auction) a
          ON p.id = a.seller AND p.begins = a.begins""",
    "q11": """
        WITH marked AS (
            SELECT bidder, date_time, coalesce(date_time - lag(date_time) OVER w > INTERVAL 10 SECONDS, true) AS begins
            FROM bid WINDOW w AS (PARTITION BY bidder ORDER BY date_time)
        ), numbered AS (
            SELECT *, count(*) FILTER (WHERE begins) OVER (PARTITION BY bidder ORDER BY date_time) AS session
            FROM marked
        )
        SELECT bidder, min(date_time) AS start_time, max(date_time) + INTERVAL 10 SECONDS AS end_time,
               count(*) AS bid_count
        FROM numbered GROUP BY bidder, session""",
    "q12": """
        SELECT bidder, tumble(date_time) AS start_time, tumble(date_time) + INTERVAL 10 SECONDS AS end_time,
               count(*) AS bid_count
        FROM bid GROUP BY 1, 2, 3""",
}
