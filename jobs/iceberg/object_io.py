"""Metadata files of Iceberg tables in stores that pyiceberg cannot open without further packages, or not at all.

pyiceberg finds `ObjectIO` by the catalog's property `py-io-impl`, and reads and writes metadata through it. Data files
are read and written without pyiceberg.
"""

import io
from typing import TYPE_CHECKING, Any

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream

from tussock.statestore.objectstore.base import ObjectNotFoundError, ObjectStore
from tussock.statestore.objectstore.open import address_of, open_object_store

if TYPE_CHECKING:
    from pyiceberg.typedef import Properties

_STORE = "tussock.objects"  # the property with the URI of the store


def properties_of(objects: ObjectStore) -> dict[str, str]:
    """Return the properties of a catalog whose tables are in a store."""
    return {"py-io-impl": f"{ObjectIO.__module__}.{ObjectIO.__name__}", _STORE: objects.uri}


class ObjectIO(FileIO):
    """The files of one store, by their addresses, such as `gs://bucket/prefix/a`."""

    def __init__(self, properties: "Properties" = {}) -> None:  # noqa: B006 - pyiceberg's signature
        super().__init__(properties)
        self._objects = open_object_store(properties[_STORE])
        address = address_of(self._objects)
        assert address is not None, "a local folder needs no such files"
        self._folder = f"{address.folder}/"

    def new_input(self, location: str) -> "ObjectFile":
        """See FileIO."""
        return ObjectFile(location, self._objects, self._name_of(location))

    def new_output(self, location: str) -> "ObjectFile":
        """See FileIO."""
        return ObjectFile(location, self._objects, self._name_of(location))

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """See FileIO."""
        self._objects.delete([self._name_of(location if isinstance(location, str) else location.location)])

    def _name_of(self, location: str) -> str:
        if not location.startswith(self._folder):
            raise FileNotFoundError(f"{location} is outside of {self._folder}")
        return location[len(self._folder) :]


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
