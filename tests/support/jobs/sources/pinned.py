"""Pins of files in their current state."""

from collections.abc import Mapping

from tussock.jobs.sources.listing import list_files
from tussock.jobs.sources.pins import PinnedFile


def pinned(path: object, number: int = 0, options: Mapping[str, str] | None = None) -> PinnedFile:
    """The file at `path`, pinned as by a barrier."""
    directory = str(path).rpartition("/")[0]
    (found,) = (f for f in list_files(directory, options or {}) if f.path == str(path))
    return PinnedFile(path=found.path, size=found.size, etag=found.etag, number=number)
