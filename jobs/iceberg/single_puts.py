"""Metadata files of a commit, written with one PUT each.

pyiceberg writes a file of a bucket as an upload in parts, which is three requests, and then requests its size. These
files are small, and complete before they are written.
"""

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyiceberg.io import FileIO, InputFile, OutputFile


@dataclass(frozen=True, slots=True)
class Puts:
    """Writes the files of a folder. `put_file`: writes one, by its name below the folder; the folder ends with `/`."""

    folder: str
    put_file: Callable[[str, bytes], None]


class SinglePutIO(FileIO):
    """The files of a table. Those of a folder are written with one PUT; for the rest, pyiceberg decides."""

    def __init__(self, files: FileIO, puts: Puts) -> None:
        super().__init__(files.properties)
        self._files, self._puts = files, puts

    def new_input(self, location: str) -> InputFile:
        return self._files.new_input(location)

    def new_output(self, location: str) -> OutputFile:
        return (
            _WholeFile(location, self) if location.startswith(self._puts.folder) else self._files.new_output(location)
        )

    def delete(self, location: str | InputFile | OutputFile) -> None:
        self._files.delete(location)

    def put_file(self, location: str, data: bytes) -> None:
        """Write a file. One PUT."""
        self._puts.put_file(location.removeprefix(self._puts.folder), data)


class _WholeFile(OutputFile):
    """A file that is written when it is closed."""

    def __init__(self, location: str, files: SinglePutIO) -> None:
        super().__init__(location)
        self._files, self._size = files, 0

    def __len__(self) -> int:
        return self._size

    def exists(self) -> bool:
        return self.to_input_file().exists()

    def to_input_file(self) -> InputFile:
        return self._files.new_input(self.location)

    def create(self, overwrite: bool = False) -> Any:
        return _Stream(self.finish)

    def finish(self, data: bytes) -> None:
        """Write the content."""
        self._size = len(data)
        self._files.put_file(self.location, data)


class _Stream(io.BytesIO):
    def __init__(self, finish: Callable[[bytes], None]) -> None:
        super().__init__()
        self._finish = finish

    def close(self) -> None:
        if not self.closed:
            self._finish(self.getvalue())
        super().close()
