"""The check of file names inside tables: Delta's log names the files of a table, and so does Iceberg's metadata.

The writer of a table may be another team, or nobody in particular. A name such as `../secrets/x.parquet` or
`s3://other/x.parquet` would make the process read, with its own rights, a file that the writer could not read. So a
table may name files in its own folder, and in folders that the user of the table names, such as the origin of a shallow
clone. Every reader of such a format calls `require_inside` before it opens a file.

Libraries read a name differently: they decode `%2E` once, twice or never, take a backslash for a slash, and drop line
breaks. A name is refused if it leads outside in any of these readings. Links in a local folder are not followed for the
check: only a user of this machine can make one.
"""

import posixpath
import re
from collections.abc import Iterator, Sequence
from urllib.parse import quote, unquote

from tussock.jobs.delta.delta_errors import OutsideFileError
from tussock.statestore.objectstore.open import split_address

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(//[^/]*)?")
#: Of Hadoop's file systems too, since Spark opens such a name without slashes.
_OTHER_SCHEMES = frozenset({"webhdfs", "swebhdfs", "viewfs", "har", "jar", "local", "ftp", "sftp", "http", "https"})
_CLOUD_SCHEMES = frozenset({"abfs", "abfss", "wasb", "wasbs", "adl", "ofs", "o3fs", "oss", "cosn", "obs"})
_SCHEMES = frozenset({"file", "s3", "s3a", "s3n", "gs", "az", "hdfs"}) | _OTHER_SCHEMES | _CLOUD_SCHEMES
_DROPPED = re.compile(r"[\t\n\r\x00]")
_ENDS = "".join(map(chr, range(0x21)))  # an address loses them
_MOST_DECODINGS = 5


def require_inside(name: str, table: str, others: Sequence[str], option: str) -> None:
    """Raise OutsideFileError if a table names a file that is neither in its folder nor in one of the others.

    Args:
        name: as the table names it: relative to the table, absolute, or an address.
        table, others: folders, `/a/b`, `s3://bucket/prefix`, or one in another cloud.
        option: the option of a source that names other folders.
    """
    folders = [form for folder in (table, *others) for form in (folder, quote(folder, safe="/:"))]
    for reading in _possible_paths(name):
        for form in (str, _as_address):  # as a path, and as a part of an address
            inside = tuple(f"{_normalize_path(form(folder))}/" for folder in folders)
            path = _absolute_path(form(reading), form(table))
            if path is None or not _normalize_path(path).startswith(inside):
                raise OutsideFileError(table, name, option)


def _possible_paths(name: str) -> Iterator[str]:
    for _ in range(_MOST_DECODINGS):
        yield name
        if (decoded := unquote(name)) == name:
            return
        name = decoded
    yield f"/{name}"  # no writer quotes a name so often, so it is outside of every table


def _as_address(name: str) -> str:
    return _DROPPED.sub("", name.replace("\\", "/")).strip(_ENDS)


def _absolute_path(name: str, table: str) -> str | None:
    """Return the absolute path of a name; None for an address of another kind of server."""
    if name.startswith("/"):
        return name
    if (match := _SCHEME.match(name)) is None or (match[2] is None and match[1].lower() not in _SCHEMES):
        return f"{table}/{name}"
    host, rest = (match[2] or "").removeprefix("//"), name[match.end() :]
    match match[1].lower():
        case "file":
            return f"/{host}/{rest}"
        case "s3" | "s3a" if host:
            return f"s3://{host}/{rest}"
        case "gs" | "az" | "hdfs" as scheme if host:
            return f"{scheme}://{host}/{rest}"
    return None


def _normalize_path(path: str) -> str:
    """Return a path without `.`, `..` and empty parts. It never leads above its bucket."""
    bucket, key = ("", path) if path.startswith("/") else split_address(path)
    parts = posixpath.normpath("/" + key.lstrip("/"))
    return f"{bucket}{parts.rstrip('/')}"
