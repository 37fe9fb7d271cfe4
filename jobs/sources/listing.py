"""From a source's `path` option to the files that are there.

A path is a file, a directory (the files directly in it), a glob (`*`, `?`, `[]` within a name; `**` for any number of directories) or a
template with the run's data interval, `{start:%Y-%m-%d}` and `{end:…}`, whose formats are strftime's. Without an interval a placeholder
becomes `*`, one per `/`-separated part of its format. As Spark does, a matched directory stands for the files directly in it
(`recursiveFileLookup` for all below), and names that start with `.` or `_` are skipped.

Local and S3 differ only in the object store that lists them; an S3 endpoint comes with the path (`?endpoint=…&path_style=true&region=…`)
or with the source's options of the same names. A local listing walks below the last directory that is spelled out; on S3 the listing is
narrowed to the longest literal prefix, so that `{start:%Y-%m-%d}.parquet` lists one object.
"""

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlencode

from jobs.sources.errors import BadPathError, MissingPathError
from statestore.objectstore.base import ObjectNotFoundError, ObjectStore
from statestore.objectstore.open import open_object_store

STORE_OPTIONS = ("endpoint", "path_style", "region")
_QUERY = re.compile(r"\?((?:endpoint|path_style|region)=[^?]*)$")
_PLACEHOLDER = re.compile(r"\{([^{}:]*)(?::([^{}]*))?\}")
_GLOB = re.compile(r"[*?\[]")
_NEAR = 5


@dataclass(frozen=True, slots=True)
class Interval:
    """A run's data interval, start inclusive, end exclusive; formatted in the time zone it carries."""

    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file as the listing shows it. `path` is absolute: `/a/b.parquet` or `s3://bucket/a/b.parquet`."""

    path: str
    size: int
    etag: str
    modified_ms: int = field(default=0, compare=False)  # Unix ms; 0: not known


@dataclass(frozen=True, slots=True)
class _Place:
    """A path split into a store's root (`/` or `s3://bucket`), the store's query, and the name below the root, which may be a glob."""

    root: str
    query: str
    name: str

    def store(self, directory: str) -> ObjectStore:
        return open_object_store(f"{self.root}{directory}{self.query}")


def absolute_path(path: str, base: Path) -> str:
    """`path` with a relative local path placed below `base`; others as they are. Called once, when the source is created."""
    if path.startswith(("/", "file:", "s3:")):
        return path
    return f"{base.absolute()}/{path}"


def has_interval(path: str) -> bool:
    """Whether the path is a template over the run's data interval."""
    return _PLACEHOLDER.search(path) is not None


def check_path(path: str, options: Mapping[str, str]) -> None:
    """Whether the path can be read as a file, directory, glob or template; looks nowhere. Raises BadPathError."""
    _place_of(path, options, None)


def list_files(path: str, options: Mapping[str, str], interval: Interval | None = None) -> tuple[ListedFile, ...]:
    """The files a source's path names, in path order.

    Args:
        path: absolute path, glob or template; see the module.
        options: the source's options; `endpoint`, `path_style`, `region` place an S3 path, `recursiveFileLookup` reaches below directories.
        interval: the run's data interval; None lets placeholders match anything.

    Returns: files without repeats; none where a local directory, up to the first wildcard, is there and nothing in it matches (yet).

    Raises:
        BadPathError: the path cannot be read as any of these.
        MissingPathError: nothing is there; names what is near.
        ObjectStoreUnavailableError: the server or disk refused.

    Cost: one LIST request per 1,000 objects below the literal prefix, or a walk of the directory.
    """
    place = _place_of(path, options, interval)
    recursive = _is_recursive(options)
    files = _glob(place, recursive) if _GLOB.search(place.name) else _literal(place, recursive)
    if not files and not _is_empty_directory(place):
        raise MissingPathError(_shown(place), _near(place))
    return tuple(sorted(files, key=lambda f: f.path))


def names_file(path: str, options: Mapping[str, str], file: str, interval: Interval | None = None) -> bool:
    """Whether `list_files` would name this file, if it is there. Looks nowhere. Raises BadPathError."""
    place = _place_of(path, options, interval)
    if not file.startswith(place.root):
        return False
    name, recursive = file.removeprefix(place.root), _is_recursive(options)
    if name == place.name:
        return True
    is_pattern = _GLOB.search(place.name) is not None
    base = _pattern(place, recursive)[0] if is_pattern else place.name
    inside = f"{base}/" if base else ""
    if not name.startswith(inside):
        return False
    below = name.removeprefix(inside)
    return _pattern(place, recursive)[2](below) if is_pattern else recursive or "/" not in below


def partition_path(path: str, options: Mapping[str, str]) -> str | None:
    """A path that spells out folders called `name=value`, where this one reaches such folders without saying so; None where it doesn't.

    Spark makes a column of such a folder's name, where it reads the directory above. Cost: as `list_files`."""
    place = _place_of(path, options, None)
    parts = place.name.split("/")
    spelled = {_partition_column(part) for part in parts} | {""}
    for file in _glob(place, True) if _GLOB.search(place.name) else _literal(place, True):
        folders = file.path.split("/")[:-1]
        if any(_partition_column(folder) not in spelled for folder in folders):
            return "/".join(f"{name}=*" if (name := _partition_column(f)) and f not in parts else f for f in folders)
    return None


def _partition_column(folder: str) -> str:
    """`k` of `k=1`; empty for a folder of another name."""
    name, equals, _ = folder.partition("=")
    return name if equals else ""


def open_file(path: str, options: Mapping[str, str]) -> tuple[ObjectStore, str]:
    """The store and the object name of one listed file's path. Raises BadPathError."""
    root, query, name = _split_root(path, options)
    directory, _, leaf = name.rpartition("/")
    return open_object_store(f"{root}{directory}{query}"), leaf


def _place_of(path: str, options: Mapping[str, str], interval: Interval | None) -> _Place:
    root, query, name = _split_root(path, options)
    if any(part in (".", "..") for part in name.split("/")):
        raise BadPathError(path, "`.` and `..` are not taken as parts of a path")
    return _Place(root, query, _fill(path, name, interval))


def _split_root(path: str, options: Mapping[str, str]) -> tuple[str, str, str]:
    if "\0" in path or not path:
        raise BadPathError(path, "it is empty or holds a NUL")
    if path.startswith("s3://"):
        given = _QUERY.search(path)
        bucket, _, name = path[len("s3://") : given.start() if given else None].partition("/")
        if not bucket or _GLOB.search(bucket) or "{" in bucket:
            raise BadPathError(path, "the bucket has to be spelled out")
        settings = {k: options[k] for k in STORE_OPTIONS if k in options}
        query = given[1] if given else urlencode(settings, safe=":/")
        return f"s3://{bucket}/", f"?{query}" if query else "", name.strip("/")
    if path.startswith("file:"):
        path = unquote(re.sub(r"^file:(//)?(?=/)", "", path))
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", path):
        raise BadPathError(path, "its scheme is none of file:// and s3://")
    if not path.startswith("/"):
        raise BadPathError(path, "a relative path has no meaning in a stored source; give an absolute one")
    return "/", "", str(PurePosixPath(path)).strip("/")


def _fill(path: str, name: str, interval: Interval | None) -> str:
    """The name with its placeholders replaced. Only strftime formats of the two moments are ever put into a path."""

    def value(match: re.Match[str]) -> str:
        which, form = match[1].strip(), match[2]
        if which not in ("start", "end") or not form or "%" not in form:
            raise BadPathError(path, f"placeholder {match[0]} is neither {{start:<strftime format>}} nor {{end:<strftime format>}}")
        if interval is None:
            return "/".join("*" for _ in form.split("/"))
        text = (interval.start if which == "start" else interval.end).strftime(form)
        if _GLOB.search(text) or any(part in ("", ".", "..") for part in text.strip("/").split("/")):
            raise BadPathError(path, f"placeholder {match[0]} gives {text!r}, which is no part of a path")
        return text

    filled = _PLACEHOLDER.sub(value, name)
    if "{" in filled or "}" in filled:
        raise BadPathError(path, "a brace that is no placeholder; alternatives {a,b} are not supported")
    return re.sub(r"\*\*(?=\*)|(?<=\*\*)\*", "", filled)


def _is_recursive(options: Mapping[str, str]) -> bool:
    return options.get("recursiveFileLookup", "false").lower() == "true"


def _hidden(part: str) -> bool:
    return part.startswith((".", "_")) or part.endswith("._COPYING_")


def _shown(place: _Place) -> str:
    return place.root + place.name


def _literal(place: _Place, recursive: bool) -> list[ListedFile]:
    """A path without wildcards: the file of that name, else the files of the directory of that name."""
    parent, _, leaf = place.name.rpartition("/")
    if leaf and (place.root != "/" or Path(place.root, place.name).is_file()):
        try:
            info = place.store(parent).head(leaf)
            return [] if _hidden(leaf) else [ListedFile(_shown(place), info.size, info.etag, info.modified_ms)]
        except ObjectNotFoundError:
            pass
    return [f for f, below in _walk(place, place.name, "") if recursive or "/" not in below]


def _glob(place: _Place, recursive: bool) -> list[ListedFile]:
    """A path with wildcards: the files below its first one that match."""
    base, literal, taken = _pattern(place, recursive)
    return [f for f, below in _walk(place, base, literal) if taken(below)]


def _pattern(place: _Place, recursive: bool) -> tuple[str, str, Callable[[str], bool]]:
    """A path with wildcards: what is spelled out before the first of them, what names below it begin with, and whether such a name
    matches: the file's or, since a matched directory stands for its files, that of its directory."""
    parts = place.name.split("/")
    first = next(i for i, part in enumerate(parts) if _GLOB.search(part))
    base, rest = "/".join(parts[:first]), parts[first:]
    literal = rest[0][: match.start()] if (match := _GLOB.search(rest[0])) else rest[0]
    matches = _matcher(rest)

    def taken(below: str) -> bool:
        if matches(below):
            return True
        ancestors = [str(a) for a in PurePosixPath(below).parents][:-1]
        return any(matches(a) for a in (ancestors if recursive else ancestors[:1]))

    return base, literal, taken


def _walk(place: _Place, base: str, prefix: str) -> Iterator[tuple[ListedFile, str]]:
    """Each visible file below `base` whose relative name starts with `prefix`, with that relative name."""
    if place.root == "/" and not Path(place.root, base).is_dir():
        return
    top = f"{place.root}{base}/" if base else place.root
    for info in place.store(base).list(prefix):
        if not any(_hidden(part) for part in info.name.split("/")) and not info.name.endswith("/"):
            yield ListedFile(top + info.name, info.size, info.etag, info.modified_ms), info.name


def _matcher(parts: list[str]) -> Callable[[str], bool]:
    """Whether a relative name matches the glob: wildcards stay within a name, `**` spans directories."""
    pattern = ""
    for i, part in enumerate(parts):
        last = i == len(parts) - 1
        if part == "**":
            pattern += ".*" if last else "(?:[^/]+/)*"
        else:
            pattern += _name_pattern(part) + ("" if last else "/")
    compiled = re.compile(pattern, re.DOTALL)
    return lambda name: compiled.fullmatch(name) is not None


def _name_pattern(part: str) -> str:
    """One name's glob as a regular expression."""
    out, i = "", 0
    while i < len(part):
        char = part[i]
        end = part.find("]", i + 2) if char == "[" else -1
        if char == "*":
            out += "[^/]*"
        elif char == "?":
            out += "[^/]"
        elif end > 0:
            body = part[i + 1 : end].replace("\\", "\\\\").replace("[", "\\[")
            out += "[" + ("^" + body[1:] if body[0] in "!^" else body) + "]"
            i = end
        else:
            out += re.escape(char)
        i += 1
    return out


def _is_empty_directory(place: _Place) -> bool:
    """Whether files may still come: the local directory that the path spells out, up to its first wildcard, is there."""
    parts = place.name.split("/")
    spelled = next((i for i, part in enumerate(parts) if _GLOB.search(part)), len(parts))
    return place.root == "/" and Path("/", *parts[:spelled]).is_dir()


def _near(place: _Place) -> tuple[str, ...]:
    """Names most like the missing one, in the deepest directory of its path that holds anything."""
    parts = place.name.split("/")
    for depth in range(len(parts) - 1, -1, -1):
        base, wanted = "/".join(parts[:depth]), parts[depth]
        if place.root == "/":
            directory = Path("/", base)
            names = sorted(p.name for p in directory.iterdir()) if directory.is_dir() else []
        else:
            names = sorted({info.name.split("/")[0] for info, _ in zip(place.store(base).list(""), range(1000), strict=False)})
        if names:
            near = difflib.get_close_matches(wanted, names, n=_NEAR, cutoff=0.3) or names[:_NEAR]
            return tuple(f"{place.root}{base}/{name}" if base else place.root + name for name in near)
    return ()
