"""The bytes of taken files stay reachable, so that a view made later sees what the others saw, and a file's rows can be taken back.

`PinnedFile.kept` says where: `version:<id>`, a version of the file in a bucket that keeps versions, else the name of a copy in the store.
The copy is made when the file is pinned, by the server itself where it has both (S3's CopyObject), else once through this process. It is
read only where the file is not as recorded any more; a version is copied into the store then, for as long as an epoch reads it.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import msgspec

from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.errors import ChangedFileError, LostCopyError
from tussock.jobs.sources.listing import open_file
from tussock.jobs.sources.pins import PinnedFile, is_as_recorded, verify_pin
from tussock.statestore.meta.names import source_copy_name
from tussock.statestore.objectstore.base import BadStoreError, ObjectNotFoundError, ObjectStore
from tussock.statestore.objectstore.copy import copy_object
from tussock.statestore.objectstore.local import LocalObjectStore
from tussock.statestore.objectstore.open import as_s3, open_object_store

_VERSION = "version:"
_PARALLEL = 16


@dataclass(frozen=True, slots=True)
class Keeper:
    """Keeps files in a store.

    Args:
        epoch: the one that the epoch which takes or reads them follows; copies carry it, and stay for as long as it is not followed.
    """

    objects: ObjectStore
    epoch: int

    def keep(self, source: CreateSource, files: Sequence[PinnedFile]) -> tuple[PinnedFile, ...]:
        """The files with their bytes kept. Raises ChangedFileError for one that changes meanwhile; errors of both stores.
        Cost: a HEAD a file, and a copy where no version stands for it."""
        return _on_threads(lambda file: self._kept(source, file), files)

    def locate(self, source: CreateSource, files: Sequence[PinnedFile]) -> tuple[PinnedFile, ...]:
        """The files with the place to read them at: their own where they are as recorded, else what was kept. Raises ChangedFileError
        where nothing was; LostCopyError. Cost: a HEAD a file."""
        return _on_threads(lambda file: self._located(source, file), files)

    def _kept(self, source: CreateSource, file: PinnedFile) -> PinnedFile:
        store, name = open_file(file.path, source.options)
        if version := self._version_of(store, name, file):
            return msgspec.structs.replace(file, kept=_VERSION + version)
        copy = self._copy_name(file)
        if not self._is_there(copy, file):
            try:
                copy_object(store, name, self.objects, copy, file.etag)
            except ObjectNotFoundError as err:
                raise _changed(file, "another file, or none") from err
            verify_pin(file, source.options)  # what was copied is what was pinned
        return msgspec.structs.replace(file, kept=copy)

    def _version_of(self, store: ObjectStore, name: str, file: PinnedFile) -> str:
        """The version of the pinned bytes, where the store can copy it later without us; else empty."""
        if isinstance(store, LocalObjectStore) or isinstance(self.objects, LocalObjectStore):
            return ""
        source, copies = as_s3(store), as_s3(self.objects)
        if source is None or copies is None or not copies.is_beside(source):
            return ""
        try:
            info, version = source.version_of(name)
        except ObjectNotFoundError as err:
            raise _changed(file, "no such file") from err
        if (info.size, info.etag) != (file.size, file.etag):
            raise _changed(file, f"{info.size} bytes, ETag {info.etag}")
        return version

    def _located(self, source: CreateSource, file: PinnedFile) -> PinnedFile:
        store, name = open_file(file.path, source.options)
        try:
            info = store.head(name)
            if is_as_recorded(file.path, info.size, info.etag, file.size, file.etag):
                return file
        except ObjectNotFoundError as err:
            if not file.kept:
                raise _changed(file, "no such file", taken=True) from err
        else:
            if not file.kept:
                raise _changed(file, f"{info.size} bytes, ETag {info.etag}", taken=True)
        kept = file.kept
        if kept.startswith(_VERSION):
            kept = self._copy_name(file)
            try:
                if not self._is_there(kept, file):
                    copy_object(store, name, self.objects, kept, file.etag, file.kept.removeprefix(_VERSION))
            except ObjectNotFoundError as err:
                raise LostCopyError(file.path, f"version {file.kept.removeprefix(_VERSION)} of it") from err
        return msgspec.structs.replace(file, kept=kept, store=self.objects.uri)

    def _is_there(self, copy: str, file: PinnedFile) -> bool:
        try:
            return self.objects.head(copy).size == file.size
        except ObjectNotFoundError:
            return False

    def _copy_name(self, file: PinnedFile) -> str:
        """With the file's own last name: Spark goes by its ending."""
        return source_copy_name(self.epoch, f"{file.path}\0{file.size}\0{file.etag}", file.path.rpartition("/")[2])


def place_of_bytes(file: PinnedFile) -> str:
    """A file's path, or that of its copy where that is to be read: `/a/b.csv` or `s3://bucket/a/b.csv`."""
    if not file.store:
        return file.path
    if local := file.local_path:
        return local
    objects = open_object_store(file.store)
    if (bucket := as_s3(objects)) is not None:
        prefix = f"{bucket.address.prefix}/" if bucket.address.prefix else ""
        return f"s3://{bucket.address.bucket}/{prefix}{file.kept}"
    raise BadStoreError(objects.uri, "Spark reads copies of files from a folder or from s3://bucket/prefix")


def hadoop_options(files: Sequence[PinnedFile]) -> dict[str, str]:
    """What Spark's reader is to be given to reach the copies of some files."""
    found: dict[str, str] = {}
    for store in {file.store for file in files} - {""}:
        if store.startswith("s3"):
            objects = as_s3(open_object_store(store))
            assert objects is not None
            if (address := objects.address).endpoint is not None:
                of = f"fs.s3a.bucket.{address.bucket}"
                found |= {
                    f"{of}.endpoint": address.endpoint,
                    f"{of}.path.style.access": str(address.path_style).lower(),
                }
    return found


def _on_threads(do: Callable[[PinnedFile], PinnedFile], files: Sequence[PinnedFile]) -> tuple[PinnedFile, ...]:
    if not files:
        return ()
    with ThreadPoolExecutor(_PARALLEL) as pool:
        return tuple(pool.map(do, files))


def _changed(file: PinnedFile, found: str, *, taken: bool = False) -> ChangedFileError:
    return ChangedFileError(file.path, f"{file.size} bytes, ETag {file.etag}", found, taken)
