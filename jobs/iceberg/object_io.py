"""Files of Iceberg tables in stores that pyiceberg cannot open without further packages, or not at all.

pyiceberg finds `ObjectIO` by the catalog's property `py-io-impl`, and reads and writes metadata through it. Data files
are read and written without pyiceberg. Files in folders and in S3 stay pyiceberg's own.
"""

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream, load_file_io

from tussock.jobs.iceberg.table_files import normal_path_of
from tussock.statestore.objectstore.base import ObjectNotFoundError, ObjectStore
from tussock.statestore.objectstore.open import CLOUD_OPTIONS, open_bucket, read_options, split_address

if TYPE_CHECKING:
    from pyiceberg.typedef import Properties

_IMPLEMENTATION = "py-io-impl"
_OPTION = "tussock.server."  # the beginning of the properties with options of a store's URI
_ADDRESSES = tuple(f"{scheme}://" for scheme in CLOUD_OPTIONS)


def properties_of(objects: ObjectStore) -> dict[str, str]:
    """Return the properties of a catalog whose tables are in a store."""
    address, _, query = objects.uri.partition("?")
    return io_properties(read_options(address, query))


def io_properties(options: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of a catalog whose tables are on a server with these options, as in the URI of a store."""
    name = f"{ObjectIO.__module__}.{ObjectIO.__name__}"
    return {_IMPLEMENTATION: name, **{f"{_OPTION}{option}": value for option, value in options.items()}}


class ObjectIO(FileIO):
    """Files by their addresses, such as `gs://bucket/prefix/a`."""

    def __init__(self, properties: "Properties" = {}) -> None:  # noqa: B006 - pyiceberg's signature
        super().__init__(properties)
        self._options = {k.removeprefix(_OPTION): v for k, v in properties.items() if k.startswith(_OPTION)}
        self._by_scheme = dict[str, FileIO]()  # pyiceberg's, which remember their connections
        self._buckets = dict[str, ObjectStore]()

    def new_input(self, location: str) -> "InputFile":
        """See FileIO."""
        return self._theirs(location).new_input(location) if (file := self._file_at(location)) is None else file

    def new_output(self, location: str) -> "OutputFile":
        """See FileIO."""
        return self._theirs(location).new_output(location) if (file := self._file_at(location)) is None else file

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """See FileIO."""
        name = location if isinstance(location, str) else location.location
        if (file := self._file_at(name)) is None:
            self._theirs(name).delete(name)
        else:
            file.delete()

    def _file_at(self, location: str) -> "ObjectFile | None":
        """Return a file in one of the stores; None for a file that pyiceberg reads."""
        if not (path := normal_path_of(location)).startswith(_ADDRESSES):
            return None
        bucket, name = split_address(path)
        if (objects := self._buckets.get(bucket)) is None:
            objects = self._buckets[bucket] = open_bucket(bucket, options=self._options)
        return ObjectFile(location, objects, name)

    def _theirs(self, location: str) -> FileIO:
        scheme, properties = location.partition(":")[0], self.properties
        if (own := self._by_scheme.get(scheme)) is None:
            own = load_file_io({k: v for k, v in properties.items() if k != _IMPLEMENTATION}, location)
            self._by_scheme[scheme] = own
        return own


class ObjectFile(InputFile, OutputFile):
    """A file of metadata, in memory while it is open."""

    def __init__(self, location: str, objects: ObjectStore, name: str) -> None:
        super().__init__(location)
        self._objects, self._name = objects, name

    def __len__(self) -> int:
        return self._objects.head(self._name).size

    def exists(self) -> bool:
        """See InputFile."""
        try:
            self._objects.head(self._name)
        except ObjectNotFoundError:
            return False
        return True

    def open(self, seekable: bool = True) -> InputStream:
        """See InputFile. Raises FileNotFoundError."""
        try:
            return io.BytesIO(self._objects.get(self._name))
        except ObjectNotFoundError as err:
            raise FileNotFoundError(str(err)) from err

    def to_input_file(self) -> "ObjectFile":
        """See OutputFile."""
        return self

    def create(self, overwrite: bool = False) -> OutputStream:
        """See OutputFile. The object appears when the stream is closed."""
        if not overwrite and self.exists():
            raise FileExistsError(self.location)
        return _Written(self._objects, self._name)

    def delete(self) -> None:
        """Remove the object."""
        self._objects.delete([self._name])


class _Written(io.BytesIO):
    """Bytes that become an object once they are whole: an error within the block leaves none."""

    def __init__(self, objects: ObjectStore, name: str) -> None:
        super().__init__()
        self._objects, self._name = objects, name

    def __exit__(self, *error: Any) -> None:
        if error[0] is None:
            self.close()
        else:
            super().close()

    def close(self) -> None:
        if not self.closed:
            self._objects.put(self._name, self.getvalue())
        super().close()
