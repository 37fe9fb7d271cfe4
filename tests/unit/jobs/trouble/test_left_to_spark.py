"""Who reads a file, engine or Spark: the barrier records it, and a superseding barrier replaces a wrong decision.

No Spark: a runner reads the files that barriers leave to Spark by plain Python.
"""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from tests.support.faulty_store import stores_after_deaths
from tests.support.jobs.driver.embedded import append, new_store, open_store, rows
from tussock.jobs.barriers.detour import Detour
from tussock.jobs.catalog.definition import find_relation
from tussock.jobs.chunks.chunk import encode_table
from tussock.jobs.driver.epoch import advance_store
from tussock.jobs.driver.runner import LevelsToRun, LocalRunner, NeedsSparkError
from tussock.jobs.driver.sealed_tables import SealedTables
from tussock.jobs.facts.sources import list_sources
from tussock.jobs.logical.nodes import Field, Scan
from tussock.jobs.logical.statements import CreateSource, CreateView
from tussock.jobs.reading.reader import open_table
from tussock.jobs.sources import plain
from tussock.jobs.sources.base import Restated
from tussock.jobs.sources.errors import OnlySparkReadsError
from tussock.jobs.sources.file_documents import files_of
from tussock.jobs.sources.rejects import chunk_of
from tussock.jobs.sources.row_ids import ROW_ID_NAME, pack_row_ids
from tussock.jobs.sources.taken import taken_files
from tussock.jobs.trouble.restate import Restating
from tussock.jobs.trouble.supersede import abandon_barrier
from tussock.jobs.wire.cell import Address, make_cells
from tussock.jobs.wire.epoch_task import cells_in, cells_of
from tussock.statestore.meta.barrier import Barrier
from tussock.statestore.meta.store import MetaStore

FIELDS = (Field("a", "string"), Field("n", "int"))
FURTHER_DOWN = b"x,1\ny,2\nz,+3\n"
PLUS = "column 'n' has a value that is not spelled as a plain int"


class SparkByHand(LocalRunner):
    """Runs levels in this process, and reads files as Spark would. `left`: the files that it read so, by run."""

    def __init__(self) -> None:
        super().__init__()
        self.left: list[list[str]] = []

    def run(self, levels: LevelsToRun) -> tuple[pa.Table, SealedTables]:
        """See LevelRunner."""
        batches = cells_in([levels.task.cells]).to_batches()
        self.left.append([file.path for read in levels.reads for file in files_of(read.document)])
        for read in levels.reads:
            assert read.scheduled.source is not None
            for file in files_of(read.document):
                records = [line.split(",") for line in Path(file.path).read_text().splitlines()]
                values = [[a for a, _ in records], [int(n) for _, n in records]]
                typed = [pa.array(values[c], (pa.string(), pa.int32())[c]) for c in read.scheduled.source.columns]
                names = [*(f"c{i}" for i in range(len(typed))), ROW_ID_NAME]
                table = pa.table(
                    [*typed, pack_row_ids(file.number, pa.array(range(len(records))).to_numpy())], names=names
                )
                address = Address.of_leaf(read.scheduled.id, read.input)
                batches.append(make_cells(0, address, list(encode_table(chunk_of(table, file.weight)))))
        return super().run(replace(levels, reads=(), task=levels.task.with_cells(cells_of(batches))))


@pytest.fixture(autouse=True)
def _short_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    """The barrier scans four bytes of a file: its first line."""
    monkeypatch.setattr(plain, "_FIRST_BYTES", 4)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "files").mkdir()
    return tmp_path / "files"


@pytest.fixture
def meta(tmp_path: Path, files: Path) -> MetaStore:
    """A source without a view."""
    meta = new_store(tmp_path / "store")
    append(meta, CreateSource("s", "csv", FIELDS, {"path": str(files), "retain": "files"}))
    advance_store(LocalRunner(), meta)
    return meta


def view(meta: MetaStore, name: str = "v") -> None:
    append(meta, CreateView(name, "…", Scan("s", (0, 1), FIELDS)))


def barriers_of(meta: MetaStore, monkeypatch: pytest.MonkeyPatch) -> list[Barrier]:
    """The superseding barriers from now on."""
    made: list[Barrier] = []
    supersede = meta.supersede_barrier

    def noted(*args: object) -> Barrier:
        made.append(supersede(*args))  # type: ignore[arg-type]
        return made[-1]

    monkeypatch.setattr(meta, "supersede_barrier", noted)
    return made


def taken_by_spark(meta: MetaStore) -> dict[str, str]:
    version = meta.read_latest()
    table = open_table(meta.objects, version, find_relation(version.catalog, "s").state_tables[0])
    return {Path(f.path).name: f.by_spark for f in taken_files(table)}


def test_the_barrier_records_a_file_whose_beginning_only_spark_reads(meta: MetaStore, files: Path) -> None:
    view(meta)
    (files / "1.csv").write_bytes(b"x,1\n")
    (files / "2.csv").write_bytes(b"y,+2\n")
    with pytest.raises(NeedsSparkError, match=rf"of s \(\S+/2.csv: {PLUS}"):
        advance_store(LocalRunner(), meta)
    barrier = meta.open_barrier()
    assert barrier is not None
    assert list(barrier.by_spark.values()) == [{f"{files}/2.csv": PLUS}]
    assert barrier.attempt == 0
    runner = SparkByHand()
    advance_store(runner, meta)
    assert runner.left == [[f"{files}/2.csv"]]
    assert rows(meta, "v") == [("x", 1), ("y", 2)]
    assert taken_by_spark(meta) == {"1.csv": "", "2.csv": PLUS}


def test_a_file_that_turns_out_otherwise_further_down_supersedes_the_barrier_once(
    meta: MetaStore, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view(meta)
    (files / "1.csv").write_bytes(b"w,0\n")
    (files / "2.csv").write_bytes(FURTHER_DOWN)
    made, runner = barriers_of(meta, monkeypatch), SparkByHand()
    advance_store(runner, meta)
    assert [(b.attempt, list(b.by_spark.values())) for b in made] == [(1, [{f"{files}/2.csv": PLUS}])]
    assert runner.left == [[], [f"{files}/2.csv"]], "each attempt runs its levels once"
    assert rows(meta, "v") == [("w", 0), ("x", 1), ("y", 2), ("z", 3)]
    assert taken_by_spark(meta) == {"1.csv": "", "2.csv": PLUS}
    (facts,) = list_sources(meta)
    assert (facts.by_spark_files, facts.read_by) == (1, f"the engine, and Spark 1 file ({PLUS})")


def test_an_error_of_the_decision_is_left_to_the_reader_of_the_file(
    meta: MetaStore, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object) -> None:
        raise RuntimeError("a defect of a library")

    view(meta)
    (files / "1.csv").write_bytes(b"x,1\n")
    monkeypatch.setattr(plain.PlainTexts, "_why_not_plain", fail)
    advance_store(LocalRunner(), meta)
    assert rows(meta, "v") == [("x", 1)]


def test_an_attempt_by_another_process_reads_the_record_and_not_the_beginning(
    meta: MetaStore, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view(meta)
    (files / "1.csv").write_bytes(FURTHER_DOWN)
    with pytest.raises(NeedsSparkError):
        advance_store(LocalRunner(), meta)  # it has superseded the barrier, and stops at the read by Spark
    monkeypatch.delattr(plain.PlainTexts, "_why_not_plain")
    other, runner = open_store(tmp_path / "store", "second"), SparkByHand()
    advance_store(runner, other)
    assert runner.left == [[f"{files}/1.csv"]]
    assert rows(other, "v") == [("x", 1), ("y", 2), ("z", 3)]


def test_a_driver_killed_at_any_request_leaves_the_file_to_spark_exactly_once(
    meta: MetaStore, files: Path, tmp_path: Path
) -> None:
    view(meta)
    (files / "1.csv").write_bytes(FURTHER_DOWN)
    calls: list[tuple[str, str]] = []
    for store in stores_after_deaths(tmp_path / "store", lambda first: advance_store(SparkByHand(), first), calls):
        other = open_store(store, "second")
        advance_store(SparkByHand(), other)
        assert rows(other, "v") == [("x", 1), ("y", 2), ("z", 3)]
        assert taken_by_spark(other) == {"1.csv": PLUS}
        assert other.open_barrier() is None
    assert sum("barrier" in name for operation, name in calls if operation.startswith("put")) == 2


def test_a_taken_file_that_no_view_has_read_is_left_to_spark_when_a_view_reads_it(meta: MetaStore, files: Path) -> None:
    (files / "1.csv").write_bytes(FURTHER_DOWN)
    advance_store(LocalRunner(), meta)
    view(meta)
    runner = SparkByHand()
    advance_store(runner, meta)
    assert runner.left == [[], [f"{files}/1.csv"]]
    assert rows(meta, "v") == [("x", 1), ("y", 2), ("z", 3)]


def test_a_view_of_a_branch_leaves_files_to_spark_that_no_view_of_its_parent_has_read(
    meta: MetaStore, files: Path
) -> None:
    (files / "1.csv").write_bytes(FURTHER_DOWN)
    advance_store(LocalRunner(), meta)
    branch, runner = meta.open_branch("b"), SparkByHand()
    view(branch)
    advance_store(runner, branch)
    (files / "2.csv").write_bytes(FURTHER_DOWN)
    advance_store(LocalRunner(), meta)
    advance_store(runner, branch)
    assert [[Path(path).name for path in left] for left in runner.left] == [[], ["1.csv"], [], ["2.csv"]]
    assert branch.read_latest().epoch == meta.read_latest().epoch
    assert rows(branch, "v") == sorted(2 * [("x", 1), ("y", 2), ("z", 3)])


def test_a_file_that_spark_read_is_read_by_spark_for_a_new_view_and_when_it_is_restated(
    meta: MetaStore, files: Path
) -> None:
    view(meta)
    (files / "1.csv").write_bytes(b"x,+1\n")
    advance_store(SparkByHand(), meta)
    view(meta, "w")
    runner = SparkByHand()
    advance_store(runner, meta)
    assert runner.left == [[f"{files}/1.csv"]]
    assert rows(meta, "w") == [("x", 1)]
    (files / "1.csv").rename(files.parent / "old.csv")
    (files / "1.csv").write_bytes(b"x,2\n")
    barrier = Restating(meta, "s", Restated(f"{files}/1.csv")).begin_restating()
    assert barrier is not None
    assert not barrier.by_spark, "the new content is decided alone"


def test_a_file_that_is_pinned_again_is_decided_again(meta: MetaStore, files: Path) -> None:
    view(meta)
    for name in ("1.csv", "2.csv"):
        (files / name).write_bytes(b"x,+1\n")
    with pytest.raises(NeedsSparkError):
        advance_store(LocalRunner(), meta)
    (files / "1.csv").write_bytes(b"x,1\n")
    barrier = abandon_barrier(meta, Detour(repin_files=(f"{files}/1.csv",)))
    assert list(barrier.by_spark.values()) == [{f"{files}/2.csv": PLUS}]


def test_a_file_that_only_spark_reads_although_the_barrier_leaves_it_to_spark_stops_the_run(
    meta: MetaStore, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view(meta)
    (files / "1.csv").write_bytes(b"x,+1\n")

    def run(self: LocalRunner, levels: LevelsToRun) -> None:
        raise OnlySparkReadsError("s", f"{files}/1.csv", "it is odd")

    monkeypatch.setattr(LocalRunner, "run", run)
    with pytest.raises(OnlySparkReadsError, match=r"only Spark can read file \S+/1.csv of source 's': it is odd"):
        advance_store(LocalRunner(), meta)
