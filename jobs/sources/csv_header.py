"""Compare the header of a CSV file with the source's columns.

Spark matches columns by position and ignores the names in a header, so a file with another column order would swap
columns without an error. Its option `enforceSchema 'false'` compares the names, and is the default here for a source
with `header 'true'`. Tussock makes the comparison itself for two reasons. A column without a name in the header (such
as the index that pandas writes) is no difference, and the error names the file, its columns and the remedy.

A plain header is read from the first bytes of the file. If a header is not plain, or seems to differ, Spark reads it,
so that quotes, comments, encodings and line separators mean the same for header and rows.
"""

import bz2
import zlib
from collections.abc import Callable, Mapping, Sequence

from tussock.jobs.chunks.failure import SourceFileError
from tussock.jobs.logical.nodes import Field
from tussock.jobs.sources.errors import ways_on
from tussock.jobs.sources.file_options import OWN_OPTIONS
from tussock.jobs.sources.pins import PinnedFile, open_pinned

HEADER, ENFORCE = "header", "enforceschema"  # option names in lower case; Spark ignores their case
FIRST_BYTES = 1 << 16  # of a file, which must contain its header
#: Options with which the header is the first line of the file, split at `sep`.
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
    """The header of a CSV file has other columns than its source declares, or another order."""

    def __init__(self, path: str, header: Sequence[str], expected: Sequence[str], difference: str) -> None:
        super().__init__(path, tuple(header), tuple(expected), difference)
        self.path, self.header, self.expected, self.difference = path, tuple(header), tuple(expected), difference

    def __str__(self) -> str:
        return (
            f"file {self.path}: {self.difference}. Write the file with the source's columns in their "
            "order, and the next run reads it. If new files have these columns from now on, change those of CREATE "
            "SOURCE and apply the pipeline, or use ALTER SOURCE … ADD COLUMN or RENAME COLUMN. To match columns by "
            "position, use ALTER SOURCE … SET OPTIONS (enforceSchema 'true'). "
            f"{ways_on(self.path)}."
        )


def option(options: Mapping[str, str], name: str) -> str | None:
    """Return an option by its lower-case name; Spark ignores the case of names."""
    return next((value for key, value in options.items() if key.lower() == name), None)


def has_header(options: Mapping[str, str]) -> bool:
    """Return whether the files of a source begin with a header."""
    return (option(options, HEADER) or "false").lower() == "true"


def require_header(
    file: PinnedFile,
    fields: Sequence[Field],
    options: Mapping[str, str],
    case_sensitive: bool,
    by_spark: Callable[[], Sequence[str] | None],
) -> None:
    """Compare a file's header with the columns that are read from it.

    Args:
        fields: the declared columns.
        options: the source's options. Without enforceSchema, as in sources of earlier releases, only a declared name at
            another column's position is a difference: users of those releases may have chosen other names than the
            header's.
        by_spark: returns the header as Spark reads it; None for a file without rows.

    Raises: CsvHeaderError. Cost: one range read of 64 KB; one call of `by_spark` if the header is not plain or seems to
    differ.
    """
    if surely_agrees(file, fields, options, case_sensitive):
        return
    names, only_swaps = [f.name for f in fields], option(options, ENFORCE) is None
    header = by_spark()
    if header is not None and (difference := _first_difference(header, names, case_sensitive, only_swaps)) is not None:
        raise CsvHeaderError(file.path, header, names, difference)


def surely_agrees(
    file: PinnedFile,
    fields: Sequence[Field],
    options: Mapping[str, str],
    case_sensitive: bool = False,
    first: bytes | None = None,
) -> bool:
    """Return whether a file has a plain header that agrees with the columns; see `require_header`.

    Args:
        first: the first FIRST_BYTES of the decompressed file, if they have been read.

    Cost: one range read of 64 KB without `first`.
    """
    plain, only_swaps = _plain_header(file, options, first), option(options, ENFORCE) is None
    return plain is not None and _first_difference(plain, [f.name for f in fields], case_sensitive, only_swaps) is None


def plain_marks(options: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the separator and the quote (empty: none) of files that only Python needs to split.

    None if an option leaves the records to Spark.
    """
    sep = option(options, "sep") or option(options, "delimiter") or ","
    sep = "\t" if sep == "\\t" else sep
    quote = option(options, "quote")
    if len(sep) != 1 or any(o.lower() not in _PLAIN and not o.startswith("fs.") for o in options):
        return None
    return sep, '"' if quote is None else quote


def is_enforced(options: Mapping[str, str]) -> bool:
    """Return whether columns are matched by position, whatever the header of a file says."""
    return (option(options, ENFORCE) or "false").lower() == "true"


def _first_difference(
    header: Sequence[str], declared: Sequence[str], case_sensitive: bool, only_swaps: bool
) -> str | None:
    """Describe the first difference between a header and the declared columns; None if they agree.

    An unnamed column matches any.
    """

    def fold_name(name: str) -> str:
        return name.strip(" \t") if case_sensitive else name.strip(" \t").lower()

    known = {fold_name(name) for name in declared}
    for n, (there, wanted) in enumerate(zip(header, declared, strict=False), start=1):
        if fold_name(there) in ("", fold_name(wanted)) or (only_swaps and fold_name(there) not in known):
            continue
        return f"column {n} of its header is {there!r}, and the source declares {wanted!r} there"
    if len(header) != len(declared) and not only_swaps:
        more, which = (header, "its header") if len(header) > len(declared) else (declared, "the source")
        rest = ", ".join(map(repr, more[min(len(header), len(declared)) :]))
        return f"its header has {len(header)} columns, and the source declares {len(declared)}; only {which} has {rest}"
    return None


def _plain_header(file: PinnedFile, options: Mapping[str, str], first: bytes | None) -> list[str] | None:
    """Return the names in a file's first line; None if only Spark can split it."""
    if (marks := plain_marks(options)) is None:
        return None
    sep, mark = marks
    text = _decode_lines(_first_bytes(file, options) if first is None else first)
    line, end, _ = text.removeprefix("\ufeff").partition("\n")
    line = line.removesuffix("\r")
    if not end or not line.strip() or "\r" in line:
        return None
    names = line.split(sep)
    if mark:
        names = [n[1:-1] if len(n) > 1 and n[0] == n[-1] == mark else n for n in names]
    return None if mark and any(mark in n for n in names) else names


def _first_bytes(file: PinnedFile, options: Mapping[str, str]) -> bytes:
    """Return the first bytes of a file, decompressed; none if its compression is left to Spark."""
    store, name = open_pinned(file, options)
    size = min(file.size, FIRST_BYTES)
    data = store.get_ranges(name, [(0, size)])[0] if size else b""
    suffix = file.path.rpartition("/")[2].rpartition(".")[2].lower()
    try:
        if suffix == "gz":
            return zlib.decompressobj(wbits=31).decompress(data, FIRST_BYTES)
        return bz2.BZ2Decompressor().decompress(data, FIRST_BYTES) if suffix == "bz2" else data
    except (OSError, EOFError, zlib.error):
        return b""


def _decode_lines(data: bytes) -> str:
    """Decode whole lines; empty if there is none, or if their encoding is left to Spark."""
    try:
        return data[: data.rfind(b"\n") + 1].decode()
    except UnicodeDecodeError:
        return ""
