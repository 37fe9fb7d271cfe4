"""A source as it is created: its path made absolute, its columns from its files where the statement declares none."""

from pathlib import Path

import msgspec
import pyarrow as pa

from jobs.sources.listing import absolute_path, list_files, open_file
from jobs.sources.pins import RangeFile
from jobs.sql.schema import parquet_fields
from jobs.sql.statements import CreateSource
from statestore.errors import InputError


class NoFilesError(InputError):
    """A source whose columns its files should say, and there is no file."""

    def __init__(self, name: str, path: str) -> None:
        super().__init__(name, path)
        self.name, self.path = name, path

    def __str__(self) -> str:
        return (
            f"source {self.name!r}: {self.path} holds no file that could say its columns. "
            "Put a file there first, or declare them: CREATE SOURCE name (column type, …) USING parquet …"
        )


def placed(source: CreateSource, base: Path) -> CreateSource:
    """The source with an absolute path: what is stored must not depend on where anybody stands."""
    return msgspec.structs.replace(source, options={**source.options, "path": absolute_path(source.options["path"], base)})


def described(source: CreateSource) -> CreateSource:
    """The source with its columns, from its first file where the statement names none.

    Raises: MissingPathError, NoFilesError, and errors of the file.
    Cost: nothing where columns are declared; else one listing, one file's footer.
    """
    if source.fields:
        return source
    files = list_files(source.options["path"], source.options)
    if not files:
        raise NoFilesError(source.name, source.options["path"])
    store, name = open_file(files[0].path, source.options)
    with pa.PythonFile(RangeFile(store, name, files[0].size), mode="r") as opened:
        return msgspec.structs.replace(source, fields=parquet_fields(opened, files[0].path))
