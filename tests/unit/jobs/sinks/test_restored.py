"""The published tables of a store that is restored from a copy, moved or cloned.

A mirror in plain Python has the rows of each store. The procedures follow docs/operations.md.
"""

import os
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from tests.support.jobs.driver.embedded import append
from tests.support.jobs.sinks.delta_readers import package_rows
from tests.support.s3_servers import BUCKET, moto_process, moto_server
from tests.support.waiting import next_second
from tussock.jobs import cli
from tussock.jobs.delta.location import location_of
from tussock.jobs.facts.published import compare_published
from tussock.jobs.facts.status_reader import read_status
from tussock.jobs.logical.nodes import AggCall, Aggregate, Column, Field, Scan
from tussock.jobs.logical.statements import CreateTable, CreateView
from tussock.jobs.reading.read import BackwardsError
from tussock.jobs.session import Session
from tussock.jobs.settings.home import CopiedStoreError, cloned_here, home_of, moved_here, place_of, recorded_home
from tussock.jobs.settings.pipeline import Pipeline
from tussock.jobs.settings.process import clock_ms, open_meta
from tussock.jobs.settings.publishing import KINDS
from tussock.jobs.sinks.base import ForeignTableError
from tussock.jobs.sinks.manifest import manifest_epochs, read_manifest, write_manifest
from tussock.jobs.sinks.publication import publish_tables
from tussock.jobs.sinks.records import read_records
from tussock.statestore.meta.epoch import time_of_ms
from tussock.statestore.meta.errors import EpochNotCommittedError
from tussock.statestore.meta.names import STORE
from tussock.statestore.objectstore.open import open_object_store

FIELDS = (Field("k", "int"), Field("x", "int"))
RELATIONS = ("t", "n")
FOLDERS = ("delta", "parquet", "iceberg")  # kinds of sinks in folders


class Store:
    """One store with a table and a view over it, the folder of its tables, and a mirror of its rows."""

    def __init__(self, address: str, to: str, kind: str, rows: dict[int, int] | None = None) -> None:
        self.address, self.settings, self.rows = (
            address,
            KINDS[kind](to, RELATIONS),
            dict(rows or {}),
        )
        self.lines: list[str] = []

    @classmethod
    def made(cls, address: str, to: str, kind: str) -> "Store":
        groups, counts = (Column(0, "int"),), (AggCall("Count", "bigint", ()),)
        count = Aggregate(Scan("t", (1,), FIELDS[1:]), groups, counts, (FIELDS[1], Field("n", "bigint")))
        with Session(address, runner="local") as session:
            append(
                session.meta,
                CreateTable("t", FIELDS, (0,)),
                CreateView("n", "SELECT x, count(*) AS n FROM t GROUP BY x", count),
            )
        return cls(address, to, kind)

    def insert(self, *keys: int, value: int = 0) -> int:
        """Run an epoch with these keys. It is published in the store, but not in the tables yet."""
        with Session(self.address, create=False, runner="local") as session:
            rows = pa.table({"k": pa.array(keys, pa.int32()), "x": pa.array([value] * len(keys), pa.int32())})
            session.insert("t", rows)
            self.rows |= dict.fromkeys(keys, value)
            return session.flush().epoch

    def publish(self) -> None:
        self.lines = []
        meta = open_meta(self.address)
        publish_tables(meta, self.settings, progress=self.lines.append)

    def follows(self) -> bool:
        """Whether `tussock status` finds no problem with the tables and the store's place."""
        found = read_status(
            open_meta(self.address),
            time_of_ms(clock_ms()),
            Pipeline("", Path(), self.address, (), publish=(self.settings,)),
        )
        return not any(trouble.wrong for trouble in found.troubles)

    def check(self) -> None:
        """Check that the tables equal the mirror, no state of another history is named, and status finds no problem."""
        counts: dict[int, int] = {}
        for value in self.rows.values():
            counts[value] = counts.get(value, 0) + 1
        location = location_of(self.settings.to)
        for name, wanted in (("t", self.rows), ("n", counts)):
            assert sorted(read(location, name, self.settings.kind)) == sorted(wanted.items()), name
        with Session(self.address, create=False, runner="local") as session:
            epochs = session.meta.read_latest().epochs
        assert set(manifest_epochs(location.objects)) <= set(epochs)
        if self.settings.kind == "parquet":
            for info in location.objects.list("t/"):
                assert int(info.name.removeprefix("t/").removesuffix(".parquet")) in epochs
        assert self.follows()


def read(location: Any, name: str, kind: str) -> list[tuple[int, int]]:
    if kind == "parquet":
        newest = max(info.name for info in location.objects.list(f"{name}/"))
        rows = pq.read_table(location.open_file(newest))
    elif kind == "iceberg":
        places = {"uri": f"sqlite:///{location.root}/catalog.db", "warehouse": f"file://{location.root}"}
        rows = load_catalog("tussock", type="sql", **places).load_table(f"tussock.{name}").scan().to_arrow()
    else:
        rows = package_rows(DeltaTable(location.table_uri(name), storage_options=location.delta_options or None))
    return list(zip(*(column.to_pylist() for column in rows.columns), strict=True))


def put_back(copy: str, store: str) -> None:
    shutil.rmtree(store)
    shutil.copytree(copy, store)


@pytest.fixture(params=FOLDERS)
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    store = Store.made(f"{tmp_path}/store", f"{tmp_path}/tables", request.param)
    store.insert(1, 2)
    store.publish()
    store.check()
    return store


#: For behaviour that does not depend on the kind of the tables: both kinds only in deep runs.
one_kind = pytest.mark.parametrize(
    "shop", ["parquet", *(pytest.param(kind, marks=pytest.mark.deep) for kind in ("delta", "iceberg"))], indirect=True
)


def test_tables_of_a_store_that_is_put_back_lose_the_rows_of_epochs_that_it_does_not_have(
    shop: Store, tmp_path: Path
) -> None:
    shutil.copytree(shop.address, tmp_path / "copy")
    then = dict(shop.rows)
    lost = shop.insert(3, 4, value=7)
    shop.publish()
    put_back(f"{tmp_path}/copy", shop.address)
    shop.rows = then
    # Before any epoch: the epoch of the copy is published again.
    assert not shop.follows()
    facts = compare_published(open_meta(shop.address), shop.settings)
    assert facts.strange == (lost,)
    shop.publish()
    assert f"it contains epoch {lost}, which this store lacks: the store was restored from a copy" in "\n".join(
        shop.lines
    )
    shop.check()
    shop.publish()
    assert shop.lines == []
    # Then it continues with differences.
    shop.insert(5)
    shop.publish()
    assert not any("replaced" in line for line in shop.lines)
    shop.check()


def test_a_store_that_is_restored_and_continues_before_it_publishes(shop: Store, tmp_path: Path) -> None:
    shutil.copytree(shop.address, tmp_path / "copy")
    then = dict(shop.rows)
    lost = shop.insert(3, 4, value=7)
    shop.publish()
    put_back(f"{tmp_path}/copy", shop.address)
    shop.rows = then
    since = shop.insert(5)
    with Session(shop.address, create=False, runner="local") as session:
        for reader in (
            lambda: session.changes("t", lost),
            lambda: session.changes("t", lost, since),
            lambda: session.read("t", epoch=lost),
        ):
            with pytest.raises(EpochNotCommittedError, match=f"epoch {lost} does not exist"):
                reader()
        with pytest.raises((EpochNotCommittedError, BackwardsError)):
            session.changes("t", since + 1)
    assert not shop.follows()
    shop.publish()
    shop.check()


@one_kind
def test_a_number_alone_does_not_make_an_epoch_the_stores_own(
    shop: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two histories whose clocks produced the same epoch: the tables are replaced."""
    shutil.copytree(shop.address, tmp_path / "copy")
    then, at = dict(shop.rows), clock_ms() + 1000
    monkeypatch.setattr("tussock.jobs.settings.process.clock_ms", lambda: at)
    lost = shop.insert(3, 4)
    shop.publish()
    put_back(f"{tmp_path}/copy", shop.address)
    shop.rows = then
    assert shop.insert(5) == lost
    assert not shop.follows()
    shop.publish()
    shop.check()
    monkeypatch.undo()
    shop.insert(6)
    shop.publish()
    shop.check()


@pytest.mark.parametrize(
    "step", [pytest.param(step, marks=[] if step in (4, 7) else pytest.mark.deep) for step in range(24)]
)
def test_a_publish_that_dies_while_it_replaces_tables_is_finished_by_the_next(tmp_path: Path, step: int) -> None:
    shop = Store.made(f"{tmp_path}/store", f"{tmp_path}/tables", "delta" if step % 2 else "parquet")
    shop.insert(1, 2)
    shop.publish()
    shutil.copytree(shop.address, tmp_path / "copy")
    then = dict(shop.rows)
    shop.insert(3, 4, value=7)
    shop.publish()
    put_back(f"{tmp_path}/copy", shop.address)
    shop.rows = then
    if step % 4:
        shop.insert(8)
    command = [
        sys.executable,
        "-m",
        "tests.support.jobs.sinks.publishing",
        shop.address,
        shop.settings.to,
        shop.settings.kind,
        str(step),
        "t,n",
    ]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode in (0, -9), done.stderr
    shop.publish()
    shop.check()


# --- places


@one_kind
def test_a_copy_writes_to_the_tables_of_the_original_only_on_request(
    shop: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(shop.address, tmp_path / "a copy")
    copy = Store(f"{tmp_path}/a copy", shop.settings.to, shop.settings.kind, shop.rows)
    copy.insert(9)  # the copy itself may be used
    with pytest.raises(CopiedStoreError) as refused:
        copy.publish()
    assert not copy.follows()
    shop.check()
    commands = [part.split("`")[0] for part in str(refused.value).split("`tussock ")[1:]]
    assert [command.split()[:2] for command in commands] == [["store", "moved"], ["store", "clone"]]
    # a clone, with the printed commands
    assert cli.main(_words(commands[1])) == 0
    with pytest.raises(ForeignTableError, match="another store"):
        copy.publish()
    assert not copy.follows()
    copy.settings = KINDS[shop.settings.kind](f"{tmp_path}/others", RELATIONS)
    copy.publish()
    copy.check()
    shop.insert(5)
    shop.publish()
    shop.check()
    assert "identity" in capsys.readouterr().out


@one_kind
def test_a_store_that_replaces_another_continues_its_tables_and_the_other_cannot(shop: Store, tmp_path: Path) -> None:
    """A backup is restored to another place, after the tables had advanced."""
    shutil.copytree(shop.address, tmp_path / "copy")
    moved = Store(f"{tmp_path}/copy", shop.settings.to, shop.settings.kind, shop.rows)
    shop.insert(3, 4)
    shop.publish()
    with pytest.raises(CopiedStoreError) as refused:
        moved.publish()
    assert cli.main(_words(str(refused.value).split("`tussock ")[1].split("`")[0])) == 0
    moved.publish()
    moved.check()
    moved.insert(6)
    moved.publish()
    moved.check()
    shop.insert(7)
    with pytest.raises(ForeignTableError, match="another store"):
        shop.publish()
    assert not shop.follows()
    moved.check()


@one_kind
def test_a_store_that_is_moved_as_a_whole_is_still_itself(shop: Store, tmp_path: Path) -> None:
    Path(shop.address).rename(tmp_path / "elsewhere")
    shop.address = f"{tmp_path}/elsewhere"
    shop.insert(3)
    shop.publish()
    assert not any("replaced" in line for line in shop.lines)
    shop.check()


def test_one_place_by_many_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Store.made(f"{tmp_path}/a b/store", f"{tmp_path}/tables", "parquet")
    shop.insert(1)
    (tmp_path / "link").symlink_to(tmp_path / "a b")
    monkeypatch.chdir(tmp_path)
    names = [
        f"{tmp_path}/link/store",
        f"file://{tmp_path}/a%20b/store",
        "a b/store",
        "./link/../link/store/",
        f"{tmp_path}//a b/./store",
    ]
    for key, name in enumerate(names, 2):
        shop.address = name
        shop.insert(key)
        shop.publish()
        shop.check()
    monkeypatch.setattr(socket, "gethostname", lambda: "another-container")  # a mount has its inodes on every host
    shop.publish()
    shop.check()


@one_kind
def test_a_tree_of_hard_links_is_a_copy(shop: Store, tmp_path: Path) -> None:
    shutil.copytree(shop.address, tmp_path / "links", copy_function=os.link)
    with pytest.raises(CopiedStoreError):
        home_of(open_object_store(f"{tmp_path}/links"))
    assert home_of(open_object_store(shop.address)).is_at(place_of(open_object_store(shop.address)))


# An Iceberg table contains the digest of its epoch.
@pytest.mark.parametrize("shop", ["parquet", pytest.param("delta", marks=pytest.mark.deep)], indirect=True)
def test_tables_without_a_record_of_their_history_are_replaced_once(shop: Store) -> None:
    tables = open_object_store(shop.settings.to)
    tables.delete([record.name for record in read_records(tables)])
    for epoch in manifest_epochs(tables):
        manifest = read_manifest(tables, epoch)
        assert manifest is not None
        write_manifest(tables, msgspec.structs.replace(manifest, digest=""), manifest)
    facts = compare_published(open_meta(shop.address), shop.settings)
    assert (facts.unknown, facts.strange) == (True, ())
    assert shop.follows()  # a note
    shop.publish()
    assert "no record tells which store wrote it" in "\n".join(shop.lines)
    shop.check()
    shop.publish()
    assert shop.lines == []


def _words(command: str) -> list[str]:
    return shlex.split(command)


# --- buckets


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with moto_process() as address:  # Delta holds Python's global lock while it waits
        yield address


def test_one_place_in_a_bucket_by_many_addresses() -> None:
    with moto_server() as server:
        options = f"?endpoint={server}&path_style=true"
        store = open_object_store(f"s3://{BUCKET}/a b/store{options}")
        store.put(STORE, b"")
        home = home_of(store)
        for address in (f"/a%20b/store/{options}", f"/a b/store?path_style=true&endpoint={server}/&region=us-east-1"):
            assert home_of(open_object_store(f"s3://{BUCKET}{address.replace('127.0.0.1', 'localhost')}")) == home
        next_second()
        copy = open_object_store(f"s3://{BUCKET}/copy{options}")
        for info in store.list(""):
            copy.put(info.name, store.get(info.name))
        with pytest.raises(CopiedStoreError):
            home_of(copy)
        store.put(STORE, b"")  # restored in its place
        assert home_of(store).id == home.id


@pytest.mark.deep
@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_a_store_in_a_bucket_that_keeps_versions_is_put_back_to_a_moment(endpoint: str, kind: str) -> None:
    bucket = f"{BUCKET}-{kind}"
    s3 = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
    s3.create_bucket(Bucket=bucket)
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    options = f"?endpoint={endpoint}&path_style=true"
    shop = Store.made(f"s3://{bucket}/store{options}", f"s3://{bucket}/tables{options}", kind)
    shop.insert(1, 2)
    shop.publish()
    then, kept = dict(shop.rows), {info.name for info in open_object_store(shop.address).list("")}
    next_second()
    shop.insert(3, 4)
    shop.publish()
    # Objects created after that moment get a delete marker.
    for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket, Prefix="store/"):
        for version in page.get("Versions", ()):
            name = version["Key"].removeprefix("store/")
            if version["IsLatest"] and name not in kept:
                s3.delete_object(Bucket=bucket, Key=version["Key"])
    shop.rows = then
    assert not shop.follows()
    shop.publish()
    shop.check()
    shop.insert(5)
    shop.publish()
    shop.check()
    # Another name of the same server, and another form of the address.
    shop.address = shop.address.replace("127.0.0.1", "localhost").replace("/store?", "/store/?") + "&region=us-east-1"
    shop.insert(6)
    shop.publish()
    shop.check()
    # A copy below another prefix.
    for info in open_object_store(shop.address).list(""):
        s3.copy_object(
            Bucket=bucket, Key=f"copy/{info.name}", CopySource={"Bucket": bucket, "Key": f"store/{info.name}"}
        )
    copy = Store(f"s3://{bucket}/copy{options}", shop.settings.to, kind, shop.rows)
    with pytest.raises(CopiedStoreError):
        copy.publish()
    moved_here(open_object_store(copy.address))
    copy.insert(7)
    copy.publish()
    copy.check()


# --- at random


def history(folder: Path, seed: int, kind: str, steps: int) -> None:
    """Copies, restores, clones and moves at random moments. After each publish, every table is compared with the
    mirror.
    """
    random = np.random.default_rng(seed)
    live = [Store.made(f"{folder}/store", f"{folder}/tables", kind)]
    live[0].insert(0)
    copies: list[tuple[str, str, dict[int, int]]] = []  # of a store at a moment: source, target, its rows
    done: list[str] = []
    for number in range(steps):
        shop = live[int(random.integers(len(live)))]
        what = str(
            random.choice(["insert", "insert", "publish", "publish", "copy", "restore", "clone", "move", "rename"])
        )
        done.append(f"{what} {shop.address}")
        match what:
            case "insert":
                shop.insert(*random.choice(30, 3, replace=False).tolist(), value=int(random.integers(4)))
            case "publish":
                shop.publish()
                shop.check()
            case "copy":
                copies.append((shop.address, f"{folder}/copy{number}", dict(shop.rows)))
                shutil.copytree(shop.address, copies[-1][1])
            case "restore":
                if mine := [copy for copy in copies if copy[0] == shop.address]:
                    _, kept, rows = mine[int(random.integers(len(mine)))]
                    put_back(kept, shop.address)
                    shop.rows = dict(rows)
            case "clone" if len(live) < 3:
                shutil.copytree(shop.address, f"{folder}/clone{number}")
                clone = Store(f"{folder}/clone{number}", shop.settings.to, kind, shop.rows)
                if recorded_home(open_object_store(shop.address)) is not None:
                    with pytest.raises(CopiedStoreError):
                        home_of(open_object_store(clone.address))
                cloned_here(open_object_store(clone.address))
                clone.settings = KINDS[kind](f"{folder}/tables{number}", RELATIONS)
                live.append(clone)
            case "move":  # a copy whose original is lost
                shutil.copytree(shop.address, f"{folder}/moved{number}")
                shutil.rmtree(shop.address)
                shop.address = f"{folder}/moved{number}"
                moved_here(open_object_store(shop.address))
            case "rename":
                home_of(
                    open_object_store(shop.address)
                )  # after a restore: a rename right after one looks like a copy, and is refused
                Path(shop.address).rename(f"{folder}/renamed{number}")
                shop.address = f"{folder}/renamed{number}"
                home_of(open_object_store(shop.address))  # a later copy records the new place
    for shop in live:
        shop.publish()
        shop.check()


@pytest.mark.parametrize("kind", FOLDERS)
def test_histories_of_copies_and_restores(tmp_path: Path, kind: str) -> None:
    history(tmp_path, 7, kind, 12)


@pytest.mark.deep
@pytest.mark.parametrize("kind", FOLDERS)
@pytest.mark.parametrize("seed", range(25))
def test_many_histories_of_copies_and_restores(tmp_path: Path, kind: str, seed: int) -> None:
    history(tmp_path, seed, kind, 60)
