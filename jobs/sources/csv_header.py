"""The header of a CSV file, compared with the source's columns.

Spark pairs columns by their place and ignores the names in a header, so that a file with its columns in another order would swap them
without an error. Its option `enforceSchema 'false'` compares the names; this is the default here for a source with `header 'true'`.
The comparison is made here and not by Spark's reader for two reasons: a column without a name in the header (pandas writes its index so)
is no difference, and the error names the file, its columns and the remedy.

A plain header is read from the first bytes of the file. A header that is not plain, or that seems to differ, is read by Spark, so that
quotes, comments, encodings and line separators have one meaning for header and rows.
"""

import bz2
import zlib
from collections.abc import Callable, Mapping, Sequence

from tussock.jobs.flow.failure import SourceFileError
from tussock.jobs.logical.nodes import Field
from tussock.jobs.sources.errors import ways_on
from tussock.jobs.sources.files import OWN_OPTIONS
from tussock.jobs.sources.pins import PinnedFile, open_pinned

HEADER, ENFORCE = "header", "enforceschema"  # names of options in lower case, as Spark compares them
_FIRST_BYTES = 1 << 16
#: Options under which the first line of a file is its header, taken apart at `sep`.
_PLAIN = {
    *(name.lower() for name in OWN_OPTIONS),
    *(
        "header",
        "enforceschema",
        "sep",
        "delimiter",
        "quote",
        "escape",
        "mode",
        "multiline",
        "nullvalue",
        "emptyvalue",
        "nanvalue",
    ),
    *("positiveinf", "negativeinf", "dateformat", "timestampformat", "timestampntzformat", "locale", "timezone"),
    *("ignoreleadingwhitespace", "ignoretrailingwhitespace", "maxcolumns", "maxcharspercolumn"),
}


class CsvHeaderError(SourceFileError):
    """The header of a CSV file names other columns than its source declares, or names them in another order."""

    def __init__(self, path: str, found: Sequence[str], expected: Sequence[str], difference: str) -> None:
        super().__init__(path, tuple(found), tuple(expected), difference)
        self.path, self.found, self.expected, self.difference = path, tuple(found), tuple(expected), difference

    def __str__(self) -> str:
        return (
            f"file {self.path}: its header names the columns ({', '.join(self.found)}), and the source declares "
            f"({', '.join(self.expected)}): {self.difference}. Write the file with the source's columns in their order, and the next run "
            "takes it in. To take columns by their place, create the source with the header's names, or with "
            "OPTIONS (…, enforceSchema 'true'). "
            f"Or go on: {ways_on(self.path)}."
        )


def option(options: Mapping[str, str], name: str) -> str | None:
    """An option by its name in lower case; Spark compares names without case."""
    return next((value for key, value in options.items() if key.lower() == name), None)


def has_header(options: Mapping[str, str]) -> bool:
    """Whether the files of a source begin with a header."""
    return (option(options, HEADER) or "false").lower() == "true"


def require_header(
    file: PinnedFile,
    fields: Sequence[Field],
    options: Mapping[str, str],
    case_sensitive: bool,
    by_spark: Callable[[], Sequence[str] | None],
) -> None:
    """Compare a file's header with the columns that are read of it.

    Args:
        fields: the declared columns.
        options: the source's. Without enforceSchema, as sources of earlier releases have it, only a declared name in another column's
            place is a difference: users of these may have named their columns otherwise than the header.
        by_spark: the header as Spark reads it; None for a file without rows.

    Raises: CsvHeaderError. Cost: one range read of 64 KB; `by_spark` for a header that is not plain.
    """
    names = [f.name for f in fields]
    only_swaps = option(options, ENFORCE) is None
    plain = _plain_header(file, options)
    if plain is not None and _difference(plain, names, case_sensitive, only_swaps) is None:
        return
    found = by_spark()
    if found is not None and (difference := _difference(found, names, case_sensitive, only_swaps)) is not None:
        raise CsvHeaderError(file.path, found, names, difference)


def _difference(found: Sequence[str], declared: Sequence[str], case_sensitive: bool, only_swaps: bool) -> str | None:
    """How a header differs from the declared columns; None if it does not. A column without a name has any."""

    def folded(name: str) -> str:
        return name.strip(" \t") if case_sensitive else name.strip(" \t").lower()

    known = {folded(name) for name in declared}
    for n, (there, wanted) in enumerate(zip(found, declared, strict=False), start=1):
        if folded(there) in ("", folded(wanted)) or (only_swaps and folded(there) not in known):
            continue
        return f"column {n} is called {there!r} there, not {wanted!r}"
    if len(found) != len(declared) and not only_swaps:
        return f"it has {len(found)} columns, not {len(declared)}"
    return None


def _plain_header(file: PinnedFile, options: Mapping[str, str]) -> list[str] | None:
    """The names in a file's first line; None if only Spark can tell them apart."""
    sep = option(options, "sep") or option(options, "delimiter") or ","
    quote = option(options, "quote")
    if len(sep) != 1 or any(o.lower() not in _PLAIN and not o.startswith("fs.") for o in options):
        return None
    store, name = open_pinned(file, options)
    size = min(file.size, _FIRST_BYTES)
    text = _decoded(file.path, store.get_ranges(name, [(0, size)])[0]) if size else None
    line, end, _ = ("" if text is None else text).removeprefix("\ufeff").partition("\n")
    line = line.removesuffix("\r")
    if not end or not line.strip() or "\r" in line:
        return None
    mark = '"' if quote is None else quote
    names = line.split(sep)
    if mark:
        names = [n[1:-1] if len(n) > 1 and n[0] == n[-1] == mark else n for n in names]
    return None if mark and any(mark in n for n in names) else names


def _decoded(path: str, data: bytes) -> str | None:
    """The first characters of a file; None for a compression or an encoding that is left to Spark."""
    suffix = path.rpartition("/")[2].rpartition(".")[2].lower()
    try:
        if suffix == "gz":
            data = zlib.decompressobj(wbits=31).decompress(data, _FIRST_BYTES)
        elif suffix == "bz2":
            data = bz2.BZ2Decompressor().decompress(data, _FIRST_BYTES)
        return data.rpartition(b"\n")[0].decode() + "\n" if b"\n" in data else None
    except (OSError, EOFError, zlib.error, UnicodeDecodeError):
        return None
