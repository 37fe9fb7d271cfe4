"""Checks all of meta/: every document's checksum, the version log replayed from its beginning, snapshots against the replay.

Nothing is trusted that can be worked out: a snapshot that is whole but not what the log gives is damage. Where a delta is lost, replay
goes on from the next snapshot that is whole, so that one lost delta costs the versions up to there and no more.
"""

import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from tussock.statestore.errors import DamagedError, InputError
from tussock.statestore.meta.barrier import Barrier
from tussock.statestore.meta.delta import VersionDelta, apply
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
    SNAPSHOTS,
    STORE,
    VERSIONS,
    hash_of,
    log_name,
    number_in,
    snapshot_name,
    version_name,
)
from tussock.statestore.meta.pin import Pin
from tussock.statestore.meta.settings import initial_version, read_settings
from tussock.statestore.meta.statement_log import LogEntry
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.objectstore.base import ObjectNotFoundError, ObjectStore
from tussock.statestore.progress import Progress, no_progress

_THREADS = 16
_CHUNK = 2048  # objects read ahead
_PAYLOAD = re.compile(rb"meta/payload/[0-9a-f]{32}")

Document = TypeVar("Document", bound=msgspec.Struct)
Read = bytes | DamagedError | InputError  # an object's bytes, or why there are none


class _Any(msgspec.Struct, frozen=True):
    """A document of which only the checksum matters here."""


@dataclass(frozen=True, slots=True)
class DamagedObject:
    """One object under meta/ that is not what it must be, and what that costs."""

    name: str
    missing: bool  # else its bytes are wrong
    detail: str
    cost: str  # what can and what cannot be done without it


@dataclass(slots=True)
class MetaReport:
    """What a check of meta/ found."""

    newest: HummockVersion | None = None  # the newest version that can be read; None: there is none
    pinned: list[HummockVersion] = field(default_factory=list)  # that pins name, other than the newest
    damages: list[DamagedObject] = field(default_factory=list)
    objects: int = 0
    bytes: int = 0

    def add(self, name: str, err: object, cost: str) -> None:
        """Note damage."""
        self.damages.append(DamagedObject(name, isinstance(err, ObjectNotFoundError), str(err), cost))


def check_meta(objects: ObjectStore, progress: Progress = no_progress) -> MetaReport:
    """Read all of meta/. Raises errors of the object store, nothing else: damage is what it reports.

    Cost: LISTs, and a GET for each object there.
    """
    report = MetaReport()
    version = _initial(objects, report)
    pins = [
        pin
        for _, pin in _documents(objects, report, _names(objects, PINS), Pin, "its reader is not protected; delete it")
    ]
    _replay(objects, report, version, {pin.version for pin in pins}, progress)
    for prefix, kind, cost in (
        (BARRIERS, Barrier, "an epoch on it cannot be resumed; epochs that are committed stand"),
        (MANIFESTS, SealedManifest, "its epoch cannot be committed if it is not yet; committed epochs stand"),
        (CLAIMS, _Any, "a repeat of its statement is refused; the statements that were taken stand"),
        (HEAD, _Any, "opening costs probes until the next snapshot writes it anew: delete it"),
    ):
        progress(f"reading {prefix}")
        for _ in _documents(objects, report, _names(objects, prefix), kind, cost):
            pass
    _check_statements(objects, report, progress)
    return report


def _initial(objects: ObjectStore, report: MetaReport) -> HummockVersion | None:
    try:
        return initial_version(read_settings(objects))
    except (DamagedError, InputError) as err:
        report.add(STORE, err, "no process can open the store; its settings must be restored")
        return None


def _replay(
    objects: ObjectStore, report: MetaReport, version: HummockVersion | None, pinned: set[int], progress: Progress
) -> None:
    """All versions, one after another, in `report` the newest and those pinned."""
    snapshots = {i for name in _names(objects, SNAPSHOTS) if (i := number_in(name)) is not None}
    ids = {i for name in _names(objects, VERSIONS) if (i := number_in(name)) is not None}
    last = max(ids | snapshots, default=0)
    names = [version_name(i) for i in range(1, last + 1)]
    found = _read(objects, report, names)
    hole = (
        0 if version is not None else 1
    )  # the first version after which nothing can be worked out until the next snapshot
    for i, (name, data) in enumerate(found, 1):
        if i % 10_000 == 0:
            progress(f"version {i:,} of {last:,}")
        after = _next(report, version, name, data)
        if after is None and version is not None:
            hole = i
        version = after
        if i in snapshots:
            version = _compared(objects, report, i, version)
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
            DamagedObject(version_name(hole), False, f"the log ends in damage after {where}", "no process can commit")
        )


def _next(report: MetaReport, version: HummockVersion | None, name: str, data: Read) -> HummockVersion | None:
    """The version after `version`; None where that cannot be worked out."""
    cost = (
        "versions from it to the next snapshot cannot be reconstructed; where there is none, the store cannot be opened"
    )
    if not isinstance(data, bytes):
        report.add(name, data, cost)
        return None
    try:
        delta = decode_document(name, data, VersionDelta)
        return None if version is None else apply(version, delta)
    except DamagedError as err:
        report.add(name, err, cost)
    return None


def _compared(
    objects: ObjectStore, report: MetaReport, i: int, replayed: HummockVersion | None
) -> HummockVersion | None:
    """The version of a snapshot's id: from the replay, or from the snapshot where replay has nothing."""
    name = snapshot_name(i)
    ((_, data),) = _read(objects, report, [name])
    if not isinstance(data, bytes):
        return replayed  # removed since the listing: deltas rebuild it
    try:
        snapshot = decode_document(name, data, HummockVersion)
    except DamagedError as err:
        report.add(name, err, "deltas rebuild it: delete it")
        return replayed
    if replayed is not None and snapshot != replayed:
        report.add(
            name,
            "it is whole, but not the version that the log gives",
            "processes that start from it are wrong: delete it now",
        )
        return replayed
    return snapshot


def _check_statements(objects: ObjectStore, report: MetaReport, progress: Progress) -> None:
    """Entries without a gap, and the payloads they name."""
    progress(f"reading {ENTRIES}")
    there = [i for name in _names(objects, ENTRIES) if (i := number_in(name)) is not None]
    end = max([*(i + 1 for i in there), report.newest.log_end if report.newest is not None else 0])
    taken = report.newest.log_end if report.newest is not None else 0
    wanted: set[str] = set()
    cost = f"statements from it on cannot be replayed; those below {taken} are in the tables already"
    for _, entry in _documents(objects, report, [log_name(i) for i in range(end)], LogEntry, cost):
        if entry.position >= taken:
            wanted.update(name.decode() for name in _PAYLOAD.findall(bytes(entry.statement)))
    progress(f"reading {PAYLOADS}")
    lost = "the statement that names it cannot be replayed"
    for name, data in _read(objects, report, sorted(wanted | set(_names(objects, PAYLOADS)))):
        if not isinstance(data, bytes):
            report.add(name, data, lost)
        elif not name.endswith("/" + hash_of(data)):
            report.add(name, f"its {len(data)} bytes are not those it is named after", lost)


def _documents(
    objects: ObjectStore, report: MetaReport, names: Iterable[str], kind: type[Document], cost: str
) -> Iterator[tuple[str, Document]]:
    """The documents that are whole; the others are noted."""
    for name, data in _read(objects, report, names):
        try:
            if not isinstance(data, bytes):
                raise data
            yield name, decode_document(name, data, kind)
        except (DamagedError, InputError) as err:
            report.add(name, err, cost)


def _read(objects: ObjectStore, report: MetaReport, names: Iterable[str]) -> Iterator[tuple[str, Read]]:
    """Each object's bytes or why there are none, in order, many requests at a time."""

    def get(name: str) -> Read:
        try:
            return objects.get(name)
        except (DamagedError, ObjectNotFoundError) as err:
            return err

    pending = list(names)
    if len(pending) == 1:
        yield pending[0], _counted(report, get(pending[0]))
        return
    with ThreadPoolExecutor(_THREADS) as threads:
        for start in range(0, len(pending), _CHUNK):
            chunk = pending[start : start + _CHUNK]
            for name, data in zip(chunk, threads.map(get, chunk), strict=True):
                yield name, _counted(report, data)


def _counted(report: MetaReport, data: Read) -> Read:
    report.objects += 1
    report.bytes += len(data) if isinstance(data, bytes) else 0
    return data


def _names(objects: ObjectStore, prefix: str) -> list[str]:
    return [found.name for found in objects.list(prefix)]
