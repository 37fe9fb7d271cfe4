"""Checks all of meta/: each document's checksum, a full replay of the version log, and snapshots against the replay.

The check trusts nothing that it can recompute: an intact snapshot that differs from the replay is damage. If a delta is
lost, the replay continues from the next intact snapshot, so one lost delta costs only the versions up to there.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from tussock.statestore.errors import DamagedError, InputError
from tussock.statestore.meta import packs
from tussock.statestore.meta.barrier import Barrier
from tussock.statestore.meta.branch import first_version
from tussock.statestore.meta.delta import VersionDelta, apply_delta
from tussock.statestore.meta.document import decode_document
from tussock.statestore.meta.manifest import SealedManifest
from tussock.statestore.meta.names import (
    BARRIERS,
    CLAIMS,
    ENTRIES,
    HEAD,
    MANIFESTS,
    PAYLOADS,
    PINS,
    ROOTS,
    SNAPSHOTS,
    STORE,
    VERSIONS,
    hash_of,
    list_numbered,
    root_name,
    snapshot_name,
    version_name,
)
from tussock.statestore.meta.packs import PackedLog, decode_pack, statement_packs, version_packs
from tussock.statestore.meta.pin import Pin
from tussock.statestore.meta.settings import read_settings
from tussock.statestore.meta.snapshots import VersionRoot, decode_page
from tussock.statestore.meta.statement_log import LogEntry
from tussock.statestore.meta.version import HummockVersion, SstInfo
from tussock.statestore.objectstore.base import ObjectNotFoundError, ObjectStore, object_exists
from tussock.statestore.progress import Progress, no_progress

_THREADS = 16
_CHUNK = 2048  # objects to prefetch
_PAYLOAD = re.compile(rb"meta/payload/[0-9a-f]{32}")

Document = TypeVar("Document", bound=msgspec.Struct)
Read = bytes | DamagedError | InputError  # an object's bytes, or the error of reading it

_UNREPLAYABLE = (
    "versions up to the next snapshot cannot be reconstructed; without a later snapshot, the store cannot be opened"
)


class _Any(msgspec.Struct, frozen=True):
    """A document; only its checksum is verified."""


@dataclass(frozen=True, slots=True)
class DamagedObject:
    """A damaged or missing object under meta/, and the consequences."""

    name: str
    missing: bool  # False: its bytes are wrong
    detail: str
    cost: str  # the operations that fail without it


@dataclass(slots=True)
class MetaReport:
    """The result of a check of meta/."""

    newest: HummockVersion | None = None  # the newest readable version, or None
    pinned: list[HummockVersion] = field(default_factory=list)  # versions that pins name, except the newest
    damages: list[DamagedObject] = field(default_factory=list)
    objects: int = 0
    bytes: int = 0

    def record_damage(self, name: str, err: object, cost: str) -> None:
        """Record damage."""
        self.damages.append(DamagedObject(name, isinstance(err, ObjectNotFoundError), str(err), cost))


def check_meta(objects: ObjectStore, progress: Progress = no_progress) -> MetaReport:
    """Read and check all of meta/. Damage goes into the report; only errors of the object store are raised.

    Cost: LIST requests, and one GET per object.
    """
    report = MetaReport()
    version = _read_first_version(objects, report)
    pins = [
        pin
        for _, pin in _intact_documents(
            objects, report, _list_names(objects, PINS), Pin, "its reader is not protected; delete it"
        )
    ]
    _replay_versions(objects, report, version, {pin.version for pin in pins}, progress)
    for prefix, kind, cost in (
        (BARRIERS, Barrier, "its epoch cannot be resumed; committed epochs are unaffected"),
        (MANIFESTS, SealedManifest, "if its epoch is not committed yet, it cannot be; committed epochs are unaffected"),
        (CLAIMS, _Any, "a repeat of its statement is refused; statements in the log are unaffected"),
        (HEAD, _Any, "opening the store costs more requests until the next snapshot rewrites it; delete it"),
    ):
        progress(f"reading {prefix}")
        for _ in _intact_documents(objects, report, _list_names(objects, prefix), kind, cost):
            pass
    _check_statements(objects, report, progress)
    return report


def _read_first_version(objects: ObjectStore, report: MetaReport) -> HummockVersion | None:
    try:
        return first_version(objects, read_settings(objects))
    except (DamagedError, InputError) as err:
        report.record_damage(STORE, err, "no process can open the store; restore its settings")
        return None


def _replay_versions(
    objects: ObjectStore, report: MetaReport, version: HummockVersion | None, pinned: set[int], progress: Progress
) -> None:
    """Replay all versions in order. Stores the newest and the pinned ones in `report`."""
    snapshots, roots, ids = ({i for i, _ in list_numbered(objects, prefix)} for prefix in (SNAPSHOTS, ROOTS, VERSIONS))
    log = version_packs(objects)
    last = max([*ids, *snapshots, *roots, log.find_end() - 1], default=0)
    pages = _Pages(objects, report)
    documents = _read_logged(report, log, last + 1, _UNREPLAYABLE)
    # The first version that cannot be reconstructed until the next snapshot; 0: none.
    hole = 0 if version is not None else 1
    for i, (name, data) in enumerate(documents, 1):
        if i % 10_000 == 0:
            progress(f"version {i:,} of {last:,}")
        after = _next_version(report, version, name, data)
        if after is None and version is not None:
            hole = i
        version = after
        if i in snapshots or i in roots:
            if i in snapshots:
                version = _compare_snapshot(
                    report,
                    snapshot_name(i),
                    _read_redundant(objects, report, snapshot_name(i), HummockVersion),
                    version,
                )
            if i in roots:
                version = _compare_snapshot(report, root_name(i), pages.read_version(i), version)
            if version is not None and hole:
                progress(f"versions {hole:,} to {i - 1:,} cannot be reconstructed")
                hole = 0
        if version is not None:
            report.newest = version
            if i in pinned:
                report.pinned.append(version)
    if report.newest is None:
        report.newest = version
    if hole and report.newest is not None:
        where = version_name(report.newest.id)
        report.damages.append(
            DamagedObject(version_name(hole), False, f"the log is damaged after {where}", "no process can commit")
        )


def _next_version(
    report: MetaReport, version: HummockVersion | None, name: str, data: Read | None
) -> HummockVersion | None:
    """The version after `version`, or None if it cannot be reconstructed.

    `data`: None if that is already reported.
    """
    if not isinstance(data, bytes):
        if data is not None:
            report.record_damage(name, data, _UNREPLAYABLE)
        return None
    try:
        delta = decode_document(name, data, VersionDelta)
        return None if version is None else apply_delta(version, delta)
    except DamagedError as err:
        report.record_damage(name, err, _UNREPLAYABLE)
    return None


def _read_logged(report: MetaReport, log: PackedLog, end: int, cost: str) -> Iterator[tuple[str, Read | None]]:
    """Each document of a dense log below `end`, with its name; None if it was in a pack whose damage is reported."""
    for first in range(log.origin, end, packs.PACK_SIZE):
        names = [log.name_of_single(number) for number in range(first, min(end, first + packs.PACK_SIZE))]
        documents = _read_pack(report, log, first, len(names), cost)
        if documents is None:
            singles = list(_read_objects(log.objects, report, names))
            missing = any(isinstance(data, ObjectNotFoundError) for _, data in singles)
            # A vacuum may have packed and removed them meanwhile.
            documents = _read_pack(report, log, first, len(names), cost) if missing else None
            if documents is None:
                yield from singles
                continue
        yield from zip(names, documents, strict=True)


def _read_pack(report: MetaReport, log: PackedLog, first: int, count: int, cost: str) -> Sequence[bytes | None] | None:
    """The first documents of a pack; None if it does not exist; Nones if it is damaged, which is reported."""
    name = log.pack_name(first)
    ((_, data),) = _read_objects(log.objects, report, [name])
    if isinstance(data, ObjectNotFoundError):
        report.objects -= 1
        return None
    try:
        if not isinstance(data, bytes):
            raise data
        return decode_pack(name, data).documents[:count]
    except (DamagedError, InputError) as err:
        report.record_damage(name, err, cost)
        return [None] * count


def _compare_snapshot(
    report: MetaReport, name: str, snapshot: HummockVersion | None, replayed: HummockVersion | None
) -> HummockVersion | None:
    """The version of a snapshot's id: from the replay, or from the snapshot if the replay has none.

    `snapshot`: None if it is damaged.
    """
    if replayed is not None and snapshot is not None and snapshot != replayed:
        report.record_damage(
            name,
            "it is intact, but differs from the version that the log produces",
            "processes that start from it are wrong; delete it now",
        )
    return snapshot if replayed is None else replayed


def _read_redundant(objects: ObjectStore, report: MetaReport, name: str, kind: type[Document]) -> Document | None:
    """A redundant document. None if it is damaged, which is recorded, or deleted since the listing."""
    ((_, data),) = _read_objects(objects, report, [name])
    if isinstance(data, ObjectNotFoundError):
        return None
    try:
        if not isinstance(data, bytes):
            raise data
        return decode_document(name, data, kind)
    except (DamagedError, InputError) as err:
        report.record_damage(name, err, "deltas replace it; delete it")
        return None


class _Pages:
    """Reads the roots of large versions, and each of their pages once."""

    def __init__(self, objects: ObjectStore, report: MetaReport) -> None:
        self._objects, self._report = objects, report
        self._read: dict[str, tuple[SstInfo, ...] | None] = {}  # by name; None: damaged or missing

    def read_version(self, i: int) -> HummockVersion | None:
        """The version of a root. None if it or one of its pages is damaged, which is recorded, or deleted meanwhile."""
        if (root := _read_redundant(self._objects, self._report, root_name(i), VersionRoot)) is None:
            return None
        infos = {info.name: info for level in root.pages for info in level}
        for name, data in _read_objects(
            self._objects, self._report, [name for name in infos if name not in self._read]
        ):
            try:
                if not isinstance(data, bytes):
                    raise data
                self._read[name] = decode_page(infos[name], data)
            except (DamagedError, InputError) as err:
                self._read[name] = None
                # Vacuum removes a root before its pages.
                if not isinstance(err, ObjectNotFoundError) or object_exists(self._objects, root_name(i)):
                    cost = (
                        f"none: processes that start from {root_name(i)} read deltas instead, until the next snapshot"
                    )
                    self._report.record_damage(name, err, cost)
        pages = [[self._read[info.name] for info in level] for level in root.pages]
        if any(page is None for level in pages for page in level):
            return None
        levels = (
            tuple(sst for page in level if page is not None for sst in page) if level else ssts
            for level, ssts in zip(pages, root.version.levels, strict=True)
        )
        return msgspec.structs.replace(root.version, levels=tuple(levels))


def _check_statements(objects: ObjectStore, report: MetaReport, progress: Progress) -> None:
    """Check that log entries have no gaps, and check the payloads that they reference."""
    progress(f"reading {ENTRIES}")
    end = max(
        [
            *(i + 1 for i, _ in list_numbered(objects, ENTRIES)),
            report.newest.log_end if report.newest is not None else 0,
        ]
    )
    taken = report.newest.log_end if report.newest is not None else 0
    wanted: set[str] = set()
    cost = f"later statements cannot be replayed; those below {taken} are already in the tables"
    for _, entry in _decode_documents(
        report, _read_logged(report, statement_packs(objects), end, cost), LogEntry, cost
    ):
        if entry.position >= taken:
            wanted.update(name.decode() for name in _PAYLOAD.findall(bytes(entry.statement)))
    progress(f"reading {PAYLOADS}")
    lost = "the statement that references it cannot be replayed"
    for name, data in _read_objects(objects, report, sorted(wanted | set(_list_names(objects, PAYLOADS)))):
        if not isinstance(data, bytes):
            report.record_damage(name, data, lost)
        elif not name.endswith("/" + hash_of(data)):
            report.record_damage(name, f"its {len(data)} bytes do not match the hash in its name", lost)


def _intact_documents(
    objects: ObjectStore, report: MetaReport, names: Iterable[str], kind: type[Document], cost: str
) -> Iterator[tuple[str, Document]]:
    """The intact documents. Records damage of the others."""
    return _decode_documents(report, _read_objects(objects, report, names), kind, cost)


def _decode_documents(
    report: MetaReport, documents: Iterable[tuple[str, Read | None]], kind: type[Document], cost: str
) -> Iterator[tuple[str, Document]]:
    """The intact documents. Records damage of the others; None: it is already reported."""
    for name, data in documents:
        if data is None:
            continue
        try:
            if not isinstance(data, bytes):
                raise data
            yield name, decode_document(name, data, kind)
        except (DamagedError, InputError) as err:
            report.record_damage(name, err, cost)


def _read_objects(objects: ObjectStore, report: MetaReport, names: Iterable[str]) -> Iterator[tuple[str, Read]]:
    """Each object's bytes or the error of reading it, in order. Requests run in parallel."""

    def get_or_error(name: str) -> Read:
        try:
            return objects.get(name)
        except (DamagedError, ObjectNotFoundError) as err:
            return err

    pending = list(names)
    if len(pending) == 1:
        yield pending[0], _count_read(report, get_or_error(pending[0]))
        return
    with ThreadPoolExecutor(_THREADS) as threads:
        for start in range(0, len(pending), _CHUNK):
            chunk = pending[start : start + _CHUNK]
            for name, data in zip(chunk, threads.map(get_or_error, chunk), strict=True):
                yield name, _count_read(report, data)


def _count_read(report: MetaReport, data: Read) -> Read:
    report.objects += 1
    report.bytes += len(data) if isinstance(data, bytes) else 0
    return data


def _list_names(objects: ObjectStore, prefix: str) -> list[str]:
    return [info.name for info in objects.list(prefix)]
