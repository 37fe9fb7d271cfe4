"""Metadata files of Iceberg tables, read and written by the clients of the state store.

pyiceberg finds `ObjectIO` by the catalog's property `py-io-impl`, and reads and writes metadata through it. Data files
are read and written without pyiceberg. These files are the engine's:

    of a sink, in every store    one request each. pyiceberg reads a file of a bucket with two requests, and writes one
                                 with six: it looks for the name twice, uploads in parts, and requests the size
    in gs, az and hdfs           pyiceberg cannot open them without further packages, or not at all

pyiceberg reads the other files of sources. Their catalog may have credentials for S3.
"""

import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream, load_file_io

from tussock.jobs.iceberg.table_files import normal_path_of
from tussock.statestore.objectstore.base import ObjectNotFoundError, ObjectStore, object_exists
from tussock.statestore.objectstore.local import LocalObjectStore
from tussock.statestore.objectstore.open import CLOUD_OPTIONS, REMOTE, open_bucket, split_address

if TYPE_CHECKING:
    from pyiceberg.typedef import Properties

    from tussock.jobs.delta.location import Location

_IMPLEMENTATION = "py-io-impl"
_OPTION = "tussock.server."  # the beginning of the properties with options of a store's URI
_FOLDER = "tussock.folder"  # the property with the address of a sink's tables
_ADDRESSES = tuple(f"{scheme}://" for scheme in CLOUD_OPTIONS)


def properties_in(location: "Location") -> dict[str, str]:
    """Return the properties of a catalog whose tables are in the location of a sink."""
    options = {} if location.address is None else location.address.options
    return {_FOLDER: location.root, **io_properties(options)}


def io_properties(options: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of a catalog whose tables are on a server with these options, as in the URI of a store."""
    name = f"{ObjectIO.__module__}.{ObjectIO.__name__}"
    return {_IMPLEMENTATION: name, **{f"{_OPTION}{option}": value for option, value in options.items()}}


class ObjectIO(FileIO):
    """Files by their addresses, such as `gs://bucket/prefix/a`."""

    def __init__(self, properties: "Properties" = {}) -> None:  # noqa: B006 - pyiceberg's signature
        super().__init__(properties)
        self._options = {k.removeprefix(_OPTION): v for k, v in properties.items() if k.startswith(_OPTION)}
        self._folder = f"{folder}/" if (folder := properties.get(_FOLDER)) else ""
        self._by_scheme = dict[str, FileIO]()  # pyiceberg's, which remember their connections
        self._stores = dict[str, ObjectStore]()

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
        path = normal_path_of(location)
        if not path.startswith(_ADDRESSES) and not (self._folder and path.startswith(self._folder)):
            return None
        root, name = split_address(path) if path.startswith(REMOTE) else (self._folder, path[len(self._folder) :])
        if (objects := self._stores.get(root)) is None:
            is_local = not root.startswith(REMOTE)
            objects = LocalObjectStore(Path(root)) if is_local else open_bucket(root, options=self._options)
            self._stores[root] = objects
        return ObjectFile(location, objects, name)

    def _theirs(self, location: str) -> FileIO:
        scheme, properties = location.partition(":")[0], self.properties
        if (own := self._by_scheme.get(scheme)) is None:
            own = load_file_io({k: v for k, v in properties.items() if k != _IMPLEMENTATION}, location)
            self._by_scheme[scheme] = own
        return own


class InsideIO(FileIO):
    """The files of one table, to read: each name passes a check before its file is opened."""

    def __init__(self, files: FileIO, require_inside: Callable[[str], None]) -> None:
        """
        Args:
            require_inside: raises an error for a path, in the form of `normal_path_of`, that the table may not name.
        """
        super().__init__(files.properties)
        self._files, self._require_inside = files, require_inside

    def new_input(self, location: str) -> "InputFile":
        """See FileIO. Raises the error of the check."""
        self._require_inside(normal_path_of(location))
        return self._files.new_input(location)

    def new_output(self, location: str) -> "OutputFile":
        """See FileIO. A table that is read is never written."""
        raise NotImplementedError(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """See FileIO. A table that is read is never written."""
        raise NotImplementedError(location)


class ObjectFile(InputFile, OutputFile):
    """A file of metadata, in memory while it is open."""

    def __init__(self, location: str, objects: ObjectStore, name: str) -> None:
        super().__init__(location)
        self._objects, self._name = objects, name
        self._written: int | None = None  # bytes

    def __len__(self) -> int:
        return self._objects.head(self._name).size if self._written is None else self._written

    def exists(self) -> bool:
        """See InputFile."""
        return object_exists(self._objects, self._name)

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
        return _Written(self.put)

    def put(self, data: bytes) -> None:
        """Write the object."""
        self._objects.put(self._name, data)
        self._written = len(data)

    def delete(self) -> None:
        """Remove the object."""
        self._objects.delete([self._name])


class _Written(io.BytesIO):
    """Bytes that become an object once they are whole: an error within the block leaves none."""

    def __init__(self, put: Callable[[bytes], None]) -> None:
        super().__init__()
        self._put = put

    def __exit__(self, *error: Any) -> None:
        if error[0] is None:
            self.close()
        else:
            super().close()

    def close(self) -> None:
        if not self.closed:
            self._put(self.getvalue())
        super().close()
