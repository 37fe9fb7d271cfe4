"""The row ids that rows of a corrected file keep: their stored form, and the files whose rows are matched."""

import numpy as np
import pytest

from tussock.jobs.sources.kept_ids import KeptIds, plan_matches
from tussock.jobs.sources.pins import PinnedFile, Portion, Portions
from tussock.jobs.sources.row_ids import pack_row_ids


def ids(number: int, *positions: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.asarray(pack_row_ids(number, np.array(positions, np.int64)))


def file(path: str, number: int, weight: int = 1, portions: Portions | None = None) -> PinnedFile:
    return PinnedFile(path, 10, "etag", number, weight=weight, portions=portions)


KEPT = KeptIds.of_rows(np.array([7, 0, 1, 2, 9]), np.concatenate([ids(3, 5), ids(3, 1, 2, 3), ids(2, 0)]))


def test_rows_in_a_run_take_one_entry() -> None:
    assert KEPT.first.tolist() == [0, 7, 9]
    assert KEPT.rows.tolist() == [3, 1, 1]
    assert KEPT.id.tolist() == [*ids(3, 1), *ids(3, 5), *ids(2, 0)]


def test_a_row_outside_of_all_runs_has_the_id_of_its_own_place() -> None:
    own = ids(8, 0, 2, 3, 7, 8, 9, 10)
    assert KEPT.ids_of(own).tolist() == [*ids(3, 1, 3), *ids(8, 3), *ids(3, 5), *ids(8, 8), *ids(2, 0), *ids(8, 10)]
    assert KeptIds.of_rows(own[:0], own[:0]).ids_of(own).tolist() == own.tolist()


def test_an_id_leads_back_to_its_row() -> None:
    assert [KEPT.find_position(int(i)) for i in ids(3, 1, 3, 4, 5)] == [0, 2, None, 7]


def test_the_stored_form_is_read_back() -> None:
    """The columns are part of the stored form. The bytes of Arrow's zstd differ between its releases."""
    found = KeptIds.from_bytes(KEPT.to_bytes())
    for was, now in ((KEPT.first, found.first), (KEPT.rows, found.rows), (KEPT.id, found.id)):
        assert was.tolist() == now.tolist()


@pytest.mark.parametrize("empty", ["goes", "comes"])
def test_files_without_a_counterpart_do_not_meet(empty: str) -> None:
    files = [file("/a", 1, 1 if empty == "goes" else -1), file("/b", 2, 1 if empty == "goes" else -1)]
    assert plan_matches(files, str.upper) == files


def test_a_path_replaces_itself_and_other_files_together_replace_the_others() -> None:
    files = [file("/a", 4, -1), file("/b", 2, -1), file("/c", 3, -1), file("/a", 5), file("/d", 6), file("/e", 7)]
    planned = plan_matches(files, lambda what: what.split("\0")[0])
    assert [(f.path, f.meets, f.ids) for f in planned] == [
        ("/a", 4, ""),
        ("/b", 2, ""),
        ("/c", 2, ""),
        ("/a", 4, "/a"),
        ("/d", 2, "/d"),
        ("/e", 2, "/e"),
    ]


def test_a_portion_that_is_read_again_gets_new_ids() -> None:
    portions = Portions(1, 1, (Portion(2),))
    assert [f.meets for f in plan_matches([file("/a", 1, -1), file("/a", 2, 1, portions)], str.upper)] == [-1, -1]
