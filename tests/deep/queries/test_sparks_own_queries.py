"""The queries of Spark's own SQL tests, written without views in mind: each as a view over its file's tables.

Each view must equal Spark's answer. One epoch builds a chapter's views. refused_of_spark.yaml lists each refused query
with the beginning of the reason; all others must be accepted.
"""

import fcntl
from pathlib import Path

import pyarrow as pa
import pytest
import yaml
from pyspark.sql import SparkSession

from tests.support.queries.spark_files import Chapter, chapters, files, forget, statements_of
from tests.support.truth.compare import assert_same_answer
from tussock.jobs.session import Session
from tussock.statestore.errors import InputError

REFUSED = Path(__file__).with_name("refused_of_spark.yaml")
_SHOWN = 90  # characters of a reason
#: An unknown time zone over no rows: Spark never evaluates it, and here the epoch reports it.
_FAULTY = frozenset({("union-resolution-edge-cases", 3)})
_SHARES = 8  # parts that parallel processes can take
#: Files about settings, commands, texts of other collations, types that no table stores, and queries without a table.
_LEFT_OUT = (
    "charvarchar",
    "collations",
    "execute-immediate",
    "identifier-clause",
    "nonansi/",
    "scripting/",
    "typeCoercion/",
    "udaf/",
    "udf/",
    "udtf/",
    "variant/",
)
#: Queries with several correct answers: the value that mode picks among equally frequent ones (ours is the least); the
#: rows of a LIMIT without an order; IN in the ON of an outer join if nothing is equal and a value is NULL. Spark then
#: returns NULL over constants, as we do, and otherwise false.
_OPEN = frozenset(
    {
        *(("mode", n) for n in (1, 2, 4, 5)),
        *(("subquery/in-subquery/in-limit", n) for n in (11, 20)),
        ("subquery/in-subquery/in-nullability", 7),
    }
)


def _asked() -> list[str]:
    return [name for name in files() if not name.startswith(_LEFT_OUT)]


@pytest.mark.deep
@pytest.mark.spark
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("share", range(_SHARES))
def test_every_query_of_sparks_tests_is_equal_or_refused_for_a_known_reason(
    share: int, spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    wrong: list[str] = []
    new: dict[str, str] = {}
    for file in _asked()[share::_SHARES]:
        told, equal = len(wrong), 0
        refused: dict[int, str] = {}
        session = spark.newSession()
        session.conf.set("spark.sql.ansi.enabled", "true")
        for number, chapter in enumerate(chapters(session, statements_of(file))):
            found = _judge(chapter, session, tmp_path / file.replace("/", "-") / str(number), file, wrong)
            equal += len(chapter.asked) - len(found)
            refused |= found
        forget(session)
        print(
            f"{file}: {equal} equal, {len(refused)} refused",
            *(f"  wrong: {what}" for what in wrong[told:]),
            sep="\n",
            flush=True,
        )
        if request.config.getoption("--update-cases"):
            _write(file, refused)
        known = _known().get(file, {})
        new |= {f"{file}#{n}": reason for n, reason in refused.items() if n not in known}
    assert not wrong, "\n".join(wrong)
    assert not new, f"refused, and not in {REFUSED.name}: {new}; --update-cases writes it anew"


def _known() -> dict[str, dict[int, str]]:
    return yaml.safe_load(REFUSED.read_text()) or {}


def _write(file: str, refused: dict[int, str]) -> None:
    """Put a file's refusals in the place of the known ones. Several processes do so at a time."""
    with REFUSED.open("r+") as cases:
        fcntl.flock(cases, fcntl.LOCK_EX)
        header = "".join(line for line in REFUSED.read_text().splitlines(keepends=True) if line.startswith("#"))
        known = _known()
        known.pop(file, None)
        known |= {file: refused} if refused else {}
        REFUSED.write_text(header + yaml.safe_dump(known, width=1000, allow_unicode=True))


def _judge(chapter: Chapter, spark: SparkSession, store: Path, file: str, wrong: list[str]) -> dict[int, str]:
    """Create a chapter's views, run one epoch and compare. Return the refusals; append differences to `wrong`."""
    refused: dict[int, str] = {}
    queries = [asked for asked in chapter.asked if (file, asked.number) not in _FAULTY]
    with Session(str(store), spark) as session:
        for name, table in chapter.tables.items():
            try:
                session.execute(f"CREATE TABLE `{name}` ({table.columns})")
            except InputError:  # a type that no table keeps: queries of it are refused
                continue
            try:
                session.insert(name, table.rows)
            except InputError:  # texts that are not UTF-8
                session.execute(f"DROP TABLE `{name}`")
        for asked in queries:
            columns = ", ".join(f"c{i}" for i in range(asked.answer.num_columns))  # names may repeat
            try:
                session.execute(f"CREATE MATERIALIZED VIEW view{asked.number} ({columns}) AS {asked.sql}")
            except InputError as err:
                refused[asked.number] = str(err).split("\n")[0][:_SHOWN]
            except Exception as err:  # our fault; reported with the others
                wrong.append(f"{file}#{asked.number}: CREATE failed: {type(err).__name__} {err}: {asked.sql}")
                refused[asked.number] = f"fault: {type(err).__name__}"
        try:
            session.flush()
        except Exception as err:
            wrong.append(f"{file}: the epoch failed: {err} {getattr(err, '__notes__', '')}")
            return refused
        for asked in queries:
            if asked.number not in refused and (file, asked.number) not in _OPEN:
                _compare(
                    session.read(f"view{asked.number}"),
                    asked.answer,
                    f"{file}#{asked.number}: {' '.join(asked.sql.split())}",
                    wrong,
                )
    return refused


def _compare(found: pa.Table, answer: pa.Table, what: str, wrong: list[str]) -> None:
    try:
        assert_same_answer(_countable(found), _countable(answer.rename_columns(found.column_names)), what, scale=1.0)
    except AssertionError as err:
        wrong.append(str(err))


def _countable(rows: pa.Table) -> pa.Table:
    """Rows with days and moments as numbers: Spark's years go beyond Python's."""
    for i, field in enumerate(rows.schema):
        if pa.types.is_date(field.type) or pa.types.is_timestamp(field.type):
            number = pa.int32() if pa.types.is_date(field.type) else pa.int64()
            rows = rows.set_column(i, field.name, rows.column(i).cast(number))
    return rows
