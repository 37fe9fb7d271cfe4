"""Branches: stores that begin as a version of another one and refer to its objects."""

from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import pytest

from tests.support.memory_store import MemoryObjectStore
from tests.support.small_pages import small_pages
from tests.support.statestore.meta.make import Clock
from tussock.jobs.facts.branches import list_branches
from tussock.statestore.hummock.vacuum import vacuum_store
from tussock.statestore.meta import branch as branches
from tussock.statestore.meta.barrier import BarrierPlan
from tussock.statestore.meta.branch import first_id_of
from tussock.statestore.meta.compaction import CompactionPlan
from tussock.statestore.meta.errors import (
    BranchedBranchError,
    BranchExistsError,
    BranchGoneError,
    EpochExpiredError,
    EpochMergedError,
    EpochNotCommittedError,
    SettingError,
)
from tussock.statestore.meta.manifest import manifest_of
from tussock.statestore.meta.names import PAGES, ROOTS, data_prefix, hash_of, task_prefix
from tussock.statestore.meta.pages import laid_out
from tussock.statestore.meta.snapshots import SNAPSHOT_EVERY, Snapshots
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import LevelInput, SectionInfo, SstInfo
from tussock.statestore.objectstore.branch import BranchMark, BranchObjects
from tussock.statestore.objectstore.open import open_object_store

DAY_MS = 86_400_000


def _parent(clock: Clock | None = None) -> MetaStore:
    objects = MemoryObjectStore()
    MetaStore.init(objects, vnode_count=4)
    return MetaStore(objects, "parent", clock or Clock())


def _run_epoch(meta: MetaStore, statements: int = 0, key: bytes = b"a") -> int:
    """Commit an epoch with one SST of one key. `statements`: appended before and taken."""
    for i in range(statements):
        meta.append_log(f"{meta.writer}-{meta.log_end()}-{i}", b'{"n":1}', is_new=True)
    version = meta.read_latest()
    barrier = meta.inject_barrier(version.epoch, BarrierPlan(mapping=version.mapping, log_end=meta.log_end()))
    data = f"{meta.objects.uri} {barrier.epoch}".encode()
    name = f"{data_prefix(barrier.epoch)}{hash_of(data)}.sst"
    meta.objects.put(name, data)
    section = SectionInfo(1, key, key, 1, 1)
    sst = SstInfo(name, 1, 1, 1, barrier.epoch, barrier.epoch, (section,))
    meta.commit_epoch(meta.seal_epoch(manifest_of(barrier, meta.writer, (sst,))))
    return barrier.epoch


def test_a_branch_begins_with_the_rows_and_statements_of_its_parent_and_shares_no_later_one() -> None:
    clock = Clock()
    parent = _parent(clock)
    first = _run_epoch(parent, statements=2)
    branch = parent.open_branch("b", follows=False)
    assert branch.read_latest().levels == parent.read_latest().levels
    assert (branch.read_latest().epoch, branch.log_end()) == (first, 2)
    clock.now_ms += 1
    mine, theirs = _run_epoch(branch, statements=1), _run_epoch(parent)
    assert mine == theirs  # the clock has not moved on, so the epochs have one number
    assert [entry.position for entry in branch.read_log(2, branch.log_end())] == [2]
    assert parent.log_end() == 2
    for meta, other in ((branch, parent), (parent, branch)):
        version = meta.read_latest()
        assert len(version.levels[0]) == 2
        assert meta.read_manifest(mine) != other.read_manifest(mine)
        contents = [meta.objects.get(sst.name).decode() for sst in version.levels[0]]
        assert contents == [f"{meta.objects.uri} {mine}", f"{parent.objects.uri} {first}"]
    assert branch.read_manifest(first) == parent.read_manifest(first)


def test_identifiers_of_a_branch_never_meet_those_of_its_parent_or_of_another_branch() -> None:
    parent = _parent()
    catalogs = [parent.open_branch(name).read_latest() for name in ("a", "b")]
    ids = [version.catalog.next_table_id for version in (*catalogs, parent.read_latest())]
    assert ids == [first_id_of(1), first_id_of(2), 1]
    assert len({version.next_task_id >> 40 for version in (*catalogs, parent.read_latest())}) == 3


def test_a_branch_writes_and_deletes_only_below_its_prefix() -> None:
    parent = _parent()
    _run_epoch(parent)
    before = dict(parent.objects.held)  # type: ignore[attr-defined]
    branch = parent.open_branch("b")
    epoch = _run_epoch(branch, statements=3)
    branch.publish(epoch)
    branch.objects.delete([*before, "meta/store.json"])
    after = parent.objects.held  # type: ignore[attr-defined]
    changed = {name for name in after if after[name] != before.get(name)}
    assert {name for name in changed if not name.startswith("branches/")} == {"meta/version/00000000000000000002.json"}
    assert not before.keys() - after.keys()


def test_the_address_of_a_branch_opens_it_in_another_process() -> None:
    objects = BranchObjects(open_object_store("/a/b,c:d"), _mark_of("pr-1.x"))
    again = open_object_store(objects.uri)
    assert isinstance(again, BranchObjects)
    assert (again.mark, again.parent.uri) == (objects.mark, "file:///a/b%2Cc%3Ad")


def _mark_of(name: str) -> BranchMark:
    return BranchMark(name, 3, 5, 7)


def test_a_killed_creation_is_completed_by_the_next_process_that_opens_the_branch() -> None:
    parent = _parent()
    parent.open_branch("b")
    parent.objects.delete(["branches/0000000001/meta/store.json"])
    branch = MetaStore(parent.objects, "next", Clock()).branch("b")
    assert branch.settings.origin is not None
    assert branch.read_latest().id == 0


def test_a_name_is_taken_until_its_branch_ends_and_the_number_is_never_used_again() -> None:
    parent = _parent()
    parent.open_branch("b", id="one")
    assert parent.open_branch("b", id="one").settings.origin == parent.branch("b").settings.origin
    with pytest.raises(BranchExistsError):
        parent.open_branch("b")
    parent.end_branch("b")
    with pytest.raises(BranchGoneError):
        parent.branch("b")
    branch = parent.open_branch("b")
    assert branch.settings.origin is not None
    assert branch.settings.origin.number == 2


def test_a_branch_ends_by_age_and_only_then() -> None:
    clock = Clock()
    parent = _parent(clock)
    parent.open_branch("short", keep_ms=DAY_MS)
    parent.open_branch("long", keep_ms=2 * DAY_MS)
    clock.now_ms += DAY_MS - 1
    assert parent.end_lapsed_branches() == ()
    clock.now_ms += 1
    assert parent.end_lapsed_branches() == ("short",)
    assert [branch.name for branch in parent.read_latest().branches] == ["long"]


def test_no_branch_begins_in_a_branch_at_an_expired_epoch_or_with_another_stores_name() -> None:
    clock = Clock()
    parent = _parent(clock)
    first = _run_epoch(parent)
    clock.now_ms += 1
    parent.publish(second := _run_epoch(parent))
    branch = parent.open_branch("b", epoch=first)
    assert branch.read_latest().epoch == first
    assert len(branch.read_latest().levels[0]) == 1
    with pytest.raises(BranchedBranchError):
        branch.open_branch("c")
    parent.raise_floor(second)
    with pytest.raises(EpochExpiredError):
        parent.open_branch("c", epoch=first)
    for name in ("", "a/b", "..", "x" * 64, "a,b"):
        with pytest.raises(SettingError, match="the name of a branch"):
            parent.open_branch(name)


def test_a_branch_that_is_opened_without_its_parent_says_so() -> None:
    parent = _parent()
    branch = parent.open_branch("b")
    assert isinstance(branch.objects, BranchObjects)
    with pytest.raises(SettingError, match="--branch b"):
        MetaStore(branch.objects.own, "other", Clock()).read_latest()


def test_settings_of_a_store_that_is_no_branch_have_no_origin() -> None:
    assert b"origin" not in msgspec.json.encode(_parent().settings)


def test_a_branch_names_the_pages_of_its_parent_and_writes_only_those_that_it_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small_pages(monkeypatch)
    clock = Clock()
    parent = _parent(clock)
    _run_epoch(parent)
    version = parent.read_latest()
    keys = [(7).to_bytes(4, "big") + i.to_bytes(4, "big") for i in range(200)]
    ssts = tuple(
        SstInfo(f"data/{1:016x}/{i:032x}.sst", 1, 1, 1, 1, 1, (SectionInfo(7, key, key, 1, 1),))
        for i, key in enumerate(keys)
    )
    large = msgspec.structs.replace(version, id=SNAPSHOT_EVERY, levels=(version.levels[0], ssts))
    Snapshots(parent.objects, lambda: version).write_snapshot(laid_out(large))
    parent = MetaStore(parent.objects, "parent", clock)
    pages_of_parent = {info.name for info in parent.objects.list(PAGES)}
    branch = parent.open_branch("b")
    for _ in range(SNAPSHOT_EVERY):
        clock.now_ms += 1
        _run_epoch(branch)
    own = [info.name for info in branch.objects.list(PAGES)]
    assert [info.name for info in branch.objects.list(ROOTS)]
    assert not own
    for _ in range(12 * SNAPSHOT_EVERY):  # the parent's root is old, and only the branch needs it
        clock.now_ms += 1
        _run_epoch(parent)
    vacuum_store(parent)
    assert pages_of_parent <= {info.name for info in parent.objects.list(PAGES)}
    again = MetaStore(parent.objects, "reader", clock).branch("b").read_latest()
    assert tuple(again.levels[1]) == ssts


def test_only_the_module_of_branches_knows_an_empty_first_version() -> None:
    folder = Path(branches.__file__).parents[1]
    users = [path.name for path in folder.rglob("*.py") if "initial_version" in path.read_text()]
    assert sorted(users) == ["branch.py", "settings.py"], "call first_version: version 0 of a branch has rows"


def test_own_epochs_of_a_following_branch_lie_between_two_of_its_parent() -> None:
    clock = Clock()
    parent = _parent(clock)
    first = _run_epoch(parent)
    branch = parent.open_branch("b")
    own = [_run_epoch(branch) for _ in range(5)]
    clock.now_ms = 0  # the clock does not matter
    barrier = branch.inject_barrier(own[-1], BarrierPlan(mapping=branch.read_latest().mapping, log_end=0))
    own += [barrier.epoch, branch.supersede_barrier(barrier, BarrierPlan(mapping=barrier.mapping, log_end=0)).epoch]
    assert own == sorted(set(own))
    assert first < own[0] < own[-1] < _run_epoch(parent)


def test_a_branch_follows_from_an_older_epoch_only_if_the_ssts_of_later_epochs_are_still_in_use() -> None:
    clock = Clock()
    parent = _parent(clock)
    first = _run_epoch(parent)
    clock.now_ms += 1
    _run_epoch(parent, key=b"b")
    parent.open_branch("before", epoch=first)
    (later, _) = parent.read_latest().levels[0]
    task = parent.open_compaction(CompactionPlan((LevelInput(0, (later.name,)),), 7))
    name = f"{task_prefix(task.id)}{hash_of(b'merged')}.sst"
    parent.commit_compaction(task, [msgspec.structs.replace(later, name=name)])
    parent.open_branch("own", epoch=first, follows=False)
    with pytest.raises(EpochMergedError):
        parent.open_branch("follows", epoch=first)


def test_the_version_of_each_readable_epoch_is_found_also_of_epochs_before_a_branch() -> None:
    clock = Clock()
    parent = _parent(clock)
    theirs = []
    for _ in range(3):
        clock.now_ms += 1
        theirs.append(_run_epoch(parent))
    assert [parent.version_when(epoch).epoch for epoch in (0, *theirs)] == [0, *theirs], "also the newest one"
    branch = parent.open_branch("own", epoch=theirs[1], follows=False)
    clock.now_ms += 1
    mine = (0, *theirs[:2], _run_epoch(branch))
    assert branch.read_latest().epochs == mine
    for epoch in mine:
        found = branch.version_when(epoch)
        assert (found.epoch, len(found.levels[0])) == (epoch, mine.index(epoch))
    with pytest.raises(EpochNotCommittedError):
        branch.version_when(theirs[2])


def test_two_processes_that_begin_a_branch_at_once_get_the_same_one() -> None:
    parent = _parent()
    slow = MetaStore(parent.objects, "slow", Clock())
    opened: list[MetaStore] = []
    open_branch = slow.open_branch

    def open_after_the_other(*given: Any, **named: Any) -> MetaStore:
        opened.append(parent.branch_or_new("b"))
        return open_branch(*given, **named)

    with patch.object(slow, "open_branch", open_after_the_other):
        assert slow.branch_or_new("b").objects.uri == opened[0].objects.uri
    assert slow.branch_or_new("b").objects.uri == opened[0].objects.uri
    assert len(parent.read_latest().branches) == len(opened) == 1


def test_a_branch_may_be_kept_longer_than_python_has_years() -> None:
    parent = _parent()
    parent.open_branch("b", timedelta.max // timedelta(milliseconds=1))
    assert parent.end_lapsed_branches() == ()
    assert [str(branch.ends) for branch in list_branches(parent)] == ["9999-12-31 23:59:59+00:00"]
