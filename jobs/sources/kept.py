"""Keep the bytes of taken files reachable, so that new views see the same content, and a file's rows can be taken back.

`PinnedFile.kept` is `version:<id>`, a version of the file in a versioned bucket, or else the name of a copy in the
store. The copy is made when the file is pinned: by the server if it holds both places (S3's CopyObject), otherwise
through this process. It is read only if the file has changed since. A version is then first copied into the store, for
as long as an epoch reads it.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.errors import ChangedFileError, LostCopyError
from tussock.jobs.sources.listing import open_file
from tussock.jobs.sources.pins import PinnedFile, is_as_recorded, verify_pin
from tussock.statestore.meta.names import source_copy_name
from tussock.statestore.objectstore.base import BadStoreError, ObjectNotFoundError, ObjectStore
from tussock.statestore.objectstore.copy import copy_object
from tussock.statestore.objectstore.local import LocalObjectStore
from tussock.statestore.objectstore.open import address_of, as_s3, open_object_store

_VERSION = "version:"
_PARALLEL = 16
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Keeper:
    """Keeps the bytes of files in a store.

    Args:
        epoch: the base of the epoch that takes or reads the files. The names of copies contain it; vacuum leaves them
            until a later epoch is committed.
        is_followed: whether an open branch may still read the input of earlier epochs.
    """

    objects: ObjectStore
    epoch: int
    is_followed: bool = False

    def keep_files(self, source: CreateSource, files: Sequence[PinnedFile]) -> tuple[PinnedFile, ...]:
        """Keep the bytes of files; return the files with `kept` set.

        Raises: ChangedFileError if a file changes meanwhile; errors of both stores. Cost: one HEAD request per file,
        and a copy if the bucket has no version of it.
        """
        return map_in_threads(lambda file: self._keep_file(source, file), files)

    def locate_files(self, source: CreateSource, files: Sequence[PinnedFile]) -> tuple[PinnedFile, ...]:
        """Return the files with their places to read: unchanged files in place, others as kept.

        Raises: ChangedFileError if a changed file was not kept; LostCopyError. Cost: one HEAD request per file.
        """
        return map_in_threads(lambda file: self._locate_file(source, file), files)

    def _keep_file(self, source: CreateSource, file: PinnedFile) -> PinnedFile:
        store, name = open_file(file.path, source.options)
        if version := self._version_of(store, name, file):
            return msgspec.structs.replace(file, kept=_VERSION + version)
        copy = self._copy_name(file)
        if not self._is_there(copy, file):
            try:
                copy_object(store, name, self.objects, copy, file.etag)
            except ObjectNotFoundError as err:
                raise _changed_error(file, "another file, or no file") from err
            verify_pin(file, source.options)  # the copy has the pinned content
        return msgspec.structs.replace(file, kept=copy)

    def _version_of(self, store: ObjectStore, name: str, file: PinnedFile) -> str:
        """Return the version of the pinned bytes if the store's server can copy it later; otherwise an empty string."""
        if isinstance(store, LocalObjectStore) or isinstance(self.objects, LocalObjectStore):
            return ""
        source, copies = as_s3(store), as_s3(self.objects)
        if source is None or copies is None or not copies.is_beside(source):
            return ""
        try:
            info, version = source.version_of(name)
        except ObjectNotFoundError as err:
            raise _changed_error(file, "no such file") from err
        if (info.size, info.etag) != (file.size, file.etag):
            raise _changed_error(file, f"{info.size} bytes, ETag {info.etag}")
        return version

    def _locate_file(self, source: CreateSource, file: PinnedFile) -> PinnedFile:
        store, name = open_file(file.path, source.options)
        try:
            info = store.head(name)
            if is_as_recorded(file.path, info.size, info.etag, file.size, file.etag):
                return file
        except ObjectNotFoundError as err:
            if not file.kept:
                raise _changed_error(file, "no such file", taken=True) from err
        else:
            if not file.kept:
                raise _changed_error(file, f"{info.size} bytes, ETag {info.etag}", taken=True)
        kept_name = file.kept
        if kept_name.startswith(_VERSION):
            kept_name = self._copy_name(file)
            try:
                if not self._is_there(kept_name, file):
                    copy_object(store, name, self.objects, kept_name, file.etag, file.kept.removeprefix(_VERSION))
            except ObjectNotFoundError as err:
                raise LostCopyError(file.path, f"version {file.kept.removeprefix(_VERSION)} of it") from err
        return msgspec.structs.replace(file, kept=kept_name, store=self.objects.uri)

    def _is_there(self, copy: str, file: PinnedFile) -> bool:
        try:
            return self.objects.head(copy).size == file.size
        except ObjectNotFoundError:
            return False

    def _copy_name(self, file: PinnedFile) -> str:
        """Return a name that ends with the file's own name, because Spark interprets the extension."""
        return source_copy_name(self.epoch, f"{file.path}\0{file.size}\0{file.etag}", file.path.rpartition("/")[2])


def place_of_bytes(file: PinnedFile) -> str:
    """Return a file's path, or its copy's if the copy is to be read: `/a/b.csv` or `s3://bucket/a/b.csv`."""
    if not file.store:
        return file.path
    if local := file.local_path:
        return local
    if (address := address_of(open_object_store(file.store))) is not None:
        return f"{address.folder}/{file.kept}"
    raise BadStoreError(file.store, "Spark reads copies of files from a folder or from a bucket")


def hadoop_options(files: Sequence[PinnedFile]) -> dict[str, str]:
    """Return the Hadoop options with which Spark reaches the copies of files."""
    options: dict[str, str] = {}
    for store in {file.store for file in files} - {""}:
        if store.startswith("s3"):
            objects = as_s3(open_object_store(store))
            assert objects is not None
            if (address := objects.address).endpoint is not None:
                of = f"fs.s3a.bucket.{address.bucket}"
                options |= {
                    f"{of}.endpoint": address.endpoint,
                    f"{of}.path.style.access": str(address.path_style).lower(),
                }
    return options


def map_in_threads(do: Callable[[T], R], items: Sequence[T]) -> tuple[R, ...]:
    """The results of requests that wait for a store, in order. A single item gets no thread, as in most epochs."""
    if len(items) < 2:
        return tuple(map(do, items))
    with ThreadPoolExecutor(_PARALLEL) as pool:
        return tuple(pool.map(do, items))


def _changed_error(file: PinnedFile, current_state: str, *, taken: bool = False) -> ChangedFileError:
    return ChangedFileError(file.path, f"{file.size} bytes, ETag {file.etag}", current_state, taken)
