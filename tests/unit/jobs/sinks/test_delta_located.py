"""Delta tables with deletion vectors: equal to their relations after changes, moves by others, kills and losses."""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from pyroaring import BitMap64

from tests.support.jobs.sinks.shop import Shop, in_order, read_back
from tussock.jobs.delta.delta_commits import encode_vectors
from tussock.jobs.locator.document import FOLDER
from tussock.jobs.sinks import delta_located
from tussock.jobs.sinks.check import check_tables
from tussock.jobs.sinks.delta_located import DeltaLocatedSink
from tussock.jobs.sinks.publication import TablesNotPublishedError, tidy_tables
from tussock.statestore.objectstore.local import LocalObjectStore

NAMES = ("orders", "ratios", "events", "by_shop", "shops")
WITHOUT_VISIBLE_KEY = ("events", "shops")


class Killed(BaseException):
    """The process ends here."""


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    shop = Shop(tmp_path)
    shop.change()
    shop.commit()
    shop.publish()
    return shop


def table_of(shop: Shop, name: str) -> DeltaTable:
    return DeltaTable(f"{shop.folder}/tables/{name}")


def check(shop: Shop) -> None:
    for name, rows in shop.model().items():
        assert read_back(f"{shop.folder}/tables/{name}") == in_order(rows), name


def commits_of(shop: Shop, name: str) -> list[list[dict[str, Any]]]:
    log = sorted(Path(f"{shop.folder}/tables/{name}/_delta_log").glob("*[0-9].json"))
    return [[json.loads(line) for line in entry.read_text().splitlines()] for entry in log]


def published_epochs(shop: Shop, name: str) -> list[int]:
    """The epoch of each commit that changed rows."""
    txns = [action["txn"] for commit in commits_of(shop, name) for action in commit if "txn" in action]
    return [txn["version"] for txn in txns if txn["appId"] == "tussock"]


def test_old_rows_are_marked_and_no_file_of_the_table_is_read(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_read(*_: object) -> None:
        raise AssertionError("a file of the table was read")

    monkeypatch.setattr(DeltaLocatedSink, "_read_file", no_read)
    for _ in range(4):
        shop.change()
        shop.commit()
        shop.publish()
        check(shop)
    assert not any("metaData" in a for name in NAMES for c in commits_of(shop, name)[1:] for a in c), "replaced"
    vectors = [a["add"] for c in commits_of(shop, "orders") for a in c if a.get("add", {}).get("deletionVector")]
    assert vectors


@pytest.mark.parametrize("epochs", [6, pytest.param(50, marks=pytest.mark.deep)])
def test_tables_stay_equal_while_another_program_compacts_them(shop: Shop, epochs: int) -> None:
    for number in range(epochs):
        if number % 3 == 1:
            for name in NAMES:
                table_of(shop, name).optimize.compact()
        shop.change()
        shop.commit()
        shop.publish()
        check(shop)
    replaced = {name: sum("metaData" in a for c in commits_of(shop, name)[1:] for a in c) for name in NAMES}
    assert {name for name, count in replaced.items() if count} <= set(WITHOUT_VISIBLE_KEY), replaced


def test_only_key_columns_of_moved_files_are_read(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Any] = []
    read_file = DeltaLocatedSink._read_file

    def recorded(self: DeltaLocatedSink, add: Any, columns: Any) -> pa.Table:
        read.append((self.place.rpartition("/")[2], add["path"], columns))
        return read_file(self, add, columns)

    shop.change()
    shop.commit()
    shop.publish()
    table_of(shop, "orders").optimize.compact()
    (moved,) = table_of(shop, "orders").file_uris()
    monkeypatch.setattr(DeltaLocatedSink, "_read_file", recorded)
    shop.change()
    shop.commit()
    shop.publish()
    assert read == [("orders", Path(moved).name, ("id",))]
    check(shop)


def test_rows_that_another_program_wrote_are_refused_with_its_name(shop: Shop) -> None:
    row = pa.table({"shop": ["x"], "n": [1], "total": pa.array([1], pa.decimal128(22, 2))})
    write_deltalake(table_of(shop, "by_shop"), row, mode="append")
    shop.change()
    shop.commit()
    with pytest.raises(TablesNotPublishedError, match=r"was changed in version 1 \(WRITE by delta-rs") as raised:
        shop.publish()
    assert list(raised.value.failures) == ["by_shop"]


def test_new_statistics_of_another_program_move_no_row(shop: Shop) -> None:
    (add,) = [action["add"] for action in commits_of(shop, "orders")[0] if "add" in action]
    entry = add | {"stats": json.dumps({"numRecords": json.loads(add["stats"])["numRecords"]}), "dataChange": False}
    Path(f"{shop.folder}/tables/orders/_delta_log/{1:020}.json").write_text(json.dumps({"add": entry}))
    for _ in range(2):
        shop.change()
        shop.commit()
        shop.publish()
        check(shop)
    assert {c.relation: c.objection for c in check_tables(shop.meta, shop.settings)} == dict.fromkeys(NAMES)


def test_a_table_is_written_again_if_the_log_has_lost_commits_of_others(shop: Shop) -> None:
    place = f"{shop.folder}/tables/ratios"
    for ratio in (7.5, 8.5):
        row = pa.table({"ratio": [ratio], "n": pa.array([1], pa.int32())})
        write_deltalake(DeltaTable(place), row, mode="append")
    DeltaTable(place).create_checkpoint()
    for version in (0, 1):
        Path(place, "_delta_log", f"{version:020}.json").unlink()
    for _ in range(2):
        shop.change()
        shop.commit()
        shop.publish()
        check(shop)


def set_rules(shop: Shop, name: str, features: list[str], properties: dict[str, str]) -> None:
    """Commit features and properties, as ALTER TABLE of Spark does."""
    (first,) = [commit for commit in commits_of(shop, name) if any("protocol" in action for action in commit)]
    protocol = next(action["protocol"] for action in first if "protocol" in action)
    metadata = next(action["metaData"] for action in first if "metaData" in action)
    readers = [*protocol["readerFeatures"], *(feature for feature in features if feature == "columnMapping")]
    protocol |= {"readerFeatures": readers, "writerFeatures": [*protocol["writerFeatures"], *features]}
    metadata["configuration"] |= properties
    actions = [{"protocol": protocol}, {"metaData": metadata}]
    entry = f"{shop.folder}/tables/{name}/_delta_log/{table_of(shop, name).version() + 1:020}.json"
    Path(entry).write_text("\n".join(map(json.dumps, actions)))


@pytest.mark.parametrize(
    ("feature", "properties", "says"),
    [
        ("rowTracking", {}, "has the table feature rowTracking, which another program has set"),
        ("columnMapping", {}, "has the table feature columnMapping, which"),
        ("inCommitTimestamp", {"delta.enableInCommitTimestamps": "true"}, "has the property delta.enableInCommit"),
        ("appendOnly", {"delta.appendOnly": "true"}, "has the property delta.appendOnly = true"),
        ("checkConstraints", {"delta.constraints.c": "n > 0"}, "has the property delta.constraints.c = n > 0"),
        ("appendOnly", {"delta.logRetentionDuration": "interval 9 days"}, None),
    ],
)
def test_rules_that_another_program_sets_are_named_unless_commits_follow_them(
    shop: Shop, feature: str, properties: dict[str, str], says: str | None
) -> None:
    set_rules(shop, "by_shop", [feature], properties)
    shop.change()
    shop.commit()
    if says is None:
        shop.publish()
        assert table_of(shop, "by_shop").metadata().configuration.items() >= properties.items()
    else:
        with pytest.raises(TablesNotPublishedError, match=re.escape(says)):
            shop.publish()
        shutil.rmtree(shop.folder / "tables/by_shop")
        shop.publish()
    check(shop)


@pytest.mark.parametrize("lost", ["documents", "everything"])
def test_a_lost_locator_is_made_again_from_key_columns(shop: Shop, lost: str) -> None:
    folder = Path(shop.address) / FOLDER
    if lost == "everything":
        shutil.rmtree(folder)
    else:
        for document in folder.rglob("*.json"):
            document.unlink()
    shop.change()
    shop.commit()
    shop.publish()
    check(shop)
    assert not any("metaData" in action for action in commits_of(shop, "orders")[1]), "it was written again"
    shop.change()
    shop.commit()
    shop.publish()
    check(shop)


def test_upkeep_moves_rows_and_locator_together(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        shop.change()
        shop.commit()
        shop.publish()
        tidy_tables(shop.meta, shop.settings, 0)
        assert all(len(table_of(shop, name).file_uris()) <= 1 for name in NAMES)
        check(shop)
    commits = commits_of(shop, "events")
    assert not any("metaData" in action for commit in commits[1:] for action in commit), "hidden keys moved along"


def test_upkeep_joins_files_of_spark_with_own_ones(shop: Shop) -> None:
    """Spark writes timestamps as INT96, which Arrow reads as nanoseconds without a zone."""
    for _ in range(3):
        shop.change()
        shop.commit()
        shop.publish()
    table = table_of(shop, "orders")
    table.optimize.compact()
    table.update_incremental()
    (file,) = (uri.removeprefix("file://") for uri in table.file_uris())
    pq.write_table(pq.read_table(file), file, use_deprecated_int96_timestamps=True)
    for _ in range(3):
        shop.change()
        shop.commit()
        shop.publish()
    tidy_tables(shop.meta, shop.settings, 0)
    check(shop)


def test_each_tenth_version_has_a_checkpoint_from_which_the_table_can_be_read(shop: Shop) -> None:
    shop.settings = msgspec.structs.replace(shop.settings, relations=("orders",))
    for _ in range(10):
        shop.change()
        shop.commit()
        shop.publish()
    log = Path(f"{shop.folder}/tables/orders/_delta_log")
    assert list(log.glob("*.checkpoint.parquet"))
    for entry in sorted(log.glob("*[0-9].json"))[:10]:
        entry.unlink()
    shutil.rmtree(Path(shop.address) / FOLDER)
    shop.change()
    shop.commit()
    shop.publish()
    assert read_back(f"{shop.folder}/tables/orders") == in_order(shop.model()["orders"])


def dying(call: int, after: bool) -> Iterator[list[int]]:
    """Patch the writes of object stores so that call number `call` kills the process, before or after its effect.

    Yields a list of one number, which is not negative afterwards if there were fewer calls.
    """
    left = [call]

    def patched(function: Callable[..., Any]) -> Callable[..., Any]:
        def write(*args: Any) -> Any:
            mine = left[0]
            left[0] -= 1
            if mine == 0 and not after:
                raise Killed
            answer = function(*args)
            if mine == 0:
                raise Killed
            return answer

        return write

    with pytest.MonkeyPatch.context() as patch:
        for name in ("put", "put_if_absent", "get", "get_ranges"):
            patch.setattr(LocalObjectStore, name, patched(getattr(LocalObjectStore, name)))
        yield left


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("stride", [7, pytest.param(1, marks=pytest.mark.deep)])
def test_a_publish_that_is_killed_at_any_request_loses_and_repeats_nothing(
    tmp_path: Path, stride: int, after: bool
) -> None:
    shop = Shop(tmp_path)
    shop.settings = msgspec.structs.replace(shop.settings, relations=("orders", "events"))
    kills, call, left = 0, int(after), [0]
    while True:
        shop.change()
        epoch = shop.commit()
        for counted in dying(call, after):
            left = counted
            try:
                shop.publish(epoch)
            except Killed:
                kills += 1
        for name in ("orders", "events"):  # nothing is torn in between
            if Path(f"{shop.folder}/tables/{name}/_delta_log").exists():
                read_back(f"{shop.folder}/tables/{name}")
        shop.publish(epoch)
        for name in ("orders", "events"):
            assert read_back(f"{shop.folder}/tables/{name}") == in_order(shop.model()[name]), (call, name)
            epochs = published_epochs(shop, name)
            assert len(epochs) == len(set(epochs)), (call, name)
        if left[0] >= 0:
            break
        call += stride
    assert kills >= 15 / stride, kills


def test_files_of_the_table_are_named_by_their_content(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A publish that lost its commit writes the same objects again."""
    shop.change()
    shop.commit()
    commit, lost = DeltaLocatedSink._commit, set[str]()

    def lose_first(self: DeltaLocatedSink, *args: Any) -> str:
        if self.place not in lost:
            lost.add(self.place)
            raise delta_located.BeatenError
        return commit(self, *args)

    monkeypatch.setattr(DeltaLocatedSink, "_commit", lose_first)
    shop.publish()
    check(shop)
    folder = Path(f"{shop.folder}/tables/orders")
    named = {Path(action["add"]["path"]).name for c in commits_of(shop, "orders") for action in c if "add" in action}
    assert {file.name for file in folder.glob("*.parquet")} == named


def test_equal_vectors_of_other_files_and_states_have_an_object_of_their_own() -> None:
    """Upkeep may remove an unneeded object while a commit adds one with equal bytes."""
    vector = BitMap64([0, 1])
    names = [encode_vectors({path: vector}, salt)[0] for path, salt in (("a", "1"), ("b", "1"), ("a", "2"), ("a", "1"))]
    assert len(set(names)) == 3
    assert names[3] == names[0], "a repeated publish writes the same object"


def test_upkeep_names_a_table_whose_first_log_entry_is_gone(shop: Shop) -> None:
    """A publish reads the newest entry only."""
    shop.change()
    shop.commit()
    shop.publish()
    Path(f"{shop.folder}/tables/orders/_delta_log/{0:020}.json").unlink()
    with pytest.raises(TablesNotPublishedError, match="is missing") as raised:
        tidy_tables(shop.meta, shop.settings, 0)
    assert list(raised.value.failures) == ["orders"]


def test_an_unchanged_head_is_known_without_the_package(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_log(*_: object) -> None:
        raise AssertionError("the whole log was read")

    shop.change()
    shop.commit()
    monkeypatch.setattr("tussock.jobs.sinks.delta_rs.open_table", no_log)
    shop.publish()
    check(shop)


def test_a_check_finds_rows_and_places_that_differ(shop: Shop) -> None:
    (path,) = Path(f"{shop.folder}/tables/orders").glob("*.parquet")
    log = Path(f"{shop.folder}/tables/orders/_delta_log/{0:020}.json")
    rows, content, entry = pq.read_table(path), path.read_bytes(), log.read_text()
    backwards = rows.take(pa.array(range(rows.num_rows)[::-1]))
    for damaged, finding in ((backwards, "wrong places for"), (rows.slice(1), "1 rows of the table and of epoch")):
        pq.write_table(damaged, path)
        log.write_text(entry.replace(f'"size":{len(content)}', f'"size":{path.stat().st_size}'))
        objections = {check.relation: check.objection for check in check_tables(shop.meta, shop.settings)}
        assert finding in (objections.pop("orders") or ""), finding
        assert not any(objections.values()), objections
    path.write_bytes(b"damaged")
    assert "its rows cannot be read" in str(next(check_tables(shop.meta, shop.settings)).objection)
    log.write_text(entry)
    path.write_bytes(content)
    shop.change()
    shop.commit()
    shop.publish()
    assert [(c.relation, c.objection) for c in check_tables(shop.meta, shop.settings)] == [(n, None) for n in NAMES]
    for document in (Path(shop.address) / FOLDER).rglob("*.json"):
        document.unlink()
    found = {check.relation: check.objection for check in check_tables(shop.meta, shop.settings)}
    assert found == dict.fromkeys(NAMES, "its locator is missing, and the next publish makes it again")


def test_a_reader_skips_no_file_with_characters_outside_of_the_first_plane(shop: Shop) -> None:
    for number in range(2):  # the second one marks a row, and so writes the statistics of the first file again
        shop.add_event("\U00020bb7", number)  # as in a Japanese name
        shop.commit()
        shop.publish()
    query = QueryBuilder().register("t", table_of(shop, "events"))
    found = query.execute("SELECT n FROM t WHERE kind = '\U00020bb7' AND n IS NOT NULL")
    assert sorted(pa.table(found.read_all())["n"].to_pylist()) == [0, 1]
