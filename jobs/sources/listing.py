"""From a source's `path` option to the files that are there.

A path is a file, a directory (the files directly in it), a glob (`*`, `?`, `[]` within a name; `**` for any number of directories) or a
template with the run's data interval, `{start:%Y-%m-%d}` and `{end:…}`, whose formats are strftime's. Without an interval a placeholder
becomes `*`, one per `/`-separated part of its format. As Spark does, a matched directory stands for the files directly in it
(`recursiveFileLookup` for all below), and names that start with `.` or `_` are skipped.

Names may contain the characters of a glob. Each name of the path is looked up as it is spelled first: if its directory has an entry of
exactly that name, the path means this entry. Otherwise the name is a glob. A backslash before one of `*?[]{}\\` makes that character plain
in a glob, so every name can be spelled. Spark takes such a name for a glob only, and `sales [2024]` would match nothing.

Local and S3 differ only in the object store that lists them; an S3 endpoint comes with the path (`?endpoint=…&path_style=true&region=…`)
or with the source's options of the same names. A local listing walks below the last directory that is spelled out; on S3 the listing is
narrowed to the longest literal prefix, so that `{start:%Y-%m-%d}.parquet` lists one object.
"""

import difflib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

from tussock.jobs.sources.errors import BadFileNameError, BadPathError, MissingPathError
from tussock.statestore.objectstore.base import ObjectNotFoundError, ObjectStore
from tussock.statestore.objectstore.local import LocalObjectStore
from tussock.statestore.objectstore.open import S3_OPTIONS, open_s3, s3_options

STORE_OPTIONS = S3_OPTIONS
_QUERY = re.compile(r"\?((?:endpoint|path_style|region)=[^?]*)$")
_SPECIAL = re.compile(r"[*?\[\]{}\\]")  # a name without these is spelled out
_ESCAPED = r"\\[*?\[\]{}\\]"
_PLACEHOLDER = re.compile(rf"{_ESCAPED}|\{{(start|end):([^{{}}]*%[^{{}}]*)\}}")
_BRACE = re.compile(rf"{_ESCAPED}|(\{{[^{{}}]*\}}?|\}})")
_TOKEN = re.compile(rf"\\([*?\[\]{{}}\\])|(\*+)|(\?)|\[([!^]?)((?:{_ESCAPED}|.)(?:{_ESCAPED}|[^\]])*)\]|(.)", re.DOTALL)
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
    """A path split into a bucket (empty: this machine), the options of its server, and the name below it, which may be a glob."""

    bucket: str
    options: Mapping[str, str]
    name: str

    @property
    def root(self) -> str:
        """The beginning of the paths of its files: `/` or `s3://bucket/`."""
        return f"s3://{self.bucket}/" if self.bucket else "/"

    def store(self, directory: str) -> ObjectStore:
        """The objects below a directory, whose name is taken as it is."""
        return open_s3(self.bucket, directory, self.options) if self.bucket else LocalObjectStore(Path("/", directory))


def absolute_path(path: str, base: Path) -> str:
    """`path` with a relative local path placed below `base`; others as they are. Called once, when the source is created."""
    if path.startswith(("/", "file:", "s3:")):
        return path
    return f"{base.absolute()}/{path}"


def has_interval(path: str) -> bool:
    """Whether the path is a template over the run's data interval."""
    return any(match[1] for match in _PLACEHOLDER.finditer(path))


def check_path(path: str, options: Mapping[str, str]) -> None:
    """Whether the path can be read as a file, directory, glob or template; looks nowhere. Raises BadPathError.

    A brace that belongs to no placeholder is judged by `list_files`: it may be part of a name."""
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
        BadFileNameError: the name of a file that the path means is not UTF-8, so that no record of it can be kept.
        ObjectStoreUnavailableError: the server or disk refused.

    Cost: one LIST request per 1,000 objects below the literal prefix, or a walk of the directory.
    """
    place = _place_of(path, options, interval)
    files = _found(place, _is_recursive(options))
    if not files and (brace := _stray_brace("/".join(place.name.split("/")[len(_spelled(place)) :]))) is not None:
        raise BadPathError(
            path,
            f"placeholder {brace} is neither {{start:<strftime format>}} nor {{end:<strftime format>}}, and nothing has exactly this name; "
            "alternatives {a,b} are not supported",
        )
    if not files and not _is_empty_directory(place):
        raise MissingPathError(_shown(place), _near(place))
    for file in files:
        if (shown := printable(file.path)) != file.path:
            raise BadFileNameError(shown)
    return tuple(sorted(files, key=lambda f: f.path))


def printable(text: str) -> str:
    """The text as UTF-8 can hold it: a byte of a file's name that is no part of a character is shown as `\\xe9`."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def names_file(path: str, options: Mapping[str, str], file: str, interval: Interval | None = None) -> bool:
    """Whether `list_files` would name this file, if it is the only one. Looks nowhere. Raises BadPathError."""
    place = _place_of(path, options, interval)
    if not file.startswith(place.root):
        return False
    return bool(
        _selected(place.name.split("/") if place.name else [], [file.removeprefix(place.root)], _is_recursive(options))
    )


def partition_path(path: str, options: Mapping[str, str]) -> str | None:
    """A path that spells out folders called `name=value`, where this one reaches such folders without saying so; None where it doesn't.

    Spark makes a column of such a folder's name, where it reads the directory above. Cost: as `list_files`."""
    place = _place_of(path, options, None)
    parts = place.name.split("/")
    spelled = {_partition_column(part) for part in parts} | {""}
    for file in _found(place, True):
        folders = file.path.split("/")[:-1]
        if any(_partition_column(folder) not in spelled for folder in folders):
            return "/".join(f"{name}=*" if (name := _partition_column(f)) and f not in parts else f for f in folders)
    return None


def _partition_column(folder: str) -> str:
    """`k` of `k=1`; empty for a folder of another name."""
    name, equals, _ = folder.partition("=")
    return name if equals else ""


def open_file(path: str, options: Mapping[str, str]) -> tuple[ObjectStore, str]:
    """The store and the object name of one listed file.

    Args:
        path: as `ListedFile.path` has it: a name, in which no character stands for anything else.
        options: its source's, with those in the query of the source's own path.

    Raises BadPathError.
    """
    if path.startswith("s3://"):
        bucket, _, name = path.removeprefix("s3://").partition("/")
        directory, _, leaf = name.rpartition("/")
        return open_s3(bucket, directory, server_options(options.get("path", ""), options)), leaf
    if not path.startswith("/") or "\0" in path:
        raise BadPathError(path, "a file is named by an absolute path or as s3://bucket/key")
    directory, _, leaf = path.rpartition("/")
    return LocalObjectStore(Path(directory or "/")), leaf


def without_query(path: str) -> str:
    """An `s3://` path without the options of its server; other paths as they are."""
    return path[: given.start()] if path.startswith("s3://") and (given := _QUERY.search(path)) else path


def server_options(path: str, options: Mapping[str, str]) -> dict[str, str]:
    """The options of the server that an `s3://` path names: those in its query, else the source's. Raises BadStoreError."""
    if path.startswith("s3://") and (given := _QUERY.search(path)):
        return s3_options(given[1], without_query(path))
    return {k: options[k] for k in STORE_OPTIONS if k in options}


def _place_of(path: str, options: Mapping[str, str], interval: Interval | None) -> _Place:
    bucket, name = split_bucket(path)
    if any(part in (".", "..") for part in name.split("/")):
        raise BadPathError(path, "`.` and `..` are not taken as parts of a path")
    return _Place(bucket, server_options(path, options), _fill(path, name, interval))


def split_bucket(path: str) -> tuple[str, str]:
    """A source's path as a bucket (empty: this machine) and the name below it."""
    if "\0" in path or not path:
        raise BadPathError(path, "it is empty or holds a NUL")
    if path.startswith("s3://"):
        bucket, _, name = without_query(path).removeprefix("s3://").partition("/")
        if not bucket or _SPECIAL.search(bucket):
            raise BadPathError(path, "the bucket has to be spelled out")
        return bucket, name.strip("/")
    if path.startswith("file:"):
        path = unquote(re.sub(r"^file:(//)?(?=/)", "", path))
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", path):
        raise BadPathError(path, "its scheme is none of file:// and s3://")
    if not path.startswith("/"):
        raise BadPathError(path, "a relative path has no meaning in a stored source; give an absolute one")
    return "", str(PurePosixPath(path)).strip("/")


def _fill(path: str, name: str, interval: Interval | None) -> str:
    """The name with its placeholders replaced. Only strftime formats of the two moments are ever put into a path."""

    def value(match: re.Match[str]) -> str:
        which, form = match[1], match[2]
        if which is None:
            return match[0]
        if interval is None:
            return "/".join("?*" for _ in form.split("/"))  # not `*`: two of them would be `**`
        text = (interval.start if which == "start" else interval.end).strftime(form)
        if _SPECIAL.search(text) or any(part in ("", ".", "..") for part in text.strip("/").split("/")):
            raise BadPathError(path, f"placeholder {match[0]} gives {text!r}, which is no part of a path")
        return text

    return _PLACEHOLDER.sub(value, name)


def _stray_brace(name: str) -> str | None:
    """A brace, with its contents, that is neither escaped nor part of a placeholder."""
    return next((match[1] for match in _BRACE.finditer(name) if match[1]), None)


def _is_recursive(options: Mapping[str, str]) -> bool:
    return options.get("recursiveFileLookup", "false").lower() == "true"


def _hidden(part: str) -> bool:
    return part.startswith((".", "_")) or part.endswith("._COPYING_")


def _shown(place: _Place) -> str:
    return place.root + place.name


def _found(place: _Place, recursive: bool) -> list[ListedFile]:
    """The files that the place names."""
    parts, spelled = place.name.split("/"), _spelled(place)
    base, rest = "/".join(spelled), parts[len(spelled) :]
    if not rest:
        return _literal(replace(place, name=base), recursive)
    special = _SPECIAL.search(rest[0])
    assert special is not None
    below = {name: file for file, name in _walk(place, base, rest[0][: special.start()])}
    return [below[name] for name in _selected(rest, list(below), recursive)]


def _spelled(place: _Place) -> list[str]:
    """The first names of the path that can mean one entry only, as the entries are called. Cost: a stat per name with special characters
    in a local path; the listing of an S3 path decides those."""
    found: list[str] = []
    for part in place.name.split("/"):
        is_local, plain = not place.bucket, _plain(part)
        if is_local and _SPECIAL.search(part) and Path("/", *found, part).exists():
            plain = part
        if plain is None or not (is_local or plain == part):
            break
        found.append(plain)
    return found


def _plain(part: str) -> str | None:
    """The only text that a name of a path can mean, whether or not something is called so; None for a glob."""
    tokens = _TOKEN.findall(part)
    if _stray_brace(part) is not None or any(stars or one or body for _, stars, one, _, body, _ in tokens):
        return None
    return "".join(escaped or plain for escaped, _, _, _, _, plain in tokens)


def _literal(place: _Place, recursive: bool) -> list[ListedFile]:
    """A path that is spelled out: the file of that name, else the files of the directory of that name."""
    parent, _, leaf = place.name.rpartition("/")
    if leaf and (place.bucket or Path(place.root, place.name).is_file()):
        try:
            info = place.store(parent).head(leaf)
            return [] if _hidden(leaf) else [ListedFile(_shown(place), info.size, info.etag, info.modified_ms)]
        except ObjectNotFoundError:
            pass
    return [f for f, below in _walk(place, place.name, "") if recursive or "/" not in below]


def _selected(parts: Sequence[str], names: Sequence[str], recursive: bool) -> set[str]:
    """The files of a directory that a path relative to it means.

    Args:
        parts: the path's names. Each one means the entry of exactly that name if there is one, else the entries that it matches as a glob.
        names: of the directory's files, `/`-separated; all that can match.
        recursive: whether a directory stands for all files below it; if not, for those directly in it.
    """
    if not parts:
        return {name for name in names if recursive or "/" not in name}
    part, rest = parts[0], parts[1:]
    inside: dict[str, list[str]] = {}
    for name in names:
        entry, _, below = name.partition("/")
        inside.setdefault(entry, []).append(below)
    chosen: set[str] = set()
    if _spans(part):
        chosen |= _selected(rest, names, recursive) if rest else set(names)
        rest = parts
    for entry in _meant(part, inside):
        if inside[entry] == [""]:
            chosen |= set() if rest else {entry}
        else:
            chosen |= {f"{entry}/{below}" for below in _selected(rest, inside[entry], recursive)}
    return chosen


def _spans(part: str) -> bool:
    """Whether a name of a path stands for any number of directories."""
    return len(part) > 1 and not part.strip("*")


def _meant(part: str, entries: Collection[str]) -> Collection[str]:
    """The entries of a directory that one name of a path means."""
    if part in entries:
        return (part,)
    if _stray_brace(part) is not None:
        return ()
    pattern = _name_pattern(part)
    return [entry for entry in entries if pattern.fullmatch(entry)]


@lru_cache(maxsize=256)
def _name_pattern(part: str) -> re.Pattern[str]:
    """One name's glob as a regular expression: wildcards stay within the name."""
    out = ""
    for escaped, stars, one, negated, body, plain in _TOKEN.findall(part):
        if stars:
            out += "[^/]*"
        elif one:
            out += "[^/]"
        elif body:
            out += _class_pattern(body, bool(negated))
        else:
            out += re.escape(escaped or plain)
    return re.compile(out, re.DOTALL)


def _class_pattern(body: str, negated: bool) -> str:
    """`[a-c]` and `[!a-c]` as a regular expression; a range whose end is before its start is empty."""
    chars = re.findall(rf"{_ESCAPED}|.", body, re.DOTALL)
    found, i = "", 0
    while i < len(chars):
        is_range = i + 2 < len(chars) and chars[i + 1] == "-"
        first, last = chars[i][-1], chars[i + 2 if is_range else i][-1]
        found += f"{re.escape(first)}-{re.escape(last)}" if first <= last else ""
        i += 3 if is_range else 1
    if not found:
        return "[^/]" if negated else "(?!)"
    return f"[{'^' if negated else ''}{found}]"


def _walk(place: _Place, base: str, prefix: str) -> Iterator[tuple[ListedFile, str]]:
    """Each visible file below `base` whose relative name starts with `prefix`, with that relative name."""
    if not place.bucket and not Path(place.root, base).is_dir():
        return
    top = f"{place.root}{base}/" if base else place.root
    for info in place.store(base).list(prefix):
        if not any(_hidden(part) for part in info.name.split("/")) and not info.name.endswith("/"):
            yield ListedFile(top + info.name, info.size, info.etag, info.modified_ms), info.name


def _is_empty_directory(place: _Place) -> bool:
    """Whether files may still come: the local directory that the path spells out, up to its first wildcard, is there."""
    return not place.bucket and Path("/", *_spelled(place)).is_dir()


def _near(place: _Place) -> tuple[str, ...]:
    """Names most like the missing one, in the deepest directory of its path that holds anything."""
    spelled = _spelled(place)
    parts = [*spelled, *place.name.split("/")[len(spelled) :]]
    for depth in range(len(parts) - 1, -1, -1):
        base, wanted = "/".join(parts[:depth]), parts[depth]
        if not place.bucket:
            directory = Path("/", base)
            names = sorted(p.name for p in directory.iterdir()) if directory.is_dir() else []
        else:
            names = sorted(
                {info.name.split("/")[0] for info, _ in zip(place.store(base).list(""), range(1000), strict=False)}
            )
        if names:
            near = difflib.get_close_matches(wanted, names, n=_NEAR, cutoff=0.3) or names[:_NEAR]
            return tuple(printable(f"{place.root}{base}/{name}" if base else place.root + name) for name in near)
    return ()
