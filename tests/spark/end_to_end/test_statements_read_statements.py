"""Random scripts whose statements read what the earlier ones wrote, without an epoch in between, compared with DuckDB
after every statement, and views with DuckDB after the epoch.
"""

import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tussock.jobs.barriers.barrier import inject_barrier
from tussock.jobs.logical.statements import Delete
from tussock.jobs.reading.stored_rows import rows_at
from tussock.jobs.session import Session
from tussock.jobs.sql.change import TwoRowsOfOneKeyError, TwoSourceRowsError
from tussock.jobs.statements.open_transaction import TransactionError

pytestmark = pytest.mark.spark

SCRIPTS, QUICK = 200, 12  # the first ones are shorter
TABLES = {"k": "id int, a int, s string", "e": "g int, a int, s string", "d": "id int, a int, s string"}
VIEWS = {
    "by_g": "SELECT g, count(*) AS n, sum(a) AS a FROM e GROUP BY g",
    "matched": "SELECT k.id, d.a, k.s FROM k JOIN d ON k.id = d.id WHERE k.a IS NOT NULL",
}
_START: dict[str, list[tuple[int | None, int | None, str | None]]] = {
    "k": [(1, 1, "x"), (2, 2, "y"), (3, None, "z"), (4, 0, None)],
    "e": [(1, 1, "x"), (1, 1, "x"), (2, 3, "y"), (None, 0, None)],
    "d": [(2, 20, "d2"), (3, 30, "d3"), (7, 70, "d7")],
}

#: {n}, {m}: random numbers; {c}: the next unused number, so that new keys are distinct.
TEMPLATES = (
    "INSERT INTO k VALUES ({n}, {m}, 's{n}')",
    "INSERT INTO e VALUES ({n}, {m}, 'i'), ({n}, {m}, 'i')",
    "INSERT INTO d VALUES ({c}, {n}, 'c'), ({n}, {m}, NULL)",
    "INSERT INTO k SELECT id, a + {n}, s FROM k WHERE id > {m}",
    "INSERT INTO k SELECT id + {n}, a, 'moved' FROM d",
    "INSERT INTO k SELECT {c} + row_number() OVER (ORDER BY g NULLS FIRST, a NULLS FIRST, s NULLS FIRST), a, s FROM e",
    "INSERT INTO e SELECT * FROM e WHERE g = {n}",
    "INSERT INTO e SELECT id, a, s FROM k WHERE id NOT IN (SELECT id FROM d WHERE id IS NOT NULL)",
    "INSERT INTO e SELECT k.id, d.a, k.s FROM k JOIN d ON k.id = d.id",
    "INSERT INTO d SELECT {c}, max(a), min(s) FROM e",
    "UPDATE k SET a = {n} WHERE id = {m}",
    "UPDATE k SET a = a + 1, s = s || '+' WHERE a > {n}",
    "UPDATE k SET id = id + 100 WHERE a > {n}",
    "UPDATE k SET id = 5 - id WHERE id < 5 AND id > 0",
    "UPDATE k SET a = (SELECT sum(e.a) FROM e WHERE e.g = k.id) WHERE id < {n}",
    "UPDATE e SET a = a * 2 WHERE g = {n}",
    "UPDATE e SET g = (SELECT count(*) FROM k WHERE k.a = e.a)",
    "UPDATE e SET s = (SELECT max(s) FROM d) WHERE a IN (SELECT a FROM k)",
    "UPDATE d SET a = {n} WHERE EXISTS (SELECT 1 FROM e WHERE e.g = d.id)",
    "DELETE FROM k WHERE id = {n}",
    "DELETE FROM k WHERE id = (SELECT min(id) FROM k)",
    "DELETE FROM e WHERE a > {n} AND g < {m}",
    "DELETE FROM e WHERE NOT EXISTS (SELECT 1 FROM k WHERE k.id = e.g)",
    "DELETE FROM d WHERE id NOT IN (SELECT id FROM k)",
    "TRUNCATE TABLE d",
    """MERGE INTO k USING d ON k.id = d.id WHEN MATCHED AND d.a > {n} THEN DELETE
       WHEN MATCHED THEN UPDATE SET a = d.a, s = d.s WHEN NOT MATCHED THEN INSERT (id, a, s) VALUES (d.id, d.a, 'm')""",
    """MERGE INTO e USING (SELECT DISTINCT id, a FROM d) n ON e.g = n.id WHEN MATCHED THEN UPDATE SET a = n.a
       WHEN NOT MATCHED THEN INSERT (g, a) VALUES (n.id, n.a)""",
    """MERGE INTO d USING (SELECT id + {n} AS id, a FROM k) x ON d.id = x.id
       WHEN MATCHED THEN UPDATE SET a = x.a WHEN NOT MATCHED BY SOURCE THEN DELETE""",
)


@dataclass(slots=True)
class Judge:
    """DuckDB with the same tables. A statement that leaves two rows with one key fails, as in Tussock."""

    db: duckdb.DuckDBPyConnection = field(default_factory=duckdb.connect)

    def rows(self, sql: str) -> list[str]:
        return sorted(map(repr, self.db.execute(sql).fetchall()))

    def run(self, sql: str) -> bool:
        """Run a statement, and return whether it is allowed."""
        before = {name: self.db.execute(f"SELECT * FROM {name}").to_arrow_table() for name in ("k", "d")}
        try:
            if sql.startswith(("INSERT INTO k", "INSERT INTO d")):  # an INSERT replaces the row of its key
                name, select = sql[12], sql[13:]
                self.db.execute(f"CREATE OR REPLACE TEMP TABLE new AS SELECT * FROM ({select}) AS t(id, a, s)")
                self.db.execute(f"DELETE FROM {name} WHERE id IN (SELECT id FROM new)")
                self.db.execute(f"INSERT INTO {name} SELECT DISTINCT ON (id) * FROM new")
            else:
                self.db.execute(sql)
        except duckdb.Error as err:
            if "MERGE" not in sql or "multiple" not in str(err):
                raise
            return False
        for name, rows in before.items():
            if self.db.execute(f"SELECT count(*) <> count(DISTINCT id) FROM {name}").fetchall() == [(True,)]:
                self.db.register("rows_before", rows)
                self.db.execute(f"DELETE FROM {name}; INSERT INTO {name} SELECT * FROM rows_before")
                return False
        return True


@pytest.fixture(scope="module")
def shared(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with Session(str(tmp_path_factory.mktemp("scripts") / "store"), spark, units=2, runner="local", workers=1) as made:
        made.execute(
            "; ".join(f"CREATE TABLE {n} ({c}{'' if n == 'e' else ', PRIMARY KEY (id)'})" for n, c in TABLES.items())
        )
        made.execute("; ".join(f"CREATE MATERIALIZED VIEW {name} AS {select}" for name, select in VIEWS.items()))
        made.flush()
        yield made


@pytest.fixture
def session(shared: Session) -> Iterator[Session]:
    """The shared session. A script that fails leaves no transaction and no statement to the next one."""
    yield shared
    with suppress(TransactionError):  # none is open
        shared.execute("ROLLBACK")
    if shared.meta.log_end() > shared.meta.read_latest().log_end:
        shared.flush()


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=() if seed < QUICK else pytest.mark.deep) for seed in range(SCRIPTS)]
)
def test_a_script_that_reads_what_it_wrote_leaves_the_rows_of_duckdb(seed: int, session: Session) -> None:
    random_ = random.Random(seed)
    judge = Judge()
    for name, columns in TABLES.items():
        session._writer.log_and_answer(f"TRUNCATE TABLE {name}", Delete(name, None))
        names = [column.split()[0] for column in columns.split(", ")]
        rows = pa.table(dict(zip(names, map(list, zip(*_START[name], strict=True)), strict=True)))
        session.insert(name, rows)
        judge.db.register("rows_before", rows)
        judge.db.execute(f"CREATE TABLE {name} ({columns}); INSERT INTO {name} SELECT * FROM rows_before")
    if random_.random() < 0.5:
        session.flush()
    spent, ran, left = 1000 * (seed + 1), list[str](), 0
    for _ in range(4 if seed < QUICK else 8):
        spent += 50
        sql = random_.choice(TEMPLATES).format(n=random_.randrange(8), m=random_.randrange(8), c=spent)
        if left == 0 and random_.random() < 0.25:
            left = random_.randrange(1, 4)
            _both(session, judge, ran, "BEGIN")
        elif left == 0 and random_.random() < 0.1:
            inject_barrier(session.meta)  # an epoch has begun and is not committed
        ran.append(sql)
        if judge.run(sql):
            session.execute(sql)
        else:
            with pytest.raises((TwoRowsOfOneKeyError, TwoSourceRowsError)):
                session.execute(sql)
            if left:
                left = 0
                _both(session, judge, ran, "ROLLBACK")
        _require_equal(session, judge, ran, pending=True)
        if left:
            left -= 1
            if left == 0:
                _both(session, judge, ran, random_.choice(("COMMIT", "COMMIT", "ROLLBACK")))
                _require_equal(session, judge, ran, pending=True)
    if left:
        _both(session, judge, ran, "COMMIT")
    session.flush()
    if session.meta.log_end() > session.meta.read_latest().log_end:
        session.flush()  # the first one finished the epoch that had begun
    _require_equal(session, judge, ran, pending=False)
    for name, select in VIEWS.items():
        found = sorted(repr(tuple(r.values())) for r in session.read(name).to_pylist())
        assert found == judge.rows(select), (name, ran)


def _both(session: Session, judge: Judge, ran: list[str], word: str) -> None:
    ran.append(word)
    judge.db.execute(word)
    session.execute(word)


def _require_equal(session: Session, judge: Judge, ran: list[str], *, pending: bool) -> None:
    if pending:  # as Session.read(…, pending=True), for all tables at once
        waiting = session._statement_runner._waiting_log()
        with session._statements.read_pending_rows(waiting, [*TABLES]) as seen:
            live = {r.name: r for r in seen.version.catalog.live_relations()}
            at = seen.version, seen.sight.epoch, seen.rows
            found = {t: rows_at(session.meta.objects, at[0], live[t], at[1], None, at[2]).read_all() for t in TABLES}
    else:
        found = {name: session.read(name) for name in TABLES}
    for name, rows in found.items():
        shown = sorted(repr(tuple(r.values())) for r in rows.to_pylist())
        assert shown == judge.rows(f"SELECT * FROM {name}"), (name, ran)
