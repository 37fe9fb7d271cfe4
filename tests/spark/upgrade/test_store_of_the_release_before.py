"""A store of a release opens, its open barrier completes, epochs run, and every view equals Spark's answer.

`make_store.py` describes the archive and its content; `story.py` holds its statements and its expected rows.
"""

import tarfile
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.support.truth.compare import assert_same_answer
from tests.support.upgrade import story
from tussock.jobs import cli
from tussock.jobs.reading.read import PausedViewWarning
from tussock.jobs.reading.reader import scan_relation
from tussock.jobs.session import Session
from tussock.statestore.types import arrow_type

ARCHIVE = Path(__file__).parent / "store_of_0_1_0.tar.xz"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The archive's store, with its source files at the path that the store expects.

    All runs share the sources' folder, and it stays. A file is replaced as a whole, and only if it differs.
    """
    with tarfile.open(ARCHIVE) as tar:
        for entry in tar.getmembers():
            opened = tar.extractfile(entry)
            assert opened is not None
            data, (top, _, name) = opened.read(), entry.name.partition("/")
            if top == "store":
                (tmp_path / entry.name).parent.mkdir(parents=True, exist_ok=True)
                (tmp_path / entry.name).write_bytes(data)
            else:
                _put_source(story.PLACE / name, data, tmp_path.name)
    return tmp_path / "store"


def _put_source(path: Path, data: bytes, run: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_bytes() != data or path.stat().st_mtime_ns != story.FILE_TIME_NS:
        written = path.with_name(f".{path.name}.{run}")
        written.write_bytes(data)
        story.set_time(written)
        written.replace(path)


def answers_of_spark(spark: SparkSession, moment: story.Moment) -> dict[str, pa.Table]:
    """Every relation with rows, by Spark over the tables and files of that moment."""
    judge = spark.newSession()
    judge.conf.set("spark.sql.ansi.enabled", "true")
    judge.conf.set("spark.sql.session.timeZone", "UTC")
    files = {
        kind: [str(story.PLACE / name) for name in moment.files if name.startswith(kind)] for kind in ("sales", "notes")
    }
    judge.read.parquet(*files["sales"]).createOrReplaceTempView("sales")
    judge.read.schema(story.NOTES_SCHEMA).csv(files["notes"]).createOrReplaceTempView("notes")
    found = {"t": story.table_t(moment.t), "u": story.table_u(moment.u)}
    for name, rows in found.items():
        judge.createDataFrame(rows).createOrReplaceTempView(name)
    for name in moment.views:
        session = judge
        if name == story.PAUSED:
            session = judge.newSession()
            session.createDataFrame(story.table_t(moment.stuck)).createOrReplaceTempView("t")
        found[name] = session.sql({**story.VIEWS, **story.LATE_VIEWS}[name]).toArrow()
        if name != story.PAUSED:
            judge.createDataFrame(found[name]).createOrReplaceTempView(name)
    return found


def assert_stored(session: Session, expected: dict[str, pa.Table], what: str, epoch: int | None = None) -> None:
    """Check the rows stored at an epoch (None: the published one) against Spark's answers."""
    version = session.meta.read_latest()
    epoch = version.published if epoch is None else epoch
    relations = {r.name: r for r in version.catalog.relations_at(epoch)}
    for name, rows in expected.items():
        schema = pa.schema([(c.name, arrow_type(c.type)) for c in relations[name].columns])
        found = scan_relation(session.meta.objects, version, relations[name], epoch)
        assert_same_answer(pa.concat_tables([schema.empty_table(), *found]), rows, f"{what}: {name}")
    assert {r.name for r in relations.values() if r.kind != "source"} == set(expected), what


@pytest.mark.spark
def test_a_store_of_the_release_before_opens_continues_and_reads_equal(store: Path, spark: SparkSession) -> None:
    answers = {name: answers_of_spark(spark, moment) for name, moment in story.MOMENTS.items()}
    with Session(str(store), spark, create=False) as session:
        version = session.meta.read_latest()
        held = session.meta.open_barrier()
        assert held is not None
        assert version.published < version.epoch == held.prev_epoch
        assert_stored(session, answers["published"], "published")
        assert_stored(session, answers["committed"], "committed", version.epoch)
        with pytest.warns(PausedViewWarning):
            assert_same_answer(
                session.query(f"SELECT * FROM {story.PAUSED}"), answers["published"][story.PAUSED], "by a query"
            )

        session.flush()
        assert_stored(session, answers["the open barrier"], "of the open barrier", held.epoch)
        assert_stored(session, answers["what waited"], "after what waited")
        session.execute(story.LAST)
        session.flush()
        assert_stored(session, answers["one more"], "after one more epoch")
        assert_stored(session, answers["committed"], "still readable", version.epoch)

        for command in (["compact", "--full"], ["vacuum"], ["scrub"]):
            assert cli.main([command[0], "--store", str(store), *command[1:]]) == 0
        assert_stored(session, answers["one more"], "after compaction and vacuum")
