"""Compare two DataFrames as multisets of rows in Spark. Only a few of the rows that differ are collected.

Each row is reduced to a hash of its exact part and to its floats (canonical.py). Both sides count their hashes. A hash
that occurs equally often on both sides is equal. A 64-bit hash hides a wrong row only if a missing row has the same
hash: one chance in 2**64 per pair.

The remaining rows that contain floats are paired within the same exact part, in the order of their floats. A pair is
equal if each float differs by at most 1e-9 of the greatest of three values: the two floats, and the largest float in
the input of the view. Spark adds floats in the order in which it reads them, so the last digits of its sums differ
from run to run. If values cancel, the number of reliable digits depends on the size of the inputs.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DataType, StructType, VariantType

from tussock.jobs.verify.canonical import exact_hash, floats_of, has_floats
from tussock.jobs.verify.record import Example

TOLERANCE = 1e-9
EXAMPLES = 5
_FETCHED = 200  # rows from which the examples are chosen

Text = dict[str, str | None]
_HASHES = ("exact", "full", "key")


@dataclass(frozen=True, slots=True)
class Columns:
    """The compared columns, and the positions of the ones that identify a row."""

    names: tuple[str, ...]
    kinds: tuple[DataType, ...]
    key: tuple[int, ...]

    @classmethod
    def of_schema(cls, schema: StructType, key: Collection[str]) -> "Columns":
        """All columns of a frame."""
        names = tuple(field.name for field in schema)
        return cls(names, tuple(field.dataType for field in schema), tuple(i for i, n in enumerate(names) if n in key))

    @property
    def texts(self) -> list[tuple[str, DataType]]:
        """The names that `number_columns` gives to the columns, with their types."""
        return [(f"c{i}", kind) for i, kind in enumerate(self.kinds)]

    def at_positions(self, places: Sequence[int]) -> "Columns":
        """Some of the columns."""
        key = tuple(new for new, old in enumerate(places) if old in self.key)
        return Columns(tuple(self.names[i] for i in places), tuple(self.kinds[i] for i in places), key)

    def number_columns(self, frame: DataFrame) -> DataFrame:
        """The frame with its columns renamed to c0, c1, …."""
        return frame.toDF(*(f"c{i}" for i in range(len(self.names))))


class ViewDifference(NamedTuple):
    """The result of a comparison: the rows that one side has more often than the other."""

    missing: int
    extra: int
    rounded: int  # rows that are equal apart from the rounding of floats
    examples: tuple[Example, ...]


class Digests:
    """The hashes of a frame's rows, computed once and cached by Spark until `close`."""

    def __init__(self, frame: DataFrame, columns: Columns) -> None:
        """Compute the hashes. Cost: one evaluation of the frame.

        Args:
            frame: with columns c0, c1, ….
        """
        began = monotonic()
        self._frame, self._columns = frame, columns
        self.rows_of_it = frame.select(*_digest_columns(columns)).persist()
        self.rows = self.rows_of_it.count()
        self.seconds = monotonic() - began

    def close(self) -> None:
        """Remove the hashes from Spark's cache."""
        self.rows_of_it.unpersist()

    def texts_of_rows(
        self, keys: Collection[int], exact: Collection[int], full: Collection[int]
    ) -> list[tuple[int, Text]]:
        """(hash of the key, values as text) of the rows with these hashes. Cost: another evaluation of the frame."""
        hashed = self._frame.select("*", *_digest_columns(self._columns))
        matching_rows = hashed.where(F.col("key").isin(list(keys)) & F.col("exact").isin(list(exact)))
        values = [_value_text(F.col(f"c{i}"), kind).alias(f"t{i}") for i, kind in enumerate(self._columns.kinds)]
        rows = matching_rows.select("key", "full", *values).orderBy("key", "full").limit(_FETCHED).collect()
        known = [
            row for row in rows if row["full"] in full
        ] or rows  # the last digits of Spark's floats may differ this time
        return [(row["key"], {n: row[f"t{i}"] for i, n in enumerate(self._columns.names)}) for row in known]


def compare_digests(
    ours: Digests, theirs: Digests, columns: Columns, largest_input: Callable[[], float]
) -> ViewDifference:
    """Compare two sides.

    Args:
        largest_input: the largest float that the view reads; called only if floats differ.

    Cost: one exchange of hashes. If rows differ, one more, and an evaluation of both sides for the examples.
    """
    counted = ours.rows_of_it.withColumn("copies", F.lit(1)).unionAll(theirs.rows_of_it.withColumn("copies", F.lit(-1)))
    kept = [F.first(name).alias(name) for name in counted.columns if name not in ("full", "copies")]
    unequal = counted.groupBy("full").agg(F.sum("copies").alias("copies"), *kept).where("copies <> 0").persist()
    try:
        if not (most := unequal.count()):
            return ViewDifference(0, 0, 0, ())
        left, rounded = unequal, 0
        if any(has_floats(kind) for kind in columns.kinds):
            before = _total_copies(unequal)
            left = _rows_without_partner(unequal, largest_input()).persist()
            rounded = before - _total_copies(left)
            most = left.count()
        if not most:
            return ViewDifference(0, 0, rounded // 2, ())
        sums = left.agg(F.sum(F.expr("greatest(copies, 0)")), F.sum(F.expr("greatest(-copies, 0)"))).first()
        assert sums is not None
        return ViewDifference(int(sums[1]), int(sums[0]), rounded // 2, _choose_examples(left, ours, theirs, columns))
    finally:
        unequal.unpersist()


def _digest_columns(columns: Columns) -> list[Column]:
    exact, floats = exact_hash(columns.texts), floats_of(columns.texts)
    key = exact_hash([columns.texts[i] for i in columns.key])
    if floats is None:
        return [F.expr(exact).alias("exact"), F.expr(exact).alias("full"), F.expr(key).alias("key")]
    full = f"xxhash64({exact}, {floats})"
    return [
        F.expr(text).alias(name) for text, name in zip((exact, full, key, floats), (*_HASHES, "floats"), strict=True)
    ]


def _total_copies(rows: DataFrame) -> int:
    total = rows.agg(F.sum(F.abs("copies"))).first()
    return 0 if total is None or total[0] is None else int(total[0])


def _rows_without_partner(unequal: DataFrame, largest: float) -> DataFrame:
    """The rows without a partner on the other side whose floats are close."""
    one_each = unequal.selectExpr("*", "sign(copies) AS side", "explode(sequence(1, CAST(abs(copies) AS int))) AS copy")
    order = [F.expr("transform(floats, x -> format_string('%.6e', x))"), F.col("floats"), F.col("full"), F.col("copy")]
    place = F.row_number().over(Window.partitionBy("exact", "side").orderBy(*order))
    ranked = one_each.select("exact", "full", "key", "floats", "side", place.alias("place"))
    mine, yours = (
        ranked.where(f"side = {side}").select("exact", "place", F.struct("full", "key", "floats").alias(name))
        for side, name in ((1, "ours"), (-1, "spark"))
    )
    pairs = mine.join(yours, ["exact", "place"], "full_outer")
    bound = f"{TOLERANCE!r}D * greatest(abs(x), abs(y), {largest!r}D)"
    close = (
        f"forall(zip_with(ours.floats, spark.floats, (x, y) -> (x IS NULL AND y IS NULL) OR abs(x - y) <= {bound}), "
        "c -> c)"
    )
    apart = pairs.where(f"NOT coalesce({close}, false)")
    return (
        apart.selectExpr("exact", "stack(2, ours, 1, spark, -1) AS (found, copies)")
        .where("found IS NOT NULL")
        .selectExpr("found.full AS full", "copies", "exact", "found.key AS key", "found.floats AS floats")
    )


def _choose_examples(left: DataFrame, ours: Digests, theirs: Digests, columns: Columns) -> tuple[Example, ...]:
    """A few rows that differ, chosen by the smallest hashes of keys, so that a repeated run shows the same rows."""
    keys = [row["key"] for row in left.select("key").distinct().orderBy("key").limit(EXAMPLES).collect()]
    rows = left.where(F.col("key").isin(keys)).select("exact", "full", "key", "copies").limit(_FETCHED).collect()
    sides = []
    for side, sign in ((ours, 1), (theirs, -1)):
        mine = [row for row in rows if row["copies"] * sign > 0]
        exact, full = {row["exact"] for row in mine}, {row["full"] for row in mine}
        sides.append(side.texts_of_rows({row["key"] for row in mine}, exact, full) if mine else [])
    examples: list[Example] = []
    for key in keys:
        its, sparks = ([text for k, text in side if k == key] for side in sides)
        for i in range(max(len(its), len(sparks))):
            of_view, of_spark = (side[i] if i < len(side) else Text() for side in (its, sparks))
            named = {columns.names[c]: (of_view or of_spark)[columns.names[c]] for c in columns.key}
            examples.append(Example(named, of_view, of_spark))
    return tuple(examples[:EXAMPLES])


def _value_text(value: Column, kind: DataType) -> Column:
    match kind:
        case BinaryType():
            return F.hex(value)
        case VariantType():
            return F.to_json(value)
        case _:
            return value.cast("string")


def varying_columns(first: DataFrame, again: DataFrame, columns: Columns) -> tuple[int, ...]:
    """The positions of columns in which two answers to one query differ. All positions if only whole rows differ.

    Args:
        first, again: with columns c0, c1, …; Spark's answers over the same rows in two orders.

    Cost: an evaluation of each, and a small job per column.
    """
    hashes = [exact_hash([one]) for one in columns.texts]
    rounded = [floats_of([one]) for one in columns.texts]
    texts = [
        h if f is None else f"xxhash64({h}, transform({f}, x -> format_string('%.6e', x)))"
        for h, f in zip(hashes, rounded, strict=True)
    ]
    sides = [
        frame.selectExpr(*(f"{text} AS h{i}" for i, text in enumerate(texts))).persist() for frame in (first, again)
    ]
    try:
        positions = tuple(i for i in range(len(texts)) if not _has_same_rows(sides, [f"h{i}"]))
        rest = [f"h{i}" for i in range(len(texts)) if i not in positions]
        if rest and not _has_same_rows(sides, rest):
            return tuple(range(len(texts)))
        return positions
    finally:
        for side in sides:
            side.unpersist()


def _has_same_rows(sides: Sequence[DataFrame], names: Sequence[str]) -> bool:
    one, other = (side.select(*names) for side in sides)
    return one.exceptAll(other).isEmpty() and other.exceptAll(one).isEmpty()
