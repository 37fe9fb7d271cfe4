"""The expected answers of a store, from plain dicts, and small stores to compare with."""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import msgspec
import pyarrow as pa

from tussock.statestore.hummock.cache import BlockCache
from tussock.statestore.hummock.ingest import batch_ingest
from tussock.statestore.hummock.sealed_batch import SealedBatch
from tussock.statestore.hummock.shared_buffer import SharedBuffer
from tussock.statestore.hummock.sst_writer import build_sst, encode_blocks
from tussock.statestore.hummock.store import HummockStore
from tussock.statestore.meta.catalog import Catalog
from tussock.statestore.meta.version import HummockVersion, SstInfo, VnodeMapping
from tussock.statestore.objectstore.base import ObjectStore

Row = dict[str, object]
ROW_SCHEMA = pa.schema([pa.field("n", pa.int64()), pa.field("s", pa.string())])


def storage_key(table_id: int, vnode: int, primary: bytes) -> bytes:
    """A storage key whose primary key is a string, escaped and closed so that keys are prefix-free."""
    escaped = primary.replace(b"\x01", b"\x01\x02").replace(b"\x00", b"\x01\x01") + b"\x00"
    return table_id.to_bytes(4, "big") + vnode.to_bytes(2, "big") + escaped


def sealed(table_id: int, changes: dict[bytes, Row | None], schema: pa.Schema = ROW_SCHEMA) -> SealedBatch:
    """A sealed batch of these changes; None deletes."""
    keys = sorted(changes)
    rows = [changes[key] for key in keys]
    columns = [pa.array([None if row is None else row[f.name] for row in rows], f.type) for f in schema]
    ops = pa.array([0 if row is None else 1 for row in rows], pa.uint8())
    return SealedBatch(
        table_id, pa.table([pa.array(keys, pa.binary()), ops, *columns], names=["key", "op", *schema.names])
    )


#: All rows of a store at one epoch: table -> key -> row, keys ascending.
State = Mapping[int, Mapping[bytes, Row]]
#: An epoch's changes: table -> key -> the new row, or None if it is deleted.
Changes = Mapping[int, Mapping[bytes, Row | None]]

KINDS = ("iter", "multi_get", "scan_prefix")  # of reads


def changed(state: State, changes: Changes) -> State:
    """The rows after an epoch of these changes."""
    after = dict(state)
    for table, of in changes.items():
        rows = {**after.get(table, {}), **of}
        after[table] = {key: row for key in sorted(rows) if (row := rows[key]) is not None}
    return after


def assert_agrees(
    store: HummockStore, epoch: int, table: int, rows: Mapping[bytes, Row], seed: int, kinds: Iterable[str] = KINDS
) -> None:
    """Check that reads of a table at an epoch return `rows`; `seed` selects keys, bounds and limits."""
    rng = random.Random(seed)
    for kind in kinds:
        match kind:
            case "iter":
                _iter_agrees(store, epoch, table, rows, rng)
            case "multi_get":
                _multi_get_agrees(store, epoch, table, rows, rng)
            case "scan_prefix":
                _scan_prefix_agrees(store, epoch, table, rows, rng)


def _iter_agrees(store: HummockStore, epoch: int, table: int, rows: Mapping[bytes, Row], rng: random.Random) -> None:
    first, last = sorted(_some_keys(table, rows, rng, 2)) if rng.random() < 0.3 else (None, None)
    found = [(row.pop("key"), row) for part in store.iter_rows(table, first, last, epoch) for row in part.to_pylist()]
    expected = [
        (key, row) for key, row in rows.items() if (first is None or key >= first) and (last is None or key < last)
    ]
    assert found == expected, f"iter of table {table} from {first!r} to {last!r} at {epoch}"


def _multi_get_agrees(
    store: HummockStore, epoch: int, table: int, rows: Mapping[bytes, Row], rng: random.Random
) -> None:
    wanted = _some_keys(table, rows, rng, rng.choice([1, 5, 20]))
    found, got = store.multi_get(table, pa.array(wanted, pa.binary()), epoch, schema=ROW_SCHEMA)
    answers = [row if held else None for held, row in zip(found.to_pylist(), got.to_pylist(), strict=True)]
    assert answers == [rows.get(key) for key in wanted], f"multi_get of {wanted} of table {table} at {epoch}"


def _scan_prefix_agrees(
    store: HummockStore, epoch: int, table: int, rows: Mapping[bytes, Row], rng: random.Random
) -> None:
    prefixes = [key[: rng.choice([4, 6, 6, 7])] for key in _some_keys(table, rows, rng, rng.choice([1, 2, 4]))]
    limit, reverse = rng.choice([None, 1, 3]), rng.random() < 0.5
    index, keys, got = store.scan_prefix(
        table, pa.array(prefixes, pa.binary()), epoch, limit, reverse, schema=ROW_SCHEMA
    )
    expected = []
    for place, prefix in enumerate(prefixes):
        under = [(place, key, row) for key, row in rows.items() if key.startswith(prefix)]
        expected += (under[::-1] if reverse else under)[:limit]
    asked = f"scan_prefix of {prefixes} of table {table} at {epoch}, limit {limit}, reverse {reverse}"
    assert list(zip(index.to_pylist(), keys.to_pylist(), got.to_pylist(), strict=True)) == expected, asked


def assert_changes_agree(
    store: HummockStore,
    since: int,
    until: int,
    table: int,
    before: Mapping[bytes, Row],
    after: Mapping[bytes, Row],
    rng: random.Random,
) -> int:
    """The net changes between two epochs must be the difference of two states. Returns how many there are."""
    first, last = sorted(_some_keys(table, before, rng, 2)) if rng.random() < 0.3 else (None, None)
    found = []
    for part in store.read_changes(table, first, last, since, until):
        weights = part.column("weight").to_pylist()
        assert weights == sorted(weights)
        found += [(row.pop("key"), row.pop("weight"), row) for row in part.to_pylist()]
    old = [(key, -1, row) for key, row in before.items() if after.get(key) != row]
    new = [(key, 1, row) for key, row in after.items() if before.get(key) != row]
    expected = [
        change for change in old + new if (first is None or change[0] >= first) and (last is None or change[0] < last)
    ]
    asked = f"changes of table {table} from {first!r} to {last!r} after {since} up to {until}"
    assert sorted(found, key=repr) == sorted(expected, key=repr), asked
    return len(found)


def _some_keys(table: int, rows: Mapping[bytes, Row], rng: random.Random, count: int) -> list[bytes]:
    """Existing keys, keys that may have existed, and keys that never did; with repeats."""
    there = list(rows)
    return [
        rng.choice(there)
        if there and rng.random() < 0.5
        else storage_key(table, rng.randrange(9), b"%d" % rng.randrange(14))
        for _ in range(count)
    ]


def empty_version() -> HummockVersion:
    """A version without rows that has committed nothing."""
    return HummockVersion(
        id=0,
        epoch=0,
        published=0,
        min_readable_epoch=0,
        log_end=0,
        levels=((),),
        catalog=Catalog(),
        mapping=VnodeMapping(0, (0,)),
    )


def with_l0(version: HummockVersion, epoch: int, ssts: Sequence[SstInfo]) -> HummockVersion:
    """The version after an epoch has committed these SSTs."""
    levels = ((*ssts, *version.levels[0]), *version.levels[1:])
    return msgspec.structs.replace(version, id=version.id + 1, epoch=epoch, levels=levels)


@dataclass
class StoreModel:
    """A store and the dict it must agree with."""

    objects: ObjectStore
    version: HummockVersion = field(default_factory=empty_version)
    rows: dict[bytes, dict[int, Row | None]] = field(default_factory=dict)
    # table -> (epoch, rows that are in no SST yet)
    in_flight: dict[int, list[tuple[int, SealedBatch]]] = field(default_factory=dict)

    def store(self, cache: BlockCache | None = None) -> HummockStore:
        """A store on the newest epoch, those in flight counted."""
        runs = {
            table: [(epoch, lambda batch=batch: batch) for epoch, batch in held]
            for table, held in self.in_flight.items()
        }
        return HummockStore(self.objects, self.version, cache or BlockCache(), buffer=SharedBuffer(runs))

    def commit(
        self, epoch: int, batches: Iterable[SealedBatch], target_bytes: int = 1 << 20, in_flight: bool = False
    ) -> list[SstInfo]:
        """Ingest and commit an epoch, in the store and in the dict. In flight, only its first batch is in an SST."""
        batches = list(batches)
        for batch in batches[1:] if in_flight else ():
            self.in_flight.setdefault(batch.table_id, []).append((epoch, batch))
        ssts = batch_ingest(
            self.objects, batches[:1] if in_flight else batches, epoch, f"data/{epoch:016x}", target_bytes
        )
        self.version = with_l0(self.version, epoch, ssts)
        for batch in batches:
            keys, ops = batch.rows.column(0).to_pylist(), batch.rows.column(1).to_pylist()
            values = batch.rows.select(range(2, batch.rows.num_columns)).to_pylist()
            for key, op, value in zip(keys, ops, values, strict=True):
                self.rows.setdefault(key, {})[epoch] = value if op else None
        return ssts

    def rewrite(self, target_rows: int, schema: pa.Schema = ROW_SCHEMA) -> None:
        """Put all versions of all rows into level 1, from the dict and without the store's merge."""
        ssts, entries = (
            [],
            [(key, epoch) for key in sorted(self.rows) for epoch in sorted(self.rows[key], reverse=True)],
        )
        tables = sorted({key[:4] for key, _ in entries})
        for table in tables:
            mine = [entry for entry in entries if entry[0][:4] == table]
            cuts = [
                0,
                *[i for i in range(target_rows, len(mine), target_rows) if mine[i][0] != mine[i - 1][0]],
                len(mine),
            ]
            for start, end in pairwise(cuts):
                ssts.append(self._sst(mine[start:end], schema))
        self.version = msgspec.structs.replace(self.version, levels=((), tuple(ssts)))

    def _sst(self, entries: list[tuple[bytes, int]], schema: pa.Schema) -> SstInfo:
        values = [self.rows[key][epoch] for key, epoch in entries]
        columns = [pa.array([None if row is None else row[f.name] for row in values], f.type) for f in schema]
        sizes = {len(key) for key, _ in entries}
        heads = [
            pa.array([key for key, _ in entries], pa.binary(sizes.pop()) if len(sizes) == 1 else pa.binary()),
            pa.array([epoch for _, epoch in entries], pa.uint64()),
            pa.array([row is not None for row in values]).cast(pa.uint8()),
        ]
        rows = pa.table([*heads, *columns], names=["key", "epoch", "op", *schema.names])
        sst = build_sst([encode_blocks(int.from_bytes(entries[0][0][:4], "big"), rows)], "data/rewritten")
        self.objects.put(sst.info.name, sst.data)
        return sst.info

    def get(self, key: bytes, epoch: int) -> Row | None:
        """The row of a key as of an epoch."""
        seen = [at for at in self.rows.get(key, {}) if at <= epoch]
        return self.rows[key][max(seen)] if seen else None

    def scan(self, epoch: int, first: bytes = b"", last: bytes | None = None) -> list[tuple[bytes, Row]]:
        """Live rows of first … last (exclusive) as of an epoch, in key order."""
        keys = sorted(key for key in self.rows if key >= first and (last is None or key < last))
        return [(key, row) for key in keys if (row := self.get(key, epoch)) is not None]
