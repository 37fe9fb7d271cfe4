"""Deliveries: the files that together are the whole source at one time, for sources with `changes 'snapshot'`.

    path 'products'                          each file is a delivery
    path 'products/{date}/*.parquet'         files that share the values of the placeholders are one
    path 'products/*', snapshot_done '_OK'   files of one folder are one, once the folder contains this file

Names are compared in natural order: a run of digits is a number, so `9.json` comes before `10.json`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.errors import BadOptionError
from tussock.jobs.sources.listing import literal_folder, open_file, template_pattern, with_wildcards
from tussock.statestore.objectstore.base import object_exists

SNAPSHOT_DONE = "snapshot_done"
_DIGITS = re.compile(r"[0-9]+")
_LENGTH_DIGITS = 3  # names have fewer than 1,000 digits


@dataclass(frozen=True, slots=True)
class Deliveries:
    """How the files of a source form deliveries.

    Args:
        folders: the folders that names of files are relative to: the present one, then earlier ones.
        template: finds the values of the placeholders in a relative name; None: the path has none.
        marker: the name of the file that completes a delivery; empty: none does.
        by_key: rows have a key, so the next delivery is compared with the rows of the table.
        scoped: a delivery replaces only a part of the rows, so a late one counts too.
    """

    folders: tuple[str, ...]
    template: re.Pattern[str] | None
    marker: str
    by_key: bool
    scoped: bool

    def name_of(self, path: str) -> str:
        """Return the name of the delivery that a file belongs to."""
        name = name_in_source(path, self.folders)
        if self.template is not None and (values := self.template.match(name)) is not None:
            return "/".join(values.groups()[1:])
        return name.rpartition("/")[0] if self.marker and self.template is None else name

    def order_of(self, path: str) -> bytes:
        """Return the order of a file's delivery. The greatest one is the newest."""
        return natural_order(self.name_of(path))

    def marker_path(self, path: str) -> str:
        """Return the path of the marker of a file's delivery. Requires: there are markers."""
        name, folder = name_in_source(path, self.folders), path.rpartition("/")[0]
        if self.template is not None and (values := self.template.match(name)) is not None and values[1] != name:
            folder = path.removesuffix(name) + values[1]
        return f"{folder}/{self.marker}"

    def is_marker(self, path: str) -> bool:
        """Return whether a file is a marker and contains no rows."""
        return bool(self.marker) and path.rpartition("/")[2] == self.marker

    def is_complete(self, path: str, options: Mapping[str, str]) -> bool:
        """Return whether the delivery of a file is complete. Cost: one HEAD request if there are markers."""
        return not self.marker or object_exists(*open_file(self.marker_path(path), options))


def deliveries_of(source: CreateSource, *, scoped: bool) -> Deliveries:
    """Return how the files of a source form deliveries. Raises BadOptionError."""
    marker = source.options.get(SNAPSHOT_DONE, "")
    if "/" in marker or (SNAPSHOT_DONE in source.options and not marker):
        reason = "expected the name of a file in the folder of a delivery, such as '_SUCCESS'"
        raise BadOptionError(source.name, SNAPSHOT_DONE, marker, reason)
    path = source.options["path"]
    folders = folders_of(source)
    template = template_pattern(path, source.options)
    return Deliveries(folders, template, marker, source.keyed is not None, scoped)


def listed_path(source: CreateSource) -> str:
    """Return the path of a source with wildcards for its placeholders, as its files are listed."""
    return with_wildcards(source.options["path"])


def folders_of(source: CreateSource) -> tuple[str, ...]:
    """Return the folders that names of a source's files are relative to; none for a source without a path."""
    path = source.options.get("path")
    if path is None:
        return ()
    folder = literal_folder(path, source.options)
    moved = (f"{move.base}{folder.removeprefix(move.to)}" for move in source.moves if folder.startswith(move.to))
    return tuple(dict.fromkeys((folder, *moved)))


def name_in_source(path: str, folders: tuple[str, ...]) -> str:
    """Return the name of a file below the source's folder, which stays when the folder moves."""
    folder = next((f for f in folders if path.startswith(f"{f}/")), path.rpartition("/")[0])
    return path.removeprefix(f"{folder}/")


def natural_order(name: str) -> bytes:
    """Return bytes that order names: texts by their bytes, and runs of digits as numbers.

    The number of its digits precedes each number: 9 is `0019`, and 10 is `00210`. Names that differ only in leading
    zeros follow each other.
    """

    def with_length(digits: re.Match[str]) -> str:
        number = digits[0].lstrip("0")
        return f"{len(number):0{_LENGTH_DIGITS}}{number}"

    return _DIGITS.sub(with_length, name).encode() + b"\0" + name.encode()
