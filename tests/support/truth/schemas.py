"""The tables and views of the random histories, in one schema or in two that share all names.

A view of two schemas reads relations of either. Its text names a relation with its schema, or without one after a USE.
Spark judges with databases of its catalog, so its analyzer resolves each name independently.
"""

import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.spark_types import SparkSession
from tests.support.truth.judge import at_moment, judge_session
from tests.support.truth.model import TABLES, History
from tussock.jobs.logical.relation_names import DEFAULT_SCHEMA, join_name, split_name
from tussock.jobs.spark.collected import collect_rows

ONE = (DEFAULT_SCHEMA,)
TWO = (DEFAULT_SCHEMA, "twin")

#: Views that read two relations of one name, for histories of two schemas.
OF_BOTH: dict[str, str] = {
    "both_joined": "SELECT default.t.k, twin.t.a, default.t.s FROM twin.t JOIN default.t ON default.t.k = twin.t.k",
    "both_left": "SELECT a.k, twin.t.g FROM default.t AS a LEFT JOIN twin.t ON a.k = twin.t.k AND twin.t.a > 3",
    "both_united": "SELECT k, s FROM default.t UNION ALL SELECT k, s FROM twin.t",
    "both_in": "SELECT g, count(*) AS n FROM twin.e WHERE twin.e.a IN (SELECT a FROM default.e) GROUP BY g",
    "both_grouped": "SELECT a.g, a.n, twin.grouped.n AS m FROM default.grouped a FULL JOIN twin.grouped "
    "ON a.g <=> twin.grouped.g",
    "both_with": "WITH t AS (SELECT k, g FROM twin.t WHERE g > 1) SELECT t.k, d.g FROM t JOIN default.t d USING (k)",
}


@dataclass(frozen=True)
class PlacedView:
    """A view of one schema. `case`: its name without the schema. `used`: the schema of names without one."""

    case: str
    schema: str
    used: str
    sql: str

    @property
    def name(self) -> str:
        """As in the catalog."""
        return join_name(self.schema, self.case)


def place_views(views: Mapping[str, str], schemas: Sequence[str], seed: int) -> list[PlacedView]:
    """Each view in every schema. Two thirds of its relations are in the same schema, others in any schema."""
    chance, names = random.Random(seed), TABLES.keys() | views.keys()
    placed = []
    for case, sql in views.items():
        for schema in schemas:
            used = chance.choice(schemas)

            def qualified(found: re.Match[str], schema: str = schema, used: str = used) -> str:
                if found[2] not in names or len(schemas) == 1:
                    return found[0]
                read = schema if chance.random() < 2 / 3 else chance.choice(schemas)
                return found[0] if read == used and chance.random() < 0.8 else f"{found[1]} {read}.{found[2]}"

            placed.append(PlacedView(case, schema, used, re.sub(r"\b(FROM|JOIN) (\w+)\b(?![.(])", qualified, sql)))
    if len(schemas) > 1 and "grouped" in views:
        for case, sql in OF_BOTH.items():
            placed.append(PlacedView(case, chance.choice(schemas), chance.choice(schemas), sql))
    return placed


def create_tables(schemas: Sequence[str]) -> str:
    """The script that creates the tables of a history in every schema."""
    statements = [f"CREATE SCHEMA {schema}" for schema in schemas if schema != DEFAULT_SCHEMA]
    for schema in schemas:
        statements += [f"USE {schema}", *(f"CREATE TABLE {name} ({columns})" for name, columns in TABLES.items())]
    return "; ".join(statements)


def create_views(views: Iterable[PlacedView]) -> str:
    """The script that creates views."""
    return "; ".join(
        f"USE {view.used}; CREATE MATERIALIZED VIEW "
        f"{view.case if view.used == view.schema else f'{view.schema}.{view.case}'} AS {view.sql}"
        for view in views
    )


class Histories:
    """One random history per schema."""

    def __init__(self, seed: int, schemas: Sequence[str]) -> None:
        self._chance = random.Random(seed)
        self._by_schema = {schema: History(seed + 1000 * number) for number, schema in enumerate(schemas)}

    def epoch(self) -> list[str]:
        """The statements of one epoch, sometimes none. Each names its table with a schema, or follows a USE."""
        statements: list[str] = []
        for schema, history in self._by_schema.items():
            if not (own := history.epoch()):
                continue
            if len(self._by_schema) > 1 and self._chance.random() < 0.5:
                own = [re.sub(r"^(INSERT INTO|UPDATE|DELETE FROM) ", rf"\1 {schema}.", one) for one in own]
                own.insert(0, f"USE {self._chance.choice(list(self._by_schema))}")
            else:
                own.insert(0, f"USE {schema}")
            statements += own
        return statements

    def rows(self) -> dict[str, pa.Table]:
        """The rows of each table now, by the table's name in the catalog."""
        return {
            join_name(schema, table): history.arrow(table)
            for schema, history in self._by_schema.items()
            for table in TABLES
        }


class Judge:
    """Spark's answers over temporary views, for relations of one schema."""

    def __init__(self, spark: SparkSession) -> None:
        self.session = judge_session(spark)

    def hold(self, name: str, rows: pa.Table) -> None:
        """Replace the rows of a table."""
        self.session.createDataFrame(rows).createOrReplaceTempView(name)

    def answer(self, view: PlacedView, moment: datetime) -> pa.Table:
        """The rows of a view. The views after it can read it."""
        answer = self.session.sql(at_moment(view.sql, moment))
        answer.createOrReplaceTempView(view.case)
        return collect_rows(answer)


class CatalogJudge(Judge):
    """Spark's answers over tables and views of its catalog, in databases named as the schemas."""

    def __init__(self, spark: SparkSession, folder: Path, read: frozenset[str]) -> None:
        """`read`: the views, without a schema, that other views read."""
        super().__init__(spark)
        self._folder, self._read = folder, read
        self.session.conf.set("spark.sql.parquet.filterPushdown", "false")  # statistics of Parquet leave NaN out
        self._made: dict[str, str] = {}

    def hold(self, name: str, rows: pa.Table) -> None:
        """Replace the rows of a table."""
        place = self._folder / name
        place.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, place / "rows.parquet")
        table = ".".join(split_name(name))
        if table in self._made:
            self.session.sql(f"REFRESH TABLE {table}")
        else:
            self._made[table] = "TABLE"
            self.session.sql(f"CREATE TABLE {table} USING parquet LOCATION '{place}'")

    def answer(self, view: PlacedView, moment: datetime) -> pa.Table:
        """The rows of a view. The views after it can read it."""
        sql = at_moment(view.sql, moment)
        self.session.sql(f"USE {view.used}")
        if view.case in self._read:
            self._made[f"{view.schema}.{view.case}"] = "VIEW"
            self.session.sql(f"CREATE OR REPLACE VIEW {view.schema}.{view.case} AS {sql}")
        return collect_rows(self.session.sql(sql))

    def drop(self) -> None:
        """Drop all tables and views."""
        self.session.sql(f"USE {DEFAULT_SCHEMA}")
        for relation, kind in reversed(self._made.items()):
            self.session.sql(f"DROP {kind} IF EXISTS {relation}")
        for schema in TWO[1:]:
            self.session.sql(f"DROP DATABASE IF EXISTS {schema} CASCADE")


@contextmanager
def judge_of(spark: SparkSession, schemas: Sequence[str], folder: Path, read: frozenset[str]) -> Iterator[Judge]:
    """The judge of a history, whose tables and views in Spark's catalog are dropped at the end."""
    if len(schemas) == 1:
        yield Judge(spark)
        return
    judge = CatalogJudge(spark, folder, read)
    try:
        for schema in schemas[1:]:
            judge.session.sql(f"CREATE DATABASE {schema} LOCATION '{folder / schema}'")
        yield judge
    finally:
        judge.drop()
