"""The pipelines' stores for the pages: opened read-only once per process, with cached answers."""

import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock, RLock
from typing import Any, TypeVar, cast

from tussock_steps import definitions

from tussock.jobs.operations.folder import FolderEntry
from tussock.jobs.settings.arrow import leave_pandas
from tussock.jobs.settings.pipeline import Pipeline
from tussock.jobs.settings.process import clock_ms, new_writer, store_address
from tussock.statestore.meta.barrier import Barrier
from tussock.statestore.meta.manifest import SealedManifest
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.objectstore.open import open_object_store

T = TypeVar("T")
REMEMBERED = 512  # cached manifests, barriers and answers per store, each some hundred bytes per view
PATIENCE_S = 0.15  # a page waits this long for a newer look; then it shows the previous answer with its age
OLD_S = 10.0
"""Facts that are older are marked on the page. It waits OLD_PATIENCE_S for newer ones."""

OLD_PATIENCE_S = 0.6
KINDS = ("epoch", "deploy", "upkeep", "rebalance", "verify")
"""Prefixes of the names of a pipeline's DAGs."""


class _Remembered:
    """An LRU cache of REMEMBERED values. Two threads that miss the same key may both compute its value."""

    def __init__(self) -> None:
        self._values: OrderedDict[Any, Any] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Any, find: Callable[[], T]) -> T:
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return cast("T", self._values[key])
        value = find()
        with self._lock:
            self._values[key] = value
            while len(self._values) > REMEMBERED:
                self._values.popitem(last=False)
        return value


class PagesMeta(MetaStore):
    """A MetaStore that caches immutable objects: the manifests and barriers of committed epochs."""

    def __init__(self, store: str) -> None:
        super().__init__(open_object_store(store_address(store)), new_writer(), clock_ms)
        self._remembered = _Remembered()

    def sealed(self, epoch: int) -> SealedManifest | None:
        if epoch > self._known.epoch:
            return super().sealed(epoch)
        return self._remembered.get(("sealed", epoch), lambda: MetaStore.sealed(self, epoch))

    def barrier_after(self, prev_epoch: int) -> Barrier | None:
        if prev_epoch >= self._known.epoch:
            return super().barrier_after(prev_epoch)
        return self._remembered.get(("barrier", prev_epoch), lambda: MetaStore.barrier_after(self, prev_epoch))

    def latest(self) -> HummockVersion:
        self._known = super().latest()
        return self._known


@dataclass(frozen=True, slots=True)
class _Answer:
    """The result of one look: a value or an error, its monotonic time, and the newest version at its start."""

    at_s: float
    version: int
    value: Any = None
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class Looked:
    """The last answer of a slow look: value, age, and error. `value` is None if there is no answer yet.

    The age is counted from the moment at which the look began, so no fact is newer than it says.
    """

    value: Any
    age_s: float
    error: Exception | None

    @property
    def looking(self) -> bool:
        """Whether there is neither a value nor an error yet."""
        return self.value is None and self.error is None


@dataclass
class Store:
    """One pipeline's store, shared by the pages of all threads."""

    pipeline: Pipeline
    meta: PagesMeta
    lock: RLock = field(default_factory=RLock)  # a MetaStore is not thread-safe
    _answers: _Remembered = field(default_factory=_Remembered)
    _looks: dict[str, _Answer] = field(default_factory=dict)  # read and written under the lock
    _looking: dict[str, Future[None]] = field(default_factory=dict)

    def at_version(self, key: Any, find: Callable[[MetaStore, HummockVersion], T]) -> T:
        """Return the answer of `find` at the latest version, cached per version. Cost: one GET if it is cached."""
        with self.lock:
            version = self.meta.latest()
            return self._answers.get((key, version.id), lambda: find(self.meta, version))

    def look(self, key: str, find: Callable[[MetaStore], Any]) -> Looked:
        """Return the answer of a slow `find`, such as a bucket listing or a scan.

        After PATIENCE_S it continues in the background, and this returns the previous answer.

        `find` gets its own MetaStore, since it may take minutes. An answer is valid for half of OLD_S or until the next
        version.
        """
        with self.lock:
            known, version = self._looks.get(key), self.meta.latest().id
            age_s = None if known is None else time.monotonic() - known.at_s
            fresh = known is not None and known.version == version and age_s is not None and age_s < OLD_S / 2
            if not fresh and (key not in self._looking or self._looking[key].done()):
                self._looking[key] = _POOL.submit(self._find, key, version, find, self.meta.for_another_thread())
            future = None if fresh else self._looking[key]
        if future is not None and not future.cancelled():
            _wait(future, PATIENCE_S if age_s is not None and age_s < OLD_S / 2 else OLD_PATIENCE_S)
        now = time.monotonic()
        with self.lock:
            found = self._looks.get(key, _Answer(now, version))
        return Looked(found.value, max(0.0, now - found.at_s), found.error)

    def _find(self, key: str, version: int, find: Callable[[MetaStore], Any], meta: MetaStore) -> None:
        try:
            found = _Answer(time.monotonic(), version, find(meta))
        except Exception as err:  # shown on the page
            found = _Answer(time.monotonic(), version, error=err)
        with self.lock:
            self._looks[key] = found


def _wait(future: "Future[None]", patience_s: float) -> None:
    try:
        future.result(patience_s)
    except TimeoutError:
        return


_POOL = ThreadPoolExecutor(2, "tussock-pages")
_stores: dict[str, Store] = {}
_opening = Lock()


def pipelines() -> tuple[FolderEntry, ...]:
    """All pipelines of the folder, also those whose definitions cannot be loaded. Cost: reads their small files."""
    return definitions().found


def name_in(dag_id: str) -> tuple[str, str] | None:
    """The kind of a DAG and the name of its pipeline; None if it is not a Tussock DAG."""
    kind, _, name = dag_id.partition("_")
    return (kind, name) if kind in KINDS and name else None


def open_store(pipeline: Pipeline) -> Store:
    """Return the store of a pipeline.

    Raises NotInitialisedError if it does not exist yet, and errors of object stores.
    """
    with _opening:
        known = _stores.get(pipeline.name)
        if known is None or known.pipeline.store != pipeline.store:
            leave_pandas()
            meta = PagesMeta(pipeline.store)
            _ = meta.settings  # raises NotInitialisedError if the store is missing
            meta.latest()
            known = _stores[pipeline.name] = Store(pipeline, meta)
        known.pipeline = pipeline  # its file may have changed
        return known
