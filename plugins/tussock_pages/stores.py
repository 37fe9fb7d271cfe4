"""The pipelines' stores for the pages: opened read-only once per process, with cached answers."""

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Condition, Lock
from typing import Any, TypeVar

import tussock_steps
from tussock_steps import pipelines_folder, read_definition

from tussock.jobs.operations.folder import FolderEntry
from tussock.jobs.settings.arrow import leave_pandas
from tussock.jobs.settings.branches import on_branch_of, parent_of
from tussock.jobs.settings.pipeline import FILE, Pipeline, pipeline_names
from tussock.jobs.settings.process import clock_ms, new_writer, store_address
from tussock.statestore.errors import InputError
from tussock.statestore.forks import new_lock, renew_in_child
from tussock.statestore.meta.barrier import Barrier
from tussock.statestore.meta.catalog import Catalog
from tussock.statestore.meta.manifest import SealedManifest
from tussock.statestore.meta.names import STORE
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.objectstore.base import ObjectNotFoundError, ObjectStore, ObjectStoreUnavailableError
from tussock.statestore.objectstore.open import open_object_store
from tussock_pages.remembered import RememberedValues, Same, file_version

T = TypeVar("T")
REMEMBERED = 512  # cached manifests, barriers and answers per store, each some hundred bytes per view
LARGE_REMEMBERED = 128  # quality records per store, each some hundred bytes per view
LOOKS_REMEMBERED = 8  # answers per store that keep a look alive, which is some hundred bytes per view too
PATIENCE_S = 0.15  # a page waits this long for a newer look; then it shows the previous answer with its age
FRESH_S = 4.0  # an answer is used for this long: with the 5 s between two loads of an open page, it stays below OLD_S
OLD_S = 10.0
"""Facts that are older are marked on the page. It waits OLD_PATIENCE_S for newer ones."""

OLD_PATIENCE_S = 0.6
ANSWER_S = 5.0  # a page waits this long for the store's newest version

Mark = tuple[str, int]
"""The ETag and the time (Unix ms) of a store's first object, which no process writes again."""


def mark_of(objects: ObjectStore) -> Mark | None:
    """The mark of the store; None if there is no store. Cost: one HEAD."""
    try:
        store_object = objects.head(STORE)
    except ObjectNotFoundError:
        return None
    return store_object.etag, store_object.modified_ms


class PagesMeta(MetaStore):
    """A MetaStore that caches immutable objects: the manifests and barriers of committed epochs.

    MetaStores of other threads share the cache.
    """

    def __init__(self, objects: ObjectStore, writer: str, remembered: RememberedValues, **shared: Any) -> None:
        super().__init__(objects, writer, clock_ms, **shared)
        self._remembered = remembered
        self._known_epoch = 0

    def for_another_thread(self) -> "PagesMeta":
        other = PagesMeta(
            self.objects,
            self.writer,
            self._remembered,
            settings=self.settings,
            versions=self._versions.for_another_thread(),
            pin_numbers=self._pin_numbers,
        )
        other._known_epoch = self._known_epoch
        return other

    def read_manifest(self, epoch: int) -> SealedManifest | None:
        if epoch > self._known_epoch:
            return super().read_manifest(epoch)
        return self._remembered.get(("sealed", epoch), lambda: MetaStore.read_manifest(self, epoch))

    def barrier_after(self, prev_epoch: int) -> Barrier | None:
        if prev_epoch >= self._known_epoch:
            return super().barrier_after(prev_epoch)
        return self._remembered.get(("barrier", prev_epoch), lambda: MetaStore.barrier_after(self, prev_epoch))

    def read_latest(self, *, proven: bool = False) -> HummockVersion:
        version = super().read_latest(proven=proven)
        self._known_epoch = version.epoch
        return version


@dataclass(frozen=True, slots=True)
class _Answer:
    """The result of one look: a value or an error, its monotonic time, and the newest version at its start."""

    at_s: float
    version: int
    value: Any = None
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class LookResult:
    """The last answer of a slow look: value, age, and error. `value` is None if there is no answer yet.

    The age is counted from the moment at which the look began, so no fact is newer than it says.

    Args:
        at_s: monotonic time at which it began.
        waits: a newer answer has been requested and has not come.
    """

    value: Any
    at_s: float
    error: Exception | None
    waits: bool = False

    @property
    def age_s(self) -> float:
        """Its age now."""
        return max(0.0, time.monotonic() - self.at_s)

    @property
    def looking(self) -> bool:
        """Whether there is neither a value nor an error yet."""
        return self.value is None and self.error is None

    @property
    def is_late(self) -> bool:
        """Whether the page shows old facts because the store is busy, or does not answer."""
        return self.waits and self.value is not None and self.age_s > OLD_S


@dataclass
class Store:
    """One pipeline's store, shared by the pages of all threads."""

    address: str
    meta: PagesMeta  # read under `_reading`, since a MetaStore is not thread-safe
    mark: Mark | None  # of the store when it was opened
    gone: bool = False  # it was removed, moved or replaced: what is cached is not true any more
    _reading: Lock = field(default_factory=Lock)
    _lock: Lock = field(default_factory=Lock)
    _answers: RememberedValues = field(default_factory=partial(RememberedValues, REMEMBERED))
    _large: RememberedValues = field(default_factory=partial(RememberedValues, LARGE_REMEMBERED))
    _of_looks: RememberedValues = field(default_factory=partial(RememberedValues, LOOKS_REMEMBERED))
    _looks: dict[str, _Answer] = field(default_factory=dict)  # this and `_looking` under the lock
    _looking: dict[str, Future[None]] = field(default_factory=dict)
    _version: HummockVersion | None = None
    _read_s: float = -1.0  # when the version was requested
    _last: "SeenStore | None" = None  # of an earlier page, for pages that the store keeps waiting

    def seen(self, pipeline: Pipeline) -> "SeenStore":
        """Return the store at the newest version, for one page. Cost: one GET.

        Pages that wait for the lock share the GET, if it begins after their own request.
        """
        asked = time.monotonic()
        with self._reading:
            version = self._version
            if version is None or self._read_s < asked:
                began = time.monotonic()
                version = self._version = self.meta.read_latest()
                self._read_s = began
            self._last = SeenStore(self, pipeline, self.meta.for_another_thread(), version, self._read_s)
            return replace(self._last, meta=self.meta.for_another_thread())

    def last_seen(self) -> "SeenStore | None":
        """Return the store at the version of an earlier page; None without one. Requests nothing."""
        last = self._last
        return None if last is None else replace(last, meta=last.meta.for_another_thread(), waits=True)

    def remembered(self, key: Any, find: Callable[[], T], *, large: bool = False) -> T:
        """Return the answer of `find` for a key that names everything on which the answer depends.

        `large`: quality records; fewer of them are kept.
        """
        return (self._large if large else self._answers).get(key, find)

    def of_look(self, key: Any, find: Callable[[], T]) -> T:
        """As `remembered`, for a key that contains the value of a look. There are new ones every few seconds."""
        return self._of_looks.get(key, find)

    def look(self, key: str, find: Callable[[MetaStore], Any], at: "SeenStore") -> LookResult:
        """See SeenStore.look."""
        version = at.version.id
        with self._lock:
            known = self._looks.get(key)
            age_s = None if known is None else time.monotonic() - known.at_s
            fresh = known is not None and known.version >= version and age_s is not None and age_s < FRESH_S
            if not fresh and (key not in self._looking or self._looking[key].done()):
                self._looking[key] = _POOL.submit(self._find_answer, key, version, find, at.meta.for_another_thread())
            future = None if fresh else self._looking[key]
        waits = future is not None and not future.cancelled()
        if future is not None and waits:
            waits = not _came_in_time(future, PATIENCE_S if age_s is not None and age_s < FRESH_S else OLD_PATIENCE_S)
        with self._lock:
            answer = self._looks.get(key) or _Answer(time.monotonic(), version)
        return LookResult(answer.value, answer.at_s, answer.error, waits)

    def _find_answer(self, key: str, version: int, find: Callable[[MetaStore], Any], meta: MetaStore) -> None:
        with _TURNS.turn():
            self._find_now(key, version, find, meta)

    def _find_now(self, key: str, version: int, find: Callable[[MetaStore], Any], meta: MetaStore) -> None:
        try:
            # For a store that is gone, the GET of the next version has the same answer as for one without news.
            if mark_of(meta.objects) != self.mark:
                self.gone = True  # the next page opens it anew; this one has an older answer, or none
                return
            answer = _Answer(time.monotonic(), version, find(meta))
        except Exception as err:  # shown on the page
            answer = _Answer(time.monotonic(), version, error=err)
        with self._lock:
            self._looks[key] = answer


@dataclass(frozen=True, slots=True)
class SeenStore:
    """A pipeline's store at the version that one page shows, so that all its facts belong together.

    Args:
        meta: of this page only, at the version or a later one.
        read_s: monotonic time at which the version was requested.
        waits: a newer version has been requested and has not come.
    """

    store: Store
    pipeline: Pipeline
    meta: PagesMeta
    version: HummockVersion
    read_s: float = field(default_factory=time.monotonic)
    waits: bool = False

    @property
    def looked(self) -> LookResult:
        """The version as a fact with its age. A newest version has none."""
        return LookResult(self.version, self.read_s if self.waits else time.monotonic(), None, self.waits)

    def at_version(self, key: Any, find: Callable[[MetaStore, HummockVersion], T]) -> T:
        """Return the answer of `find` at the version. Pages of the same version share it.

        Raises ObjectStoreUnavailableError if a store that keeps its pages waiting does not answer.
        """

        def find_answer() -> T:
            return self.store.remembered((key, self.version.id), lambda: find(self.meta, self.version))

        if not self.waits:
            return find_answer()
        future = _ASKING.submit(find_answer)
        if not _came_in_time(future, ANSWER_S):
            raise _no_answer(self.pipeline)
        return future.result()

    def at_catalog(self, key: Any, find: Callable[[Catalog], T]) -> T:
        """Return the answer of `find`, which depends on the catalog alone: most epochs do not change it."""
        catalog = self.version.catalog
        return self.store.remembered((key, Same(catalog)), lambda: find(catalog))

    def remembered(self, key: Any, find: Callable[[], T], *, large: bool = False) -> T:
        """See Store.remembered."""
        return self.store.remembered(key, find, large=large)

    def of_look(self, key: Any, find: Callable[[], T]) -> T:
        """See Store.of_look."""
        return self.store.of_look(key, find)

    def look(self, key: str, find: Callable[[MetaStore], Any]) -> LookResult:
        """Return the answer of a slow `find`, such as a bucket listing or a scan.

        After PATIENCE_S it continues in the background, and this returns the previous answer.

        `find` gets its own MetaStore, since it may take minutes. An answer is valid for FRESH_S or until the next
        version.
        """
        return self.store.look(key, find, self)


def _came_in_time(future: "Future[Any]", patience_s: float) -> bool:
    """Wait for an answer; return whether it came in time."""
    return future in wait([future], patience_s).done


def _no_answer(pipeline: Pipeline) -> ObjectStoreUnavailableError:
    return ObjectStoreUnavailableError(pipeline.store, "the page's request", f"no answer for {ANSWER_S:g} s")


class Turns:
    """Lets a few looks work at a time, so that they leave the processor to the pages.

    A look that takes longer than ANSWER_S probably waits for a silent server. It then counts no longer, or the silent
    stores would keep the looks at all others waiting.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._began: dict[object, float] = {}  # monotonic times of the looks at work
        self._changed = Condition()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for a turn, and end it after the block."""
        me = object()
        with self._changed:
            while (wait_s := self._wait_s()) > 0:
                self._changed.wait(wait_s)
            self._began[me] = time.monotonic()
        try:
            yield
        finally:
            with self._changed:
                del self._began[me]
                self._changed.notify()

    def _wait_s(self) -> float:
        """Seconds until the oldest turn no longer counts; 0 if a turn is free."""
        now = time.monotonic()
        counted = sorted(began for began in self._began.values() if now - began < ANSWER_S)
        return 0.0 if len(counted) < self._most else max(0.001, counted[0] + ANSWER_S - now)


_POOL = ThreadPoolExecutor(128, "tussock-pages")  # a silent store holds one per kind of look
_TURNS = Turns(2)
_ASKING = ThreadPoolExecutor(128, "tussock-stores")  # a silent store holds up to two per thread of the server
_stores: dict[str, tuple[str, Store]] = {}  # with `store` of the file, by pipeline; see `_store_at` for parents
_locks: dict[str, Lock] = {}  # held while a store is opened, by pipeline
_silent: dict[str, "Future[SeenStore]"] = {}  # a request that outlasted its page, by pipeline
_opening = new_lock()
_definitions = RememberedValues(REMEMBERED)


def _renew_in_child() -> None:
    """Begin anew in a forked worker of the server, which has none of its parent's threads."""
    global _POOL, _TURNS, _ASKING
    _POOL, _ASKING = ThreadPoolExecutor(128, "tussock-pages"), ThreadPoolExecutor(128, "tussock-stores")
    _TURNS = Turns(2)
    for inherited in (_stores, _locks, _silent):
        inherited.clear()
    _definitions.forget()


renew_in_child(_renew_in_child)


def pipelines() -> tuple[FolderEntry, ...]:
    """All pipelines of the folder, also those whose definitions cannot be loaded.

    Cost: as `_read_definition` for each.
    """
    return tuple(map(_read_definition, pipeline_names(pipelines_folder())))


def pipeline_of(name: str) -> Pipeline:
    """A pipeline by its name. Raises UnknownPipelineError, PipelineError."""
    pipeline = _read_definition(name).pipeline if name in pipeline_names(pipelines_folder()) else None
    return tussock_steps.pipeline_of(name) if pipeline is None else pipeline


def _read_definition(name: str) -> FolderEntry:
    """The definition of a pipeline. Cost: reads its file if that has changed, or if it had an error.

    An error may end without a change of the file: the process may have had no right to read it, or no file handle.
    """
    folder = pipelines_folder()
    key = (folder, name, file_version(folder / name / FILE), frozenset(os.environ.items()))

    def read_entry() -> FolderEntry:
        entry = read_definition(name)
        if entry.error is not None:
            raise entry.error  # so that it is not kept
        return entry

    try:
        return _definitions.get(key, read_entry)
    except InputError as err:
        return FolderEntry(name, None, err)


def name_in(dag_id: str) -> tuple[str, str] | None:
    """The kind of a DAG and the name of its pipeline; None if it is not a Tussock DAG."""
    kind, _, name = dag_id.partition("_")
    name = name.partition(".")[0]  # the DAG of a sink's upkeep is named after both
    return (kind, name) if kind in tussock_steps.KINDS and name else None


def open_store(pipeline: Pipeline) -> SeenStore:
    """Return the store of a pipeline at its newest version. Cost: one GET; two if it is a branch of an environment.

    If the store does not answer within ANSWER_S, this returns it at the version of an earlier page (`waits`), and then
    at once until that answer has come.

    Raises NotInitialisedError if it does not exist, and errors of object stores: ObjectStoreUnavailableError also for
    a store that does not answer and that no page has seen before. BranchGoneError, and as `parent_of`, for a branch.
    """
    return begin_opening(pipeline)()


def begin_opening(pipeline: Pipeline) -> Callable[[], SeenStore]:
    """Begin `open_store` in another thread; the result waits for it and returns or raises as `open_store`.

    A request to a silent server lasts for minutes. It must not keep the page, nor pages of other pipelines.
    """
    until = time.monotonic() + ANSWER_S
    with _opening:
        silent = _silent.get(pipeline.name)
        if silent is not None and silent.done():
            del _silent[pipeline.name]
            silent = None
        future = silent or _ASKING.submit(_open_store, pipeline, _locks.setdefault(pipeline.name, Lock()))

    def opened_store() -> SeenStore:
        if silent is None:
            wait([future], max(0.0, until - time.monotonic()))
        if silent is None and future.done():
            return future.result()
        with _opening:
            _silent.setdefault(pipeline.name, future)
        address, store = _stores.get(pipeline.name, ("", None))
        last = None if store is None or store.gone or address != pipeline.store else store.last_seen()
        if last is None:
            raise _no_answer(pipeline)
        return last

    return opened_store


def _open_store(pipeline: Pipeline, lock: Lock) -> SeenStore:
    with lock:
        if (parent := parent_of(pipeline)) is None:
            opened, resolved = _store_at(pipeline.name, pipeline.store, pipeline.store), pipeline
        else:
            of_parent = _store_at(f"{pipeline.name} {parent.environment}", parent.store, parent.store).seen(parent)
            resolved = on_branch_of(pipeline, of_parent.meta)
            opened = _store_at(pipeline.name, pipeline.store, resolved.store)
    return opened.seen(resolved)


def _store_at(key: str, written: str, address: str) -> Store:
    """The store at an address, opened once. Requires: the lock of its pipeline.

    Args:
        key: of `_stores`: the pipeline, or the pipeline and the environment whose branch its store is.
        written: `store` of the environment. It may lead to another address later, if it is a branch.
    """
    known = _stores.get(key)
    if known is None or known[0] != written or known[1].gone or known[1].address != address:
        leave_pandas()
        objects = open_object_store(store_address(address))
        mark = mark_of(objects)
        meta = PagesMeta(objects, new_writer(), RememberedValues(REMEMBERED))
        _ = meta.settings  # raises NotInitialisedError if the store is missing
        known = _stores[key] = (written, Store(address, meta, mark))
    return known[1]
