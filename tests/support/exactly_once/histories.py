"""Random histories of two tables and a source of Parquet files, run without a JVM.

Spark binds statements and views once; histories append them to the logs of many stores. Only the seed determines a
history. Each run of it therefore writes SSTs of the same names, which are digests of their bytes: in any process, with
tasks in any order or repeated. DuckDB computes the expected rows of the views from rows that plain Python keeps.

    python -m tests.support.exactly_once.histories BOUND STORE SEED EPOCHS UNITS      prints the names of the SSTs
"""

import json
import os
import random
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tussock.jobs.barriers.moment import InputRequest
from tussock.jobs.driver.epoch import next_epoch
from tussock.jobs.driver.publish import publish_epoch
from tussock.jobs.driver.runner import LevelRunner, LocalRunner
from tussock.jobs.logical.statements import Insert
from tussock.jobs.reading.reader import scan_relation
from tussock.jobs.session import Session
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore import local
from tussock.statestore.objectstore.base import ObjectInfo
from tussock.statestore.objectstore.open import open_object_store
from tussock.statestore.types import arrow_type

Row = dict[str, Any]

CLOCK_MS = 1_700_000_000_000
FILE_TIME_NS = 10**18
COLUMNS = "id int, cur string, ext string, seq int, v double, day date, amt decimal(10,2)"
SCHEMA = pa.schema(
    [
        ("id", pa.int32()),
        ("cur", pa.string()),
        ("ext", pa.string()),
        ("seq", pa.int32()),
        ("v", pa.float64()),
        ("day", pa.date32()),
        ("amt", pa.decimal128(10, 2)),
    ]
)
RATES = pa.schema([("cur", pa.string()), ("vf", pa.date32()), ("rate", pa.float64())])

_KEYED, _BOTH = "(SELECT * FROM p UNION ALL SELECT * FROM t)", "(SELECT * FROM p UNION ALL SELECT * FROM u)"
_ORDER = "ORDER BY cur DESC NULLS LAST, ext DESC, seq DESC, v"
VIEWS = {
    "numbered": f"SELECT cur, ext, seq, v, day, row_number() OVER (PARTITION BY day {_ORDER}) AS rn FROM {_BOTH}",
    "first_of_day": "SELECT cur, ext, seq, v, day FROM "
    f"(SELECT *, row_number() OVER (PARTITION BY day {_ORDER}) AS rn FROM {_KEYED}) WHERE rn = 1",
    "running": "SELECT cur, day, id, sum(amt) OVER (PARTITION BY cur ORDER BY day, id) AS s, "
    f"rank() OVER (PARTITION BY cur ORDER BY day, id) AS r FROM {_KEYED}",
    "converted": "SELECT id, cur, day, amt * "
    "(SELECT max_by(rate, struct(vf, rate)) FROM rates r WHERE r.cur = t.cur AND r.vf <= t.day) AS c FROM t",
    "distinct_n": "SELECT cur, count(DISTINCT v) AS dv, count(DISTINCT ext) AS de, count(*) AS n, "
    f"sum(DISTINCT amt) AS sa FROM {_BOTH} GROUP BY cur",
    "joined": "SELECT p.cur AS pc, p.ext, t.cur AS tc, t.amt, t.v FROM p "
    "FULL OUTER JOIN t ON p.id = t.id AND p.cur <=> t.cur",
    "anti": "SELECT id, cur, v FROM p WHERE NOT EXISTS (SELECT 1 FROM t WHERE t.id = p.id AND t.ext = p.ext)",
    "by_first": "SELECT f.day, f.cur, d.n, d.de FROM first_of_day f JOIN distinct_n d ON f.cur <=> d.cur",
    "top": f"SELECT id, cur, ext, seq, v, day, amt FROM {_KEYED} "
    "ORDER BY amt DESC NULLS LAST, id, cur, ext, seq, v, day LIMIT 5",
    "listed": f"SELECT day, cur, count(*) AS n FROM {_KEYED} "
    "WHERE cur IN ('EUR', 'USD', 'GBP', 'CHF', 'SEK') GROUP BY day, cur",
}
#: In histories of two schemas, the names of some relations. Each is the name of a relation of the default schema too.
IN_TWO_SCHEMAS = {"u": "b.t", "running": "b.numbered", "distinct_n": "b.first_of_day", "anti": "b.joined"}
_IN_DUCKDB = (
    ("<=>", "IS NOT DISTINCT FROM"),
    ("max_by(rate, struct(vf, rate))", "arg_max(rate, struct_pack(a := vf, b := rate))"),
)

Condition = tuple[str, Callable[[Row], bool]]
Assignment = tuple[str, Callable[[Row], Row]]
CONDITIONS: list[Condition] = [
    ("cur IS NULL", lambda x: x["cur"] is None),
    ("cur = 'EUR'", lambda x: x["cur"] == "EUR"),
    ("id = 3", lambda x: x["id"] == 3),
    ("id < 10 AND seq IS NOT NULL", lambda x: x["id"] < 10 and x["seq"] is not None),
    ("amt > 3", lambda x: x["amt"] is not None and x["amt"] > 3),
]
ASSIGNMENTS: list[Assignment] = [
    ("cur = NULL", lambda x: x | {"cur": None}),
    ("seq = seq + 1", lambda x: x | {"seq": None if x["seq"] is None else x["seq"] + 1}),
    ("cur = ext, amt = NULL", lambda x: x | {"cur": x["ext"], "amt": None}),
    ("day = date_add(day, 1)", lambda x: x | {"day": x["day"] + timedelta(days=1)}),
]


def with_names(sql: str, names: Mapping[str, str]) -> str:
    """A statement whose relations have other names. Columns keep the last part as their qualifier."""
    words = r"\b(FROM|JOIN|TABLE|VIEW|UPDATE) (\w+)\b"
    return re.sub(words, lambda found: f"{found[1]} {names.get(found[2], found[2])}", sql)


def bind(spark: Any, folder: Path, names: Mapping[str, str] | None = None) -> Path:
    """Bind all statements of histories; return their file. Its source reads `folder/data`.

    `names`: other names of some relations, in the schema `b`.
    """
    names = names or {}
    (folder / "data").mkdir(parents=True)
    creates = [
        *(["CREATE SCHEMA b"] if names else []),
        f"CREATE SOURCE p ({COLUMNS}) USING parquet OPTIONS (path '{folder}/data', on_change 'restate')",
        f"CREATE TABLE t ({COLUMNS}, PRIMARY KEY (id))",
        f"CREATE TABLE u ({COLUMNS})",
        "CREATE TABLE rates (cur string, vf date, rate double, PRIMARY KEY (cur, vf))",
        *(f"CREATE MATERIALIZED VIEW {name} AS {sql}" for name, sql in VIEWS.items()),
    ]
    changes = {f"delete {t} {c}": f"DELETE FROM {t} WHERE {sql}" for t in "tu" for c, (sql, _) in enumerate(CONDITIONS)}
    for t in "tu":
        for c, (where, _) in enumerate(CONDITIONS):
            a = c % len(ASSIGNMENTS)
            changes[f"update {t} {c}"] = f"UPDATE {t} SET {ASSIGNMENTS[a][0]} WHERE {where}"
    with Session(str(folder / "bound"), spark, runner="local") as session:
        for sql in (*creates, *changes.values()):
            session.execute(with_names(sql, names))
        entries = [json.loads(bytes(e.statement)) for e in session.meta.read_log(0, session.meta.log_end())]
    assert len(entries) == len(creates) + len(changes)
    (folder / "bound.json").write_text(
        json.dumps(
            {
                "names": names,
                "creates": entries[: len(creates)],
                "changes": dict(zip(changes, entries[len(creates) :], strict=True)),
            }
        )
    )
    return folder / "bound.json"


@dataclass
class History:
    """One history in one store. Each run writes its files to `folder/data` again."""

    bound: Path
    store: Path
    seed: int
    units: int
    runner: LevelRunner
    t: dict[int, Row] = field(default_factory=dict)
    u: list[Row] = field(default_factory=list)
    rates: dict[tuple[str, date], Row] = field(default_factory=dict)
    files: dict[str, list[Row]] = field(default_factory=dict)
    appended: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.data = self.bound.parent / "data"
        shutil.rmtree(self.data)
        self.data.mkdir()
        self.statements = json.loads(self.bound.read_text())
        MetaStore.init(open_object_store(str(self.store)), units=self.units)
        self.meta = MetaStore(open_object_store(str(self.store)), "history", lambda: CLOCK_MS)
        for statement in self.statements["creates"]:
            self.append(statement)

    def run(self, epochs: int, judge: bool = False) -> list[str]:
        """All epochs; returns the names of all SSTs that they wrote."""
        for epoch in range(epochs):
            self.write_files(epoch)
            self.change_tables()
            next_epoch(self.runner, self.meta, InputRequest(moment=0))
            if (version := self.meta.read_latest()).epoch > version.published:
                publish_epoch(self.meta, version.epoch)
            if judge:
                self.judge(epoch)
        return sorted(str(found.relative_to(self.store)) for found in (self.store / "data").rglob("*.sst"))

    # --- steps of a history ----------------------------------------------------------------------------------------

    def row(self) -> Row:
        r = self.random
        return {
            "id": r.randrange(20),
            "cur": r.choice([None, None, "EUR", "USD", "GBP", "JPY"]),
            "ext": r.choice([None, "a", "b", "B"]),
            "seq": r.choice([None, 0, 1, 2]),
            "v": r.choice([None, 0.0, 1.5, -2.25, 0.1, float("nan")]),
            "day": date(2024, 2, 26) + timedelta(days=r.randrange(4)),
            "amt": r.choice([None, Decimal("1.00"), Decimal("-3.50"), Decimal("9.99")]),
        }

    def write_files(self, epoch: int) -> None:
        """Write a new file, or change one that was taken (at most twice)."""
        for _ in range(self.random.randrange(3)):
            known = self.random.random() < 0.6 and self.files
            name = self.random.choice(sorted(self.files)) if known else f"{len(self.files)}.parquet"
            rows = [dict(x) for x in self.files.get(name, ())]
            self.random.shuffle(rows)
            self.files[name] = [*rows[1:], *(self.row() for _ in range(self.random.randrange(1, 8)))]
            pq.write_table(pa.Table.from_pylist(self.files[name], SCHEMA), self.data / name)
            # A process remembers footers by name, size and time, and the files of all histories have the same names.
            time_ns = FILE_TIME_NS + 1000 * self.seed + epoch
            os.utime(self.data / name, ns=(time_ns, time_ns))

    def change_tables(self) -> None:
        """Statements on the same rows, one after the other."""
        for _ in range(self.random.randrange(1, 9)):
            table, c = self.random.choice("ttu"), self.random.randrange(len(CONDITIONS))
            holds, assigned = CONDITIONS[c][1], ASSIGNMENTS[c % len(ASSIGNMENTS)][1]
            match self.random.choice(["insert", "insert", "update", "delete", "rates"]):
                case "insert":
                    rows = [self.row() for _ in range(self.random.randrange(1, 7))]
                    self.insert(table, rows, SCHEMA)
                    if table == "t":
                        self.t |= {x["id"]: x for x in rows}
                    else:
                        self.insert(table, rows[:1], SCHEMA)
                        self.u += [*rows, rows[0]]
                case "update":
                    self.append(self.statements["changes"][f"update {table} {c}"])
                    self.t = {i: assigned(x) if table == "t" and holds(x) else x for i, x in self.t.items()}
                    self.u = [assigned(x) if table == "u" and holds(x) else x for x in self.u]
                case "delete":
                    self.append(self.statements["changes"][f"delete {table} {c}"])
                    self.t = {i: x for i, x in self.t.items() if table == "u" or not holds(x)}
                    self.u = [x for x in self.u if table == "t" or not holds(x)]
                case "rates":
                    day = date(2024, 2, 25) + timedelta(days=self.random.randrange(4))
                    rate = {
                        "cur": self.random.choice(["EUR", "USD", "GBP"]),
                        "vf": day,
                        "rate": self.random.choice([1.0, 1.25, 2.0]),
                    }
                    self.insert("rates", [rate], RATES)
                    self.rates[rate["cur"], day] = rate

    def insert(self, table: str, rows: list[Row], schema: pa.Schema) -> None:
        given = pa.Table.from_pylist(rows, schema)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(
            sink, (named := given.rename_columns([f"c{i}" for i in range(given.num_columns)])).schema
        ) as writer:
            writer.write_table(named)
        statement = Insert(self.name_of(table), len(rows), self.meta.put_payload(sink.getvalue().to_pybytes()))
        self.append(json.loads(msgspec.json.encode(statement)))

    def name_of(self, relation: str) -> str:
        """The name of a relation in this history."""
        return str(self.statements["names"].get(relation, relation))

    def append(self, statement: Any) -> None:
        self.appended += 1
        self.meta.append_log(f"history/{self.appended}", json.dumps(statement).encode())

    # --- expected rows ---------------------------------------------------------------------------------------------

    def judge(self, epoch: int) -> None:
        """Compare tables and views with plain Python and DuckDB."""
        files = [x for name in self.files for x in self.files[name]]
        tables = {
            name: pa.Table.from_pylist(rows, SCHEMA)
            for name, rows in (("p", files), ("t", list(self.t.values())), ("u", self.u))
        }
        tables["rates"] = pa.Table.from_pylist(list(self.rates.values()), RATES)
        with duckdb.connect() as connection:
            connection.execute("SET default_null_order = 'nulls_first_on_asc_last_on_desc'")
            connection.execute("CREATE SCHEMA b")
            for name, rows in tables.items():
                self.register(connection, name, rows)
            for name, sql in VIEWS.items():
                sql = with_names(sql, self.statements["names"])
                for ours, theirs in _IN_DUCKDB:
                    sql = sql.replace(ours, theirs)
                self.register(connection, name, tables.setdefault(name, connection.sql(sql).to_arrow_table()))
        for name in ("t", "u", "rates", *VIEWS):
            ours, theirs = _counted(self.read(name)), _counted(tables[name])
            assert ours == theirs, (
                f"seed {self.seed}, epoch {epoch}, {name}: too many {ours - theirs}, missing {theirs - ours}"
            )

    def register(self, connection: duckdb.DuckDBPyConnection, relation: str, rows: pa.Table) -> None:
        """Give DuckDB the rows of a relation, in its schema."""
        connection.register(f"rows_of_{relation}", rows)
        name = self.name_of(relation)
        connection.execute(f"CREATE VIEW {name if '.' in name else f'main.{name}'} AS FROM rows_of_{relation}")

    def read(self, name: str) -> pa.Table:
        version = self.meta.read_latest()
        (relation,) = [r for r in version.catalog.live_relations() if r.name == self.name_of(name)]
        schema = pa.schema([(c.name, arrow_type(c.type)) for c in relation.columns])
        return pa.concat_tables(
            [schema.empty_table(), *scan_relation(self.meta.objects, version, relation, version.epoch)]
        )


def _counted(rows: pa.Table) -> Counter[tuple[str, ...]]:
    """Rows as texts: no view adds up floats, so all values are exact."""
    columns = [[repr(v.normalize() if isinstance(v, Decimal) else v) for v in c.to_pylist()] for c in rows.columns]
    return Counter(zip(*columns, strict=True))


def without_inode_times(name: str, stat: os.stat_result) -> ObjectInfo:
    """A file as a store lists it, without the time of its inode's last change.

    A store records this time, and a test cannot set it, so two runs would differ by it.
    """
    return ObjectInfo(name, stat.st_size, f"{stat.st_size}-{stat.st_mtime_ns}")


if __name__ == "__main__":
    local._info_of_stat = without_inode_times
    bound, store, seed, epochs, units = sys.argv[1:]
    print(json.dumps(History(Path(bound), Path(store), int(seed), int(units), LocalRunner()).run(int(epochs))))
