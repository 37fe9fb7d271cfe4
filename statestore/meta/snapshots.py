"""Snapshots: whole versions from which a process starts, so that it replays few deltas.

    meta/snapshot/<id>.json      a small version as one object
    meta/root/<id>.json          a large version: L0 in full, and the pages of the levels below (pages.py)
    meta/page/<id>/<hash>.json   a page; <id> is that of the root that first named it
    meta/head.json               a hint to the newest snapshot

All of them only save reads: the deltas of the version log contain every version. A missing or damaged page is replayed
from the log, and the next root of a process that met it names another one.

A root is written after its pages. It names pages that it writes, and pages of a root that is at most REUSED_ROOTS
snapshots older. Vacuum keeps the pages of more roots than that. So a root lacks a page only if its writer slept between
its pages and the root for dozens of versions.

Vacuum removes old roots, then the pages that only they name. A process that opened such a root may still need one. It
takes the page of equal content that the newest root names, or else replays the log.

Each 1,024th version is also written as one object. So roots and pages can be removed soon, an old version replays few
deltas, and releases that know no pages start from there.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from weakref import WeakValueDictionary

import msgspec

from tussock.statestore.forks import new_lock
from tussock.statestore.meta.delta import VersionDelta, apply_delta
from tussock.statestore.meta.document import decode_document, encode_document, read_document
from tussock.statestore.meta.errors import DamagedDocumentError
from tussock.statestore.meta.levels import ssts_between
from tussock.statestore.meta.names import HEAD, hash_of, page_name, page_origin, root_name, snapshot_name, version_name
from tussock.statestore.meta.packs import PackedLog, version_packs
from tussock.statestore.meta.pages import Page, PagedLevel, PageInfo, is_large, page_sums, pages_of, read_pages
from tussock.statestore.meta.version import HummockVersion, SstInfo
from tussock.statestore.objectstore.base import ObjectNotFoundError, ObjectStore, object_exists

log = logging.getLogger(__name__)

SNAPSHOT_EVERY = 16  # deltas; opening replays fewer than this, and one commit in this many writes a snapshot
REUSED_ROOTS = 4  # a root may name pages of one that is at most so many snapshots older
# Versions at multiples of this are written as one object, and kept. So any past version replays at most this many
# deltas.
SPARSE_SNAPSHOTS = 64 * SNAPSHOT_EVERY

_THREADS = 16


class Head(msgspec.Struct, frozen=True, omit_defaults=True):
    """The hint: the id of a snapshot that existed."""

    snapshot: int
    paged: bool = False  # whether it is a root


class VersionRoot(msgspec.Struct, frozen=True):
    """A large version without its pages."""

    version: HummockVersion  # levels with pages are empty
    pages: tuple[tuple[PageInfo, ...], ...]  # by level, in key order; empty if `version` has the level

    def page_names(self) -> set[str]:
        """The names of the pages."""
        return {info.name for level in self.pages for info in level}


class PageDocument(msgspec.Struct, frozen=True):
    """The content of a page."""

    ssts: tuple[SstInfo, ...]


def decode_page(info: PageInfo, data: bytes) -> tuple[SstInfo, ...]:
    """The SSTs of a page in its bytes. Raises DamagedDocumentError, also for the bytes of another page."""
    ssts = decode_document(info.name, data, PageDocument).ssts
    if (origin := page_origin(info.name)) is None or origin.content != hash_of(data):
        raise DamagedDocumentError(info.name, f"its {len(data)} bytes do not match the hash in its name")
    if not ssts or page_sums(info.name, ssts) != info:
        raise DamagedDocumentError(info.name, f"it has {len(ssts)} SSTs, and a snapshot names it with others")
    return ssts


def read_deltas(packs: PackedLog, first: int, last: int) -> Iterator[VersionDelta]:
    """Read the deltas `first` to `last`, packed or not. Raises DamagedDocumentError."""
    for number, data in packs.read_documents(first, last + 1):
        yield decode_document(version_name(number), data, VersionDelta)


class Snapshots:
    """Reads and writes the snapshots of one store, for one process. Not thread-safe: use one per thread.

    Versions that it returns may be shared by threads.
    """

    def __init__(self, objects: ObjectStore, initial: Callable[[], HummockVersion]) -> None:
        """`initial`: returns version 0, which has no snapshot."""
        self._objects, self._initial = objects, initial
        self._newest: tuple[int, dict[str, str]] | None = None  # a stored root: its id, and names of pages by content
        self._pages: WeakValueDictionary[str, Page] = WeakValueDictionary()  # in memory, by name

    def read_hinted(self) -> HummockVersion:
        """The version that the hint points to; version 0 if the hint is unusable. Raises DamagedDocumentError."""
        try:
            head = read_document(self._objects, HEAD, Head)
        except DamagedDocumentError:
            head = None  # the hint only saves reads
        if head is None or (version := self.read_snapshot(head.snapshot, paged=head.paged)) is None:
            return self._initial()
        return version

    def read_snapshot(self, version_id: int, *, paged: bool = False) -> HummockVersion | None:
        """The snapshot of a version, or None. Raises DamagedDocumentError.

        Cost: one GET; two if `paged`, a guess whether it has pages, is wrong. No page is read.
        """
        forms = (self._read_from_root, self._read_whole) if paged else (self._read_whole, self._read_from_root)
        return next((version for form in forms if (version := form(version_id)) is not None), None)

    def read_nearest(self, version_id: int, above: HummockVersion) -> HummockVersion:
        """The newest snapshot at or below `version_id`, or `above` if it is newer."""
        for snapshot_id in range(version_id - version_id % SNAPSHOT_EVERY, above.id, -SNAPSHOT_EVERY):
            if (version := self.read_snapshot(snapshot_id)) is not None:
                return version
        return above

    def write_snapshot(self, version: HummockVersion) -> None:
        """Write the snapshot of a version, and the hint to it.

        Cost: a version with pages writes the pages that no recent root names, and each SPARSE_SNAPSHOTS-th version all
        SSTs as one object too.
        """
        # All writers of one release write equal bytes; the bytes of another release are as good. Pages of equal content
        # may have different names in the roots of two writers, which is as good too.
        if paged := is_large(version):
            root = self._with_pages(version)
            written = self._objects.put_if_absent(root_name(version.id), encode_document(root))
            self._newest = (version.id, _by_content(root)) if written else None
        if not paged or version.id % SPARSE_SNAPSHOTS == 0:
            whole = msgspec.structs.replace(version, levels=tuple(map(tuple, version.levels)))
            self._objects.put_if_absent(snapshot_name(version.id), encode_document(whole))
        self._objects.put(HEAD, encode_document(Head(version.id, paged)))

    # --- reading

    def _read_whole(self, version_id: int) -> HummockVersion | None:
        return read_document(self._objects, snapshot_name(version_id), HummockVersion)

    def _read_from_root(self, version_id: int) -> HummockVersion | None:
        if (root := read_document(self._objects, root_name(version_id), VersionRoot)) is None:
            return None
        if self._newest is None or self._newest[0] < version_id:
            self._newest = version_id, _by_content(root)
        source = _PagesOfRoot(self._objects, self._initial, version_id)
        levels = (
            PagedLevel(self._cached_page(source, level, info) for info in infos) if infos else ssts
            for level, (ssts, infos) in enumerate(zip(root.version.levels, root.pages, strict=True))
        )
        return msgspec.structs.replace(root.version, levels=tuple(levels))

    def _cached_page(self, source: "_PagesOfRoot", level: int, info: PageInfo) -> Page:
        if (page := self._pages.get(info.name)) is None:
            page = self._pages[info.name] = Page(info, info, None, partial(source.read_page, level))
        return page

    # --- writing

    def _with_pages(self, version: HummockVersion) -> VersionRoot:
        """The root of a version. Writes its pages."""
        known = self._reusable_pages(version.id)
        pages = [level.pages if isinstance(level, PagedLevel) else () for level in version.levels]
        missing = [page for level in pages for page in level if not _is_stored(page, known)]
        read_pages(missing)
        _in_parallel(partial(self._write_page, version.id, known), missing)
        infos = (tuple(page.info for page in level if page.info is not None) for level in pages)
        plain = (() if isinstance(level, PagedLevel) else level for level in version.levels)
        return VersionRoot(msgspec.structs.replace(version, levels=tuple(plain)), tuple(infos))

    def _reusable_pages(self, version_id: int) -> dict[str, str]:
        """The pages of the newest root: the name of each content; none if it is old. Cost: one GET, two for a new root.

        All writers take the names in the newest root, so that a content keeps its name.
        """
        try:
            root = _newest_root(self._objects, 0 if self._newest is None else self._newest[0])
        except DamagedDocumentError:
            root = None  # at worst, all pages are written again
        if root is not None:
            self._newest = root.version.id, _by_content(root)
        oldest = version_id - REUSED_ROOTS * SNAPSHOT_EVERY
        if self._newest is None or self._newest[0] < oldest:
            return self._pages_of_parent
        return self._pages_of_parent | self._newest[1]

    @cached_property
    def _pages_of_parent(self) -> dict[str, str]:
        """The stored pages of version 0 by content; empty unless this store is a branch, whose parent keeps them."""
        infos = (page.info for page in pages_of(self._initial()) if page.info is not None)
        return {origin.content: info.name for info in infos if (origin := page_origin(info.name)) is not None}

    def _write_page(self, version_id: int, known: dict[str, str], page: Page) -> None:
        data = encode_document(PageDocument(page.ssts))
        content = hash_of(data)
        if page.is_replayed or (name := known.get(content)) is None:
            name = page_name(version_id, content)
            self._objects.put_if_absent(name, data)
        page.info, page.is_replayed = page_sums(name, page.ssts), False
        self._pages[name] = page


def _is_stored(page: Page, known: dict[str, str]) -> bool:
    """Whether a page needs no write, because a recent root names its content. Then the page gets the name there."""
    if page.info is None or page.is_replayed:
        return False
    origin = page_origin(page.info.name)
    assert origin is not None
    if (name := known.get(origin.content)) is None:
        return False
    if name != page.info.name:
        page.info = msgspec.structs.replace(page.info, name=name)
    return True


def _by_content(root: VersionRoot) -> dict[str, str]:
    """The names of a root's pages by the hash of their bytes."""
    return {origin.content: name for name in root.page_names() if (origin := page_origin(name)) is not None}


def _newest_root(objects: ObjectStore, above: int) -> VersionRoot | None:
    """The root that the hint names, if it is of a version after `above`. Raises DamagedDocumentError."""
    head = read_document(objects, HEAD, Head)
    if head is None or not head.paged or head.snapshot <= above:
        return None
    return read_document(objects, root_name(head.snapshot), VersionRoot)


class _PagesOfRoot:
    """Reads the pages that one root names. Threads may share it."""

    def __init__(self, objects: ObjectStore, initial: Callable[[], HummockVersion], version_id: int) -> None:
        self._objects, self._initial, self._id = objects, initial, version_id
        self._lock = new_lock()
        self._others: dict[str, str] | None = None  # the pages of the newest root, by content
        self._warned = False
        self._replayed: HummockVersion | None = None  # from the log, for pages whose objects are unusable

    def read_page(self, level: int, page: Page) -> tuple[SstInfo, ...]:
        """The SSTs of a page. If its object is unusable, they come from the log."""
        assert page.info is not None
        info = page.info
        try:
            return decode_page(info, self._objects.get(info.name))
        except ObjectNotFoundError:
            if self._replayed is None and (renamed_page := self._read_renamed(page, info)) is not None:
                return renamed_page
            if not self._warned and self._is_there():
                self._warn_once(info, "it is missing")
        except DamagedDocumentError as err:
            self._warn_once(info, err.reason)
        ssts = tuple(ssts_between(self._replay_version().levels[level], info.first_key, info.last_key))
        if not ssts or page_sums(info.name, ssts) != info:
            raise DamagedDocumentError(
                root_name(self._id), f"its page {info.name!r} has {info.ssts} SSTs, but the log has {len(ssts)} there"
            )
        page.is_replayed = True
        return ssts

    def _read_renamed(self, page: Page, info: PageInfo) -> tuple[SstInfo, ...] | None:
        """The SSTs of a missing page from one of equal content that the newest root names."""
        origin = page_origin(info.name)
        assert origin is not None
        try:
            with self._lock:
                if self._others is None:
                    root = _newest_root(self._objects, self._id)
                    self._others = {} if root is None else _by_content(root)
            if (name := self._others.get(origin.content)) is None:
                return None
            other = msgspec.structs.replace(info, name=name)
            ssts = decode_page(other, self._objects.get(name))
        except (ObjectNotFoundError, DamagedDocumentError):
            return None
        page.info = other
        return ssts

    def _is_there(self) -> bool:
        """Whether the root exists. Vacuum removes a root before its pages, so then no page of it may be missing."""
        return object_exists(self._objects, root_name(self._id))

    def _warn_once(self, info: PageInfo, reason: str) -> None:
        """Log damage, once per root."""
        with self._lock:
            warned, self._warned = self._warned, True
        log.log(
            logging.DEBUG if warned else logging.WARNING,
            "object %r is not readable: %s; expected a page of version %d. Its SSTs are read from the version log "
            "instead, and the next snapshot does not name it. To find other damage, run `tussock scrub`.",
            info.name,
            reason,
            self._id,
        )

    def _replay_version(self) -> HummockVersion:
        """The version from deltas, on top of the nearest snapshot without pages."""
        with self._lock:
            if self._replayed is None:
                version = self._start_version()
                for delta in read_deltas(version_packs(self._objects), version.id + 1, self._id):
                    version = apply_delta(version, delta)
                self._replayed = version
            return self._replayed

    def _start_version(self) -> HummockVersion:
        for snapshot_id in range(self._id - self._id % SNAPSHOT_EVERY, 0, -SNAPSHOT_EVERY):
            if (version := read_document(self._objects, snapshot_name(snapshot_id), HummockVersion)) is not None:
                return version
        return self._initial()


def _in_parallel(work: Callable[[Page], None], pages: Iterable[Page]) -> None:
    pages = list(pages)
    if len(pages) < 3:
        for page in pages:
            work(page)
        return
    with ThreadPoolExecutor(_THREADS) as threads:
        for _ in threads.map(work, pages):
            pass
