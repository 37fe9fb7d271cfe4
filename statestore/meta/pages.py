"""Pages: the levels of a large version, in parts that are read when needed and shared by versions.

    HummockVersion.levels    L0: a tuple of SSTs; below L0: a tuple, or a PagedLevel in a large store
    PagedLevel               a sequence of SSTs as pages, in key order; it never changes
    Page                     neighbouring SSTs of one level; read when first needed, then kept
    PageInfo                 a page as a snapshot names it, with its key range and sums (snapshots.py)

A page ends before an SST whose name has a certain hash. So the pages of a level are a function of its SSTs, and a
change of a level replaces only the pages of the changed keys. Versions before and after it share all others.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate, pairwise
from typing import overload

import msgspec

from tussock.statestore.checksum import crc32c
from tussock.statestore.meta.version import HummockVersion, SstInfo

PAGE_SSTS = 512  # per page, on average
PAGED_SSTS = 8 * PAGE_SSTS  # below L0; a smaller version has no pages, because it is read faster as one object

_THREADS = 16


class PageInfo(msgspec.Struct, frozen=True, gc=False):
    """A page as a snapshot names it."""

    name: str  # meta/page/<id of the snapshot that wrote it>/<hash of its bytes>.json
    first_key: bytes
    last_key: bytes
    ssts: int
    rows: int
    bytes: int  # of the SSTs


class Page:
    """Neighbouring SSTs of a level below L0, at least one.

    Threads may share it: two that need it at once may both read it, with the same result.
    """

    __slots__ = ("__weakref__", "_load", "_ssts", "info", "is_replayed", "sums")

    def __init__(
        self,
        sums: PageInfo,
        info: PageInfo | None,
        ssts: tuple[SstInfo, ...] | None,
        load: "Callable[[Page], tuple[SstInfo, ...]] | None" = None,
    ) -> None:
        """
        Args:
            sums: its facts; the name counts only in `info`.
            info: its facts with its name in the store; None: it is not stored.
            ssts: None: `load` reads them.
        """
        self.sums, self.info, self._ssts, self._load = sums, info, ssts, load
        self.is_replayed = False  # its object was missing or damaged, so the next snapshot writes another

    @classmethod
    def from_ssts(cls, ssts: Sequence[SstInfo]) -> "Page":
        """A page that is not stored yet."""
        return cls(page_sums("", ssts), None, tuple(ssts))

    @property
    def is_read(self) -> bool:
        """Whether the SSTs are in memory."""
        return self._ssts is not None

    @property
    def ssts(self) -> tuple[SstInfo, ...]:
        """The SSTs in key order. Cost: a GET, the first time."""
        if self._ssts is None:
            assert self._load is not None
            self._ssts = self._load(self)
        return self._ssts


def page_sums(name: str, ssts: Sequence[SstInfo]) -> PageInfo:
    """The facts of a page with these SSTs."""
    return PageInfo(
        name,
        ssts[0].sections[0].first_key,
        ssts[-1].sections[-1].last_key,
        len(ssts),
        sum(sst.rows for sst in ssts),
        sum(sst.size for sst in ssts),
    )


class PagedLevel(Sequence[SstInfo]):
    """A level below L0 as pages: its SSTs in key order, which share no key."""

    __slots__ = ("_ends", "_firsts", "_lasts", "pages")

    def __init__(self, pages: Iterable[Page]) -> None:
        self.pages = tuple(pages)
        self._ends = list(accumulate(page.sums.ssts for page in self.pages))
        self._firsts = [page.sums.first_key for page in self.pages]
        self._lasts = [page.sums.last_key for page in self.pages]

    @classmethod
    def from_ssts(cls, ssts: Iterable[SstInfo]) -> "PagedLevel":
        """The level with these SSTs, in key order. No page is stored."""
        return cls(Page.from_ssts(part) for part in _split_pages(list(ssts)))

    @property
    def nbytes(self) -> int:
        """The bytes of all SSTs. Reads no page."""
        return sum(page.sums.bytes for page in self.pages)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[SstInfo]:
        read_pages(self.pages)
        return (sst for page in self.pages for sst in page.ssts)

    @overload
    def __getitem__(self, place: int) -> SstInfo: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[SstInfo, ...]: ...
    def __getitem__(self, place: int | slice) -> SstInfo | tuple[SstInfo, ...]:
        if isinstance(place, slice):
            return tuple(self[i] for i in range(*place.indices(len(self))))
        place = place + len(self) if place < 0 else place
        if not 0 <= place < len(self):
            raise IndexError(place)
        page = bisect_right(self._ends, place)
        return self.pages[page].ssts[place - (self._ends[page - 1] if page else 0)]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        if isinstance(other, PagedLevel) and len(self.pages) == len(other.pages):
            both = zip(self.pages, other.pages, strict=True)
            if all(one is two or (one.info is not None and one.info == two.info) for one, two in both):
                return True
        return len(self) == len(other) and tuple(self) == tuple(other)

    def __repr__(self) -> str:
        return f"PagedLevel({len(self)} SSTs in {len(self.pages)} pages)"

    def ssts_between(self, first: bytes, last: bytes) -> tuple[SstInfo, ...]:
        """The SSTs that overlap the keys `first` to `last`. Reads only pages that overlap them."""
        pages = self.pages[bisect_left(self._lasts, first) : bisect_right(self._firsts, last)]
        read_pages(pages)
        ssts = [sst for page in pages for sst in page.ssts]
        start = bisect_left(ssts, first, key=lambda sst: sst.sections[-1].last_key)
        return tuple(ssts[start : bisect_right(ssts, last, lo=start, key=lambda sst: sst.sections[0].first_key)])

    def ssts_around(self, first: bytes, last: bytes) -> tuple[SstInfo, ...]:
        """The SSTs that begin at keys `first` to `last`, with one neighbour on each side. Reads only their pages."""
        start = max(0, bisect_left(self._firsts, first) - 1)
        pages = self.pages[start : bisect_right(self._firsts, last) + 1]
        read_pages(pages)
        ssts = [sst for page in pages for sst in page.ssts]
        begin = bisect_left(ssts, first, key=lambda sst: sst.sections[0].first_key)
        end = bisect_right(ssts, last, key=lambda sst: sst.sections[0].first_key)
        return tuple(ssts[max(0, begin - 1) : end + 1])

    def replace_ssts(self, removed: Sequence[SstInfo], added: Sequence[SstInfo]) -> "PagedLevel":
        """The level without some of its SSTs, and with others. Reads only the pages of their keys."""
        keys = [sst.sections[0].first_key for sst in (*removed, *added)]
        if not keys:
            return self
        # An SST belongs to the last page that begins at or before it, or to the first page.
        start = max(0, bisect_right(self._firsts, min(keys)) - 1)
        end = max(bisect_right(self._firsts, max(keys)), start + 1)
        before = self.pages[start:end]
        read_pages(before)
        gone = {sst.name for sst in removed}
        ssts = sorted(
            (*(sst for page in before for sst in page.ssts if sst.name not in gone), *added),
            key=lambda sst: sst.sections[0].first_key,
        )
        if start and not (ssts and _begins_page(ssts[0])):  # the rest belongs to the page before
            start -= 1
            ssts = [*self.pages[start].ssts, *ssts]
        same = {tuple(sst.name for sst in page.ssts): page for page in self.pages[start:end]}
        after = (same.get(tuple(sst.name for sst in part)) or Page.from_ssts(part) for part in _split_pages(ssts))
        return PagedLevel((*self.pages[:start], *after, *self.pages[end:]))


def _begins_page(sst: SstInfo) -> bool:
    return crc32c(sst.name.encode()) % PAGE_SSTS == 0


def _split_pages(ssts: Sequence[SstInfo]) -> Iterator[tuple[SstInfo, ...]]:
    """The pages of a level, or of a part that begins at a page."""
    starts = [0, *(i for i in range(1, len(ssts)) if _begins_page(ssts[i])), len(ssts)]
    return (tuple(ssts[start:end]) for start, end in pairwise(starts) if start < end)


def read_pages(pages: Iterable[Page]) -> None:
    """Read the pages that are not in memory, in parallel."""
    missing = [page for page in pages if not page.is_read]
    if len(missing) < 3:
        for page in missing:
            _ = page.ssts
        return
    with ThreadPoolExecutor(_THREADS) as threads:
        for _ in threads.map(lambda page: page.ssts, missing):
            pass


def is_large(version: HummockVersion) -> bool:
    """Whether the snapshot of a version has pages."""
    return sum(map(len, version.levels[1:])) >= PAGED_SSTS


def has_pages(version: HummockVersion) -> bool:
    """Whether a level of the version is in pages, in memory."""
    return any(isinstance(level, PagedLevel) for level in version.levels)


def laid_out(version: HummockVersion) -> HummockVersion:
    """The version, with pages if it is large. Reads no page; a small version keeps its pages in memory."""

    def lay_out_level(ssts: Sequence[SstInfo]) -> Sequence[SstInfo]:
        return ssts if isinstance(ssts, PagedLevel) or len(ssts) < PAGE_SSTS else PagedLevel.from_ssts(ssts)

    if not is_large(version):
        return version
    return msgspec.structs.replace(version, levels=(version.levels[0], *map(lay_out_level, version.levels[1:])))


def bytes_of(level: Sequence[SstInfo]) -> int:
    """The bytes of a level's SSTs. Reads no page."""
    return level.nbytes if isinstance(level, PagedLevel) else sum(sst.size for sst in level)


def names_in(version: HummockVersion) -> set[str]:
    """The SSTs of a version. Reads all its pages."""
    return {sst.name for level in version.levels for sst in level}


def names_gone(before: HummockVersion, after: HummockVersion) -> set[str]:
    """The SSTs of one version that another lacks. Reads no page that both versions share."""
    if before is after:
        return set()
    shared = {id(page) for page in pages_of(before)} & {id(page) for page in pages_of(after)}

    def unshared_names(version: HummockVersion) -> set[str]:
        read_pages(page for page in pages_of(version) if id(page) not in shared)
        pages = (page.ssts for page in pages_of(version) if id(page) not in shared)
        plain = (ssts for ssts in version.levels if not isinstance(ssts, PagedLevel))
        return {sst.name for ssts in (*pages, *plain) for sst in ssts}

    return unshared_names(before) - unshared_names(after)


def pages_of(version: HummockVersion) -> list[Page]:
    """The pages of a version in memory."""
    return [page for level in version.levels if isinstance(level, PagedLevel) for page in level.pages]
