"""SELECTs that only name columns of one relation. Stored rows answer them as Spark does, without a JVM."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from tussock.jobs.catalog.definition import stores_rows
from tussock.jobs.logical.relation_names import DEFAULT_SCHEMA, resolve_name
from tussock.jobs.logical.script import split_script
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.logical.tokens import Token, tokens_of
from tussock.jobs.reading.stored_rows import StoredRows
from tussock.statestore.meta.catalog import Catalog, Relation
from tussock.statestore.meta.sight import Sight

_COUNT = ["COUNT", "(", "*", ")"]
_NOT_COLUMNS = {"ALL", "DISTINCT", "TRUE", "FALSE", "NULL"}  # Spark reads a quantifier or a literal


@dataclass(frozen=True, slots=True)
class PlainSelect:
    """`SELECT * | columns | count(*) FROM relation [LIMIT n]`.

    Args:
        columns: as written; None: all, or the number of rows if `counts`.
        limit: None: all rows.
    """

    relation: str
    columns: tuple[str, ...] | None
    counts: bool
    limit: int | None

    @contextmanager
    def open_rows(self, stored: StoredRows, epoch: int | Sight | None) -> Iterator[pa.RecordBatchReader]:
        """Yield the answer, batch by batch. Warns and raises as `StoredRows.reader`."""
        with stored.reader(self.relation, self.columns, epoch) as rows:
            if self.counts:
                total = pa.record_batch({"count(1)": pa.array([sum(b.num_rows for b in rows)], pa.int64())})
                rows = pa.RecordBatchReader.from_batches(total.schema, [total])
            elif self.columns is not None:  # Spark names them as written
                schema = pa.schema([f.with_name(n) for f, n in zip(rows.schema, self.columns, strict=True)])
                rows = pa.RecordBatchReader.from_batches(schema, _rename_columns(rows, schema))
            yield rows if self.limit is None else limit_rows(rows, self.limit)


def plain_select(catalog: Catalog, sql: str, schema: str = DEFAULT_SCHEMA) -> PlainSelect | None:
    """The query, if it is plain, and its relation is a table or view of the catalog with these columns. Else None.

    Args:
        schema: of a name without one.
    """
    statements = split_script(sql)
    if len(statements) != 1:
        return None
    tokens = tokens_of(SourceText(statements[0].text))
    words = [t.text.upper() for t in tokens]
    if words[:1] != ["SELECT"] or words.count("FROM") != 1:
        return None
    begin = words.index("FROM")
    after = tokens[begin + 1 :]
    limit: int | None = None
    if words[-2] == "LIMIT" and after[-1].text.isascii() and after[-1].text.isdigit():
        limit, after = int(after[-1].text), after[:-2]
    relation = _find_relation(catalog, after, schema)
    if relation is None:
        return None
    chosen = words[1:begin]
    if chosen == _COUNT:
        return None if limit == 0 else PlainSelect(relation.name, None, True, None)
    if chosen == ["*"]:
        return PlainSelect(relation.name, None, False, limit)
    columns = _listed_columns(relation, tokens[1:begin])
    return None if columns is None else PlainSelect(relation.name, columns, False, limit)


def limit_rows(rows: pa.RecordBatchReader, limit: int) -> pa.RecordBatchReader:
    """The first rows of a reader. Reads no batch after them."""

    def limit_batches() -> Iterator[pa.RecordBatch]:
        left = limit
        while left > 0 and (batch := next(iter(rows), None)) is not None:
            yield batch.slice(0, left)
            left -= batch.num_rows

    return pa.RecordBatchReader.from_batches(rows.schema, limit_batches())


def _find_relation(catalog: Catalog, tokens: list[Token], schema: str) -> Relation | None:
    parts = tokens[::2]
    if len(tokens) not in (1, 3) or any(t.kind != "word" for t in parts) or any(t.text != "." for t in tokens[1::2]):
        return None
    name = resolve_name([part.text for part in parts], schema)
    return next((r for r in catalog.live_relations() if r.name == name and stores_rows(r)), None)


def _listed_columns(relation: Relation, tokens: list[Token]) -> tuple[str, ...] | None:
    """The columns of a list of names, as written. None if it contains something else."""
    names = [t.text for t in tokens[::2]]
    known = {c.name.lower() for c in relation.columns} - {w.lower() for w in _NOT_COLUMNS}
    if len(tokens) % 2 == 0 or any(t.kind != "word" or t.text.lower() not in known for t in tokens[::2]):
        return None
    separated = all(t.text == "," for t in tokens[1::2])
    return tuple(names) if separated and len({n.lower() for n in names}) == len(names) else None


def _rename_columns(rows: pa.RecordBatchReader, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in rows:
        yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)
