"""Attempts: a repeated task, in another order or beside others, returns the same bytes, and no row is lost."""

import random
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.support.exactly_once import workload
from tests.support.exactly_once.local_engine import UnkindShuffle
from tests.support.truth.compare import assert_same_answer
from tussock.jobs.session import Session

KEYS = 40
EPOCHS = 6


@pytest.mark.spark
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.deep), pytest.param(3, marks=pytest.mark.deep)])
@pytest.mark.deep
def test_every_task_returns_the_same_bytes_for_any_order_of_its_cells(
    seed: int, spark: SparkSession, tmp_path: Path
) -> None:
    """UnkindShuffle runs every task twice and compares. The rows have to be right as well."""
    shuffle = UnkindShuffle(seed)
    data, store = tmp_path / "data", tmp_path / "store"
    workload.write_files(data, 1)
    only_spark_reads = ("notes", "words", "above_mean", "rejected")
    with Session(str(store), spark, units=4, runner=shuffle) as session:
        session.execute(_without(workload.first_statements(data), only_spark_reads), base=data)
        session.flush(moment=workload.BEFORE)
        session.execute(workload.second_statements())
        workload.write_files(data, 2)
        workload.correct_files(data)
        session.flush(moment=workload.NOW)
        for name, expected in workload.truth(spark, data).items():
            if name not in only_spark_reads:
                assert_same_answer(workload.read(session.meta, name), expected, name)
    assert shuffle.moved > 40  # cells, each of many rows


def _without(script: str, names: tuple[str, ...]) -> str:
    return "\n".join(line for line in script.splitlines() if not any(f" {name} " in line for name in names))


@pytest.mark.spark
@pytest.mark.parametrize("units", [pytest.param(2, marks=pytest.mark.deep), 3, pytest.param(4, marks=pytest.mark.deep)])
def test_a_join_key_that_moves_between_units_keeps_its_row(units: int, spark: SparkSession, tmp_path: Path) -> None:
    """An update that moves a row sends its delete and its insert to two different units; hundreds, in any order."""
    shuffle, rng = UnkindShuffle(units), random.Random(units)
    left = {i: (i * 7) % KEYS for i in range(60)}
    right = {i: (i * 11) % KEYS for i in range(60)}
    with Session(str(tmp_path / "store"), spark, units=units, runner=shuffle) as session:
        session.execute(
            "CREATE TABLE l (id int, j int, PRIMARY KEY (id)); CREATE TABLE r (id int, j int, PRIMARY KEY (id));"
            "CREATE MATERIALIZED VIEW joined AS SELECT l.id AS lid, r.id AS rid, l.j FROM l JOIN r ON l.j = r.j;"
            "CREATE MATERIALIZED VIEW per_key AS SELECT j, count(*) AS n FROM joined GROUP BY j;"
            "CREATE MATERIALIZED VIEW again AS SELECT a.lid, b.n FROM joined a JOIN per_key b ON a.lid = b.n"
        )
        session.execute(
            "; ".join(
                f"INSERT INTO {t} VALUES " + ", ".join(map(str, rows.items())) for t, rows in _tables(left, right)
            )
        )
        moved = 0
        for number in range(EPOCHS):
            for table, rows in _tables(left, right):
                step, of, part = rng.randint(1, KEYS - 1), rng.randint(2, 4), rng.randint(0, 1)
                session.execute(f"UPDATE {table} SET j = (j + {step}) % {KEYS} WHERE id % {of} = {part}")
                for i in (i for i in rows if i % of == part):
                    rows[i] = (rows[i] + step) % KEYS
                    moved += 1
                one = rng.randint(0, 59)  # out and back, or on to a third place, within the epoch
                session.execute(
                    f"UPDATE {table} SET j = {number} WHERE id = {one}; DELETE FROM {table} WHERE id = {one}"
                )
                session.execute(f"INSERT INTO {table} VALUES ({one}, {number + 1})")
                rows[one] = number + 1
            session.flush()
            _compare(session, left, right)
    assert moved > 30 * EPOCHS


def _tables(left: dict[int, int], right: dict[int, int]) -> tuple[tuple[str, dict[int, int]], ...]:
    return ("l", left), ("r", right)


def _compare(session: Session, left: dict[int, int], right: dict[int, int]) -> None:
    """The views against a join in plain Python."""
    pairs = [(a, b, j) for a, j in left.items() for b, k in right.items() if j == k]
    counts = {j: sum(p[2] == j for p in pairs) for j in {p[2] for p in pairs}}
    again = [(a, n) for a, _, _ in pairs for n in counts.values() if a == n]
    for name, expected in (("joined", pairs), ("per_key", list(counts.items())), ("again", again)):
        found = workload.read(session.meta, name)
        assert sorted(_rows(found)) == sorted(expected), name


def _rows(table: pa.Table) -> list[tuple[int, ...]]:
    return list(zip(*(c.to_pylist() for c in table.columns), strict=True))
