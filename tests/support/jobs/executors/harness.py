"""One executor over real state tables, epoch by epoch, and chunks as text."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import yaml

from tests.support.statestore.table.stores import BucketStore
from tussock.jobs.chunks.chunk import chunk_schema
from tussock.jobs.executors.operator import Actor, MakesPieces
from tussock.jobs.executors.registry import Node
from tussock.jobs.kernels.kernel import Kernel
from tussock.statestore.objectstore.base import ObjectStore
from tussock.statestore.table.row_cache import RowCache, RowsOf
from tussock.statestore.table.state_table import StateTable

VNODES = 16
NAN = float("nan")
Row = tuple[Any, ...]


@cache
def kernel() -> Kernel:
    return Kernel()


class Bench:
    """An executor that is created for each epoch, as actors do it.

    Its tables are committed in between. The rows that its process remembers stay.
    """

    def __init__(self, node: Node, objects: ObjectStore, remembered: RowCache | None = None) -> None:
        self.node = node
        self.remembered = RowCache() if remembered is None else remembered
        self.store = BucketStore(objects)
        self.schemas = [msgspec.structs.replace(s, table_id=i + 1) for i, s in enumerate(node.state_tables())]
        self.epoch = 0
        self.actor = Actor(kernel(), range(VNODES), VNODES)

    def at(self, moment: int) -> None:
        """Set the next epoch's moment (Unix microseconds); the epoch before had the previous one."""
        self.actor = replace(self.actor, moment_before=self.actor.moment, moment=moment)

    def tables(self) -> list[StateTable]:
        return [
            StateTable(
                schema,
                self.store.reader,
                self.epoch,
                VNODES,
                self.remembered.open_unit(
                    RowsOf("bench", schema.table_id, 0), range(VNODES), self.epoch, self.epoch + 1
                ),
            )
            for schema in self.schemas
        ]

    def apply(self, *chunks: pa.Table) -> pa.Table:
        tables = self.tables()
        out = self.node.make_executor(tables, self.actor).apply(*chunks)
        assert out.schema == chunk_schema(self.node.types), out.schema
        self._commit(tables)
        return out

    def pieces(self, *chunks: pa.Table) -> list[pa.Table]:
        """Like `apply`, but in the pieces that an actor passes on."""
        tables = self.tables()
        executor = self.node.make_executor(tables, self.actor)
        assert isinstance(executor, MakesPieces)
        out = list(executor.make_pieces(*chunks))
        self._commit(tables)
        return out

    def _commit(self, tables: list[StateTable]) -> None:
        self.epoch += 1
        for table in tables:
            self.store.ingest(table.seal_changes(), self.epoch)


def chunk_of(types: Sequence[str], rows: Iterable[tuple[Row, int]]) -> pa.Table:
    """A chunk from (row, weight) pairs."""
    pairs = list(rows)
    columns = [pa.array([row[i] for row, _ in pairs], chunk_schema(types).field(i).type) for i in range(len(types))]
    return pa.table([*columns, pa.array([w for _, w in pairs], pa.int64())], schema=chunk_schema(types))


def pairs_of(chunk: pa.Table) -> list[tuple[Row, int]]:
    """The chunk as (row, weight) pairs.

    Every NaN is the same object, so that it equals itself. Lists become tuples, so that they can be counted.
    """
    columns = [[_plain(v) for v in column.to_pylist()] for column in chunk.columns[:-1]]  # by place: names may repeat
    rows = list(zip(*columns, strict=True)) if columns else [()] * chunk.num_rows
    return list(zip(rows, chunk.column(chunk.num_columns - 1).to_pylist(), strict=True))


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_plain(element) for element in value)
    return NAN if isinstance(value, float) and value != value else value


def integrate(content: Counter[Row], chunk: pa.Table) -> Counter[Row]:
    """The rows of a stream after a chunk; no count may be negative."""
    after = Counter(content)
    for row, weight in pairs_of(chunk):
        after[row] += weight
    assert not [row for row, n in after.items() if n < 0], "a row went that was not there"
    return Counter({row: n for row, n in after.items() if n})


def assert_netted(chunk: pa.Table, key: Sequence[int]) -> None:
    """At most one -old and one +new per stream key, and never the same row."""
    seen = Counter((tuple(row[k] for k in key), weight) for row, weight in pairs_of(chunk))
    assert all(n == 1 and abs(w) == 1 for (_, w), n in seen.items()), "not netted"
    rows = Counter(repr(row) for row, _ in pairs_of(chunk))  # as text: -0.0 and 0.0 are different rows
    assert all(n == 1 for n in rows.values()), "a row both goes and comes"


# --- case files ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A node, its input and its output.

    `sql` is the batch query over `input` (of a join: `left_input`, `right_input`); `$moment` in it is the epoch's
    moment.
    """

    name: str
    node: Node
    sql: str
    input_types: tuple[tuple[str, ...], ...]
    steps: tuple[tuple[tuple[str, ...], str, int], ...]  # input, output, and the epoch's moment (Unix microseconds)


CASES = Path(__file__).parent / "cases"


def case_files() -> list[str]:
    """The names of all files below `cases/`."""
    return sorted(file.name for file in CASES.glob("*.yaml"))


def load_cases(file: str) -> list[Case]:
    """Cases of a file below `cases/`. `node` has the catalog's stored form."""
    cases = []
    for entry in yaml.safe_load((CASES / file).read_text()):
        node = msgspec.convert(entry["node"], Node)
        inputs = tuple(tuple(t) for t in entry["inputs"])
        steps = tuple(
            (tuple(s["input"] if isinstance(s["input"], list) else [s["input"]]), s["output"], s.get("moment", 0))
            for s in entry["steps"]
        )
        cases.append(Case(entry["name"], node, entry["sql"], inputs, steps))
    return cases


def parse_chunk(text: str, types: Sequence[str]) -> pa.Table:
    """`+1 | 7 east ; -1 | 7 NULL` as a chunk; values are separated by spaces."""
    pairs = []
    for item in filter(None, (part.strip() for part in text.split(";"))):
        weight, _, values = item.partition("|")
        words = values.split()
        assert len(words) == len(types), item
        pairs.append((tuple(_value(w, t) for w, t in zip(words, types, strict=True)), int(weight)))
    return chunk_of(types, pairs)


def show_chunk(chunk: pa.Table) -> str:
    """The inverse of parse_chunk: deletes before inserts, each sorted by text."""
    lines = sorted((w, " ".join("NULL" if v is None else str(v) for v in row)) for row, w in pairs_of(chunk))
    return " ; ".join(f"{w:+d} | {text}".rstrip() for w, text in lines)


def _value(word: str, type_name: str) -> Any:
    if word == "NULL":
        return None
    if type_name in ("float", "double"):
        return float(word)
    if type_name.startswith("decimal"):
        return Decimal(word)
    if type_name == "boolean":
        return word == "True"
    if type_name == "date":
        return date.fromisoformat(word)
    return word if type_name == "string" else int(word)
