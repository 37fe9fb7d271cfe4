"""`python -m benchmarks history`: its changes, and the table that it prints."""

import itertools
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from benchmarks.history import History, Side, Sizes, ViewStore, lines_of, rows_of
from benchmarks.history_views import ALL, TABLE

SIZES = Sizes(customers=50, shops=5, corrected=400, changed=100, runs=1)


def test_the_views_have_distinct_names() -> None:
    assert len({views.name for views in ALL}) == len(ALL)


def test_one_in_two_hundred_rows_of_a_corrected_file_differs_from_the_version_before() -> None:
    ids = np.arange(4_000)
    versions = [rows_of(ids, SIZES, version).column("amount").to_numpy() for version in range(4)]
    assert [int((one != two).sum()) for one, two in itertools.pairwise(versions)] == [20, 20, 20]


def test_a_correction_replaces_a_file_of_one_store_only(tmp_path: Path) -> None:
    history = History(tmp_path / "history", 10_000, SIZES)
    store, other = (ViewStore(history, TABLE[0], tmp_path / name, False) for name in ("store", "other"))
    change, *files = store.make_change("five corrected")
    assert (change, len(files), store.count_changed("five corrected")) == ("restate", 5, 10)
    before = [pq.read_table(other.events / Path(file).name) for file in files]
    after = [pq.read_table(file) for file in files]
    assert [one.num_rows for one in before] == [one.num_rows for one in after] == [400] * 5
    assert all(not one.equals(two) for one, two in zip(before, after, strict=True))
    assert sum(pq.read_metadata(file).num_rows for file in history.files.iterdir()) == 10_000


def test_the_table_names_the_history_from_which_an_epoch_is_cheaper() -> None:
    side, peer = Side("tussock"), Side("duckdb")
    for rows, ours, theirs in ((1_000_000, 0.3, 0.2), (4_000_000, 0.3, 0.8)):
        result = {"cpu_s": ours, "peak_mb": 210.4, "rows": 500, "blocks": 9, "bytes": 3_000}
        side.add(TABLE[0], "appended", rows, [result], 100)
        side.add(TABLE[1], "appended", rows, [{**result, "cpu_s": 9.0}], 100)
        for views in TABLE[:2]:
            peer.add(views, "all rows", rows, [{"cpu_s": theirs}])
    first, second = lines_of(TABLE[:2], [side], [peer], [1_000_000, 4_000_000])[2:]
    assert first == "| latest | appended | 0.30 | 0.30 | 1.00 | 210 | 5.00 | 0.03 | 0.20 | 0.80 | 4 M |"
    assert second.endswith("| never here |")
