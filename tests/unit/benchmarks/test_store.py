"""The store's benchmark: every part runs on every engine at a toy size, and detects a wrong answer."""

import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from benchmarks.report import Comparison, Series, figures_of, table_of, write_json
from benchmarks.store import compare
from benchmarks.store.engine import aligned_values, as_matrix, decoded_values, encoded_values, storage_keys
from benchmarks.store.parts import PARTS, WrongAnswerError, run_part
from benchmarks.store.task import Task, decode_task, encode_task
from benchmarks.store.workload import Size, Workload, make_workload

pytest.importorskip("rocksdict")
pytest.importorskip("slatedb")
_SIZE = Size(rows=10_000, batch=2_500, keys=500, prefixes=20)


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Workload:
    return make_workload(tmp_path_factory.mktemp("workload"), _SIZE)


def test_the_workload_is_as_documented(load: Workload) -> None:
    rows = {(row["g"], row["i"]) for row in load.rows.to_pylist()}
    assert len(rows) == load.rows.num_rows == _SIZE.rows
    assert all((row["g"], row["i"]) in rows for row in load.present.to_pylist())
    absent = [(row["g"], row["i"]) for row in load.absent.to_pylist()]
    assert len(absent) == len(load.present) == _SIZE.keys
    assert not rows.intersection(absent)
    counts = dict.fromkeys(load.prefixes["g"].to_pylist(), 0)
    for g, _ in rows:
        if g in counts:
            counts[g] += 1
    assert list(counts.values()) == load.prefixes["rows"].to_pylist()
    assert sum(batch.num_rows for batch in load.batches()) == _SIZE.rows


def test_values_stored_by_a_peer_are_read_unchanged(load: Workload) -> None:
    some = load.rows.slice(0, 100).combine_chunks()
    assert as_matrix(storage_keys(some)).tolist() == storage_keys(some).to_pylist()
    values = encoded_values(some)
    assert decoded_values(values).equals(some.select(["n", "total"]).cast(decoded_values(values).schema))
    found, rows = aligned_values([values[0], None, values[1]])
    assert found.to_pylist() == [True, False, True]
    assert rows["n"].to_pylist() == [some["n"][0].as_py(), None, some["n"][1].as_py()]


@pytest.mark.parametrize("engine", ["tussock", "rocksdb", "rocksdb-file", "slatedb"])
@pytest.mark.sampled(2)
def test_every_part_runs_and_every_answer_is_right(engine: str, load: Workload, tmp_path: Path) -> None:
    parts = list(PARTS) if engine == "tussock" else [part for part in PARTS if part not in ("block-reads", "requests")]
    if engine == "rocksdb-file":  # only another way to write
        parts = ["ingest"]
    for part in parts:
        task = Task(engine, part, load.folder, tmp_path / "state", _SIZE, 1)
        assert decode_task(encode_task(task)) == task
        found = run_part(task)
        assert all(seconds > 0 for series in found.seconds.values() for seconds in series)
        if part == "build":
            assert found.facts["bytes"] > 0
        if part == "block-reads":
            assert 0.98 < found.facts["share"] <= 1  # 500 keys; about 2 false positives


@pytest.mark.deep
def test_the_comparison_has_a_line_for_each_series_and_json_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare, "_run", run_part)  # in this process: starting one for each part takes a minute
    size = Size(rows=20_000, batch=5_000, keys=500, prefixes=20)
    compared, figures = compare.compare_stores(
        tmp_path / "scratch", size, 1, ("ingest", "warm", "compact"), lambda _: None
    )
    assert [(c.ours.name, c.theirs.name, c.budget) for c in compared if c.what.startswith("batch_ingest of 5,000")] in (
        [("tussock", f"rocksdb, {a}", 3.0), ("tussock", f"rocksdb, {b}", None)]
        for a, b in itertools.permutations(["WriteBatch and flush", "sorted SstFileWriter and ingest"])
    )
    assert sum(c.theirs.name == "slatedb" for c in compared) == 4
    assert len(compared) == 5 + 1 + 4
    assert any(f.what == "absent keys answered without reading a block" and 98 < f.value <= 100 for f in figures)
    assert any("ingest and commit of 5,000 rows, 30 ms, 100 MB/s: 9 requests" in f.what for f in figures)
    write_json(tmp_path / "out.json", compared, {}, figures)
    written = json.loads((tmp_path / "out.json").read_text())
    assert [len(written[key]) for key in ("comparisons", "figures")] == [len(compared), len(figures)]
    assert all(c.what in table_of(compared) for c in compared)
    assert len(figures_of(figures).splitlines()) == len(figures)


@pytest.mark.parametrize(
    ("part", "name", "table"),
    [
        ("prefixes", "prefixes", lambda load: load.prefixes.set_column(1, "rows", pa.array([1] * _SIZE.prefixes))),
        ("scan", "rows", lambda load: load.rows.slice(0, _SIZE.rows - 1)),
        ("warm", "present", lambda load: load.present.set_column(0, "g", pa.array([10**9] * _SIZE.keys))),
    ],
)
def test_a_wrong_answer_is_detected(
    part: str, name: str, table: Callable[[Workload], pa.Table], load: Workload, tmp_path: Path
) -> None:
    run_part(Task("rocksdb", "build", load.folder, tmp_path / "state", _SIZE, 1))
    wrong = shutil.copytree(load.folder, tmp_path / "wrong")
    changed = table(load)
    with pa.OSFile(str(wrong / f"{name}.arrow"), "wb") as file, pa.ipc.new_file(file, changed.schema) as writer:
        writer.write_table(changed)
    with pytest.raises(WrongAnswerError):
        run_part(Task("rocksdb", part, wrong, tmp_path / "state", _SIZE, 1))


def test_a_ratio_below_its_budget_is_missed() -> None:
    ours, theirs = Series("tussock", (1.0, 2.0, 3.0)), Series("rocksdb", (4.0, 4.0, 5.0))
    assert Comparison("x", ours, theirs, 2.0).verdict == "ok"
    assert Comparison("x", ours, theirs, 2.1).verdict == "MISSED"
