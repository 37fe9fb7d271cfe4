"""Resolve a source's `path` option to existing files.

A path is a file, a directory (the files directly in it), a glob (`*`, `?`, `[]` within a name; `**` for any number of
directories) or a template with the run's data interval: `{start:%Y-%m-%d}` and `{end:…}`, with formats of strftime.
Without an interval, a placeholder becomes `*`, one per `/`-separated part of its format. As in Spark, a matched
directory means the files directly in it (with `recursiveFileLookup`, all files below it), and names that start with `.`
or `_` are skipped. A source whose files form deliveries may have placeholders `{name}` too (deliveries.py).

Names may contain glob characters. Each name of the path is first looked up literally: if its directory contains an
entry of exactly that name, the path means this entry. Otherwise the name is a glob. A backslash before one of
`*?[]{}\\` makes that character literal in a glob, so every name can be written. Spark always treats such a name as a
glob, and would not find `sales [2024]`.

Local paths and S3 differ only in the object store that lists them. An S3 endpoint comes with the path
(`?endpoint=…&path_style=true&region=…`) or with the source's options of the same names. A local listing walks below the
last literal directory. On S3 the listing is narrowed to the longest literal prefix, so `{start:%Y-%m-%d}.parquet` lists
one object.
"""

import difflib
import errno
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from operator import attrgetter
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

import msgspec

from tussock.jobs.sources.errors import BadFileNameError, BadPathError, MissingPathError
from tussock.statestore.objectstore.base import ObjectNotFoundError, ObjectStore
from tussock.statestore.objectstore.local import LocalObjectStore
from tussock.statestore.objectstore.open import REMOTE, S3_OPTIONS, open_bucket, read_options, split_address

STORE_OPTIONS = (*S3_OPTIONS, "account")
RECURSIVE = "recursiveFileLookup"  # 'true': all files below the folder
_QUERY = re.compile(r"\?((?:endpoint|path_style|region|account)=[^?]*)$")
_SPECIAL = re.compile(r"[*?\[\]{}\\]")  # a name without these is literal
_ESCAPED = r"\\[*?\[\]{}\\]"
_PLACEHOLDER = re.compile(rf"{_ESCAPED}|\{{(start|end):([^{{}}]*%[^{{}}]*)\}}")
_VALUE = re.compile(rf"{_ESCAPED}|\{{([A-Za-z_]\w*)\}}")
#: A placeholder of either kind.
_PLACED = re.compile(rf"{_ESCAPED}|\{{(?:[A-Za-z_]\w*|(?:start|end):([^{{}}]*))\}}")
_MARK = "\0"  # stands for a value; no name contains it
_BRACE = re.compile(rf"{_ESCAPED}|(\{{[^{{}}]*\}}?|\}})")
_TOKEN = re.compile(rf"\\([*?\[\]{{}}\\])|(\*+)|(\?)|\[([!^]?)((?:{_ESCAPED}|.)(?:{_ESCAPED}|[^\]])*)\]|(.)", re.DOTALL)
_NEAR = 5


@dataclass(frozen=True, slots=True)
class Interval:
    """A run's data interval, start inclusive, end exclusive; formatted in its own time zone."""

    start: datetime
    end: datetime


class ListedFile(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A listed file. `path` is absolute: `/a/b.parquet` or `s3://bucket/a/b.parquet`. See ObjectInfo."""

    path: str
    size: int
    etag: str
    modified_ms: int = 0  # Unix ms; 0 if unknown. Not compared

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ListedFile) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[str, int, str]:
        return self.path, self.size, self.etag


@dataclass(frozen=True, slots=True)
class _Place:
    """A path split into a bucket (empty: this machine), the server's options, and the name inside (maybe a glob).

    The bucket has its scheme: `s3://bucket`.
    """

    bucket: str
    options: Mapping[str, str]
    name: str

    @property
    def root(self) -> str:
        """The prefix of the paths of its files: `/` or `s3://bucket/`."""
        return f"{self.bucket}/"

    def open_store(self, directory: str) -> ObjectStore:
        """Open the objects below a directory. Its name is taken literally."""
        return (
            open_bucket(self.bucket, directory, self.options) if self.bucket else LocalObjectStore(Path("/", directory))
        )


def absolute_path(path: str, base: Path) -> str:
    """Place a relative local path below `base`; return other paths unchanged.

    Called once, when the source is created.
    """
    if path.startswith(("/", "file:", *REMOTE)):
        return path
    return f"{base.absolute()}/{path}"


def has_interval(path: str) -> bool:
    """Return whether the path is a template over the run's data interval."""
    return any(match[1] for match in _PLACEHOLDER.finditer(path))


def check_path(path: str, options: Mapping[str, str]) -> None:
    """Require a well-formed file, directory, glob or template. Does no I/O. Raises BadPathError.

    `list_files` checks braces that belong to no placeholder, because they may be part of a name.
    """
    _place_of(path, options, None)


def list_files(path: str, options: Mapping[str, str], interval: Interval | None = None) -> tuple[ListedFile, ...]:
    """List the files that a source's path means, in path order.

    Args:
        path: absolute path, glob or template; see the module.
        options: the source's options; `endpoint`, `path_style`, `region` locate an S3 path, `recursiveFileLookup`
            includes files below directories.
        interval: the run's data interval; None lets placeholders match anything.

    Returns: distinct files. The list is empty if the path's literal local directory exists and contains no match yet.

    Raises:
        BadPathError: the path is malformed.
        MissingPathError: nothing matches; the error lists similar paths.
        BadFileNameError: a matching file's name is not UTF-8, so it cannot be recorded.
        ObjectStoreUnavailableError: the server or disk refused.

    Cost: one LIST request per 1,000 objects below the literal prefix, or a walk of the directory.
    """
    try:
        return _list_once(path, options, interval)
    except OSError as err:
        if err.errno != errno.ENAMETOOLONG:
            raise
        raise BadPathError(path, "the file system allows no name of this length") from err


def _list_once(path: str, options: Mapping[str, str], interval: Interval | None) -> tuple[ListedFile, ...]:
    place = _place_of(path, options, interval)
    files = _find_files(place, _is_recursive(options))
    if not files and (brace := _stray_brace("/".join(place.name.split("/")[len(_literal_names(place)) :]))) is not None:
        raise BadPathError(
            path,
            f"placeholder {brace} is neither {{start:<strftime format>}} nor {{end:<strftime format>}}, and no file "
            "has exactly this name; alternatives {a,b} are not supported",
        )
    if not files and not _is_empty_directory(place):
        raise MissingPathError(_place_text(place), _similar_names(place))
    if not _are_printable(files):
        raise BadFileNameError(next(shown for f in files if (shown := printable_text(f.path)) != f.path))
    return tuple(sorted(files, key=attrgetter("path")))


def _are_printable(files: Sequence[ListedFile]) -> bool:
    try:
        "\0".join([f.path for f in files]).encode()
    except UnicodeEncodeError:
        return False
    return True


def printable_text(text: str) -> str:
    """Return the text as valid UTF-8: a byte of a file name that is not UTF-8 is shown as `\\xe9`."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def names_file(path: str, options: Mapping[str, str], file: str, interval: Interval | None = None) -> bool:
    """Return whether `list_files` would return this file if it were the only one. Does no I/O. Raises BadPathError."""
    return bool(named_files(path, options, (file,), interval))


def named_files(
    path: str, options: Mapping[str, str], files: Sequence[str], interval: Interval | None = None
) -> list[str]:
    """Return the files that `list_files` would return if only they existed. Does no I/O. Raises BadPathError."""
    place = _place_of(path, options, interval)
    below = [file.removeprefix(place.root) for file in files if file.startswith(place.root)]
    chosen = _select_files(place.name.split("/") if place.name else [], below, _is_recursive(options))
    return sorted(f"{place.root}{name}" for name in chosen)


def named_by_interval(
    path: str, options: Mapping[str, str], files: Sequence[str], intervals: Sequence[Interval]
) -> list[list[str]]:
    """Return `named_files` for each interval. Raises BadPathError.

    Cost: per interval, a search for a short text in all names, then `named_files` over the names that contain it.
    """
    texts = [_literal_texts(_place_of(path, options, interval).name) for interval in intervals]
    common = set(texts[0]).intersection(*texts[1:]) if texts else set()
    names_by_interval = []
    for interval, names in zip(intervals, texts, strict=True):
        near = files
        for text in reversed([text for text in names if text not in common]):  # the last name differs most
            near = [file for file in near if text in file]
        names_by_interval.append(named_files(path, options, near, interval))
    return names_by_interval


def _literal_texts(name: str) -> list[str]:
    """Return texts that every file of a path contains, from the left, whether its names are globs or literal."""
    texts = []
    for part in name.split("/"):
        if not _is_any_depth(part):
            pieces = ((plain or "\0") for *_, plain in _TOKEN.findall(part))
            texts += [text for text in "".join(pieces).split("\0") if text]
    return texts


def literal_folder(path: str, options: Mapping[str, str]) -> str:
    """Return the part of a path before its first wildcard or placeholder, without a slash at its end."""
    place = _place_of(path, options, None)
    return place.root + "/".join(_literal_names(place))


def with_wildcards(path: str) -> str:
    """Return a path with wildcards for its placeholders `{name}`. The placeholders of intervals stay."""
    return _VALUE.sub(lambda match: match[0] if match[1] is None else "?*", path)


def template_pattern(path: str, options: Mapping[str, str]) -> re.Pattern[str] | None:
    """Return a pattern that finds the values of a path's placeholders in the name of a file below `literal_folder`.

    Its first group is the name as far as the last part with a placeholder; the others are the values. None if the path
    has no placeholder.
    """

    def mark_value(match: re.Match[str]) -> str:
        return match[0] if match[0].startswith("\\") else "/".join(_MARK for _ in (match[1] or "").split("/"))

    literal = _literal_names(_place_of(with_wildcards(path), options, None))
    parts = _PLACED.sub(mark_value, split_bucket(path)[1]).split("/")[len(literal) :]
    last = max((n for n, part in enumerate(parts) if _MARK in part), default=None)
    if last is None:
        return None
    named, rest = (_template_of(some) for some in (parts[: last + 1], parts[last + 1 :]))
    return re.compile(f"({named}){f'/{rest}' if rest else ''}(?:/.*)?$", re.DOTALL)


def _template_of(parts: Sequence[str]) -> str:
    """Translate names with marked values into a regular expression."""
    pattern = ""
    for part in parts:
        name = "([^/]+?)".join(_name_pattern(text).pattern for text in part.split(_MARK))
        pattern += "(?:[^/]+/)*" if _is_any_depth(part) else f"{name}/"
    return pattern.removesuffix("/")


def partition_path(path: str, options: Mapping[str, str]) -> str | None:
    """Return a path that names the folders called `name=value`; None if this path reaches no unnamed ones.

    If Spark read the directory above such folders, it would turn their names into a column. Cost: as `list_files`.
    """
    place = _place_of(path, options, None)
    parts = place.name.split("/")
    spelled = {_partition_column(part) for part in parts} | {""}
    for file in _find_files(place, True):
        folders = file.path.split("/")[:-1]
        if any(_partition_column(folder) not in spelled for folder in folders):
            return "/".join(f"{name}=*" if (name := _partition_column(f)) and f not in parts else f for f in folders)
    return None


def _partition_column(folder: str) -> str:
    """Return `k` for `k=1`; empty for other folder names."""
    name, equals, _ = folder.partition("=")
    return name if equals else ""


def open_file(path: str, options: Mapping[str, str]) -> tuple[ObjectStore, str]:
    """Return the store and the object name of one listed file.

    Args:
        path: a literal name, as in `ListedFile.path`.
        options: the source's options, including those in the query of its path.

    Raises BadPathError.
    """
    if path.startswith(REMOTE):
        bucket, name = split_address(path)
        directory, _, leaf = name.rpartition("/")
        return open_bucket(bucket, directory, server_options(options.get("path", ""), options)), leaf
    if not path.startswith("/") or "\0" in path:
        raise BadPathError(path, "a file is named by an absolute path or by an address such as s3://bucket/key")
    directory, _, leaf = path.rpartition("/")
    return LocalObjectStore(Path(directory or "/")), leaf


def without_query(path: str) -> str:
    """Return a path in a bucket without its server options; other paths unchanged."""
    return path[: query.start()] if path.startswith(REMOTE) and (query := _QUERY.search(path)) else path


def server_options(path: str, options: Mapping[str, str]) -> dict[str, str]:
    """Return the server options of a path in a bucket: those in its query, else the source's. Raises BadStoreError."""
    if path.startswith(REMOTE) and (query := _QUERY.search(path)):
        return read_options(without_query(path), query[1])
    return {k: options[k] for k in STORE_OPTIONS if k in options}


def _place_of(path: str, options: Mapping[str, str], interval: Interval | None) -> _Place:
    bucket, name = split_bucket(path)
    if any(part in (".", "..") for part in name.split("/")):
        raise BadPathError(path, "the parts `.` and `..` are not supported in a path")
    return _Place(bucket, server_options(path, options), _fill_placeholders(path, name, interval))


def split_bucket(path: str) -> tuple[str, str]:
    """Split a source's path into a bucket with its scheme (empty: this machine) and the name inside.

    Raises BadPathError.
    """
    if "\0" in path or not path:
        raise BadPathError(path, "it is empty or contains a NUL")
    if path.startswith(REMOTE):
        bucket, name = split_address(without_query(path))
        if bucket in REMOTE or _SPECIAL.search(bucket):
            raise BadPathError(path, "the bucket must be a literal name")
        return bucket, name.strip("/")
    if path.startswith("file:"):
        path = unquote(re.sub(r"^file:(//)?(?=/)", "", path))
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", path):
        raise BadPathError(path, "its scheme is none of file://, s3://, gs://, az:// and hdfs://")
    if not path.startswith("/"):
        raise BadPathError(path, "a relative path has no meaning in a stored source; use an absolute path")
    return "", str(PurePosixPath(path)).strip("/")


def _fill_placeholders(path: str, name: str, interval: Interval | None) -> str:
    """Replace the placeholders of a name. Only strftime formats of the two moments are inserted."""

    def format_moment(match: re.Match[str]) -> str:
        which, form = match[1], match[2]
        if which is None:
            return match[0]
        if interval is None:
            return "/".join("?*" for _ in form.split("/"))  # not `*`: two of these would form `**`
        text = (interval.start if which == "start" else interval.end).strftime(form)
        if _SPECIAL.search(text) or any(part in ("", ".", "..") for part in text.strip("/").split("/")):
            raise BadPathError(path, f"placeholder {match[0]} yields {text!r}, which cannot be part of a path")
        return text

    return _PLACEHOLDER.sub(format_moment, name)


def _stray_brace(name: str) -> str | None:
    """Return a brace with its contents that is neither escaped nor part of a placeholder."""
    return next((match[1] for match in _BRACE.finditer(name) if match[1]), None)


def _is_recursive(options: Mapping[str, str]) -> bool:
    return options.get(RECURSIVE, "false").lower() == "true"


def _is_hidden(part: str) -> bool:
    return part.startswith((".", "_")) or part.endswith("._COPYING_")


def _place_text(place: _Place) -> str:
    return place.root + place.name


def _find_files(place: _Place, recursive: bool) -> list[ListedFile]:
    """Return the files that a place means."""
    parts, spelled = place.name.split("/"), _literal_names(place)
    base, rest = "/".join(spelled), parts[len(spelled) :]
    if not rest:
        return _list_literal(replace(place, name=base), recursive)
    special = _SPECIAL.search(rest[0])
    assert special is not None
    below = {name: file for file, name in _walk_files(place, base, rest[0][: special.start()])}
    return [below[name] for name in _select_files(rest, list(below), recursive)]


def _literal_names(place: _Place) -> list[str]:
    """Return the leading names of the path that can mean only one entry, unescaped.

    Cost: one stat per name with special characters in a local path. On S3, the listing decides such names.
    """
    names: list[str] = []
    for part in place.name.split("/"):
        is_local, plain = not place.bucket, _literal_text(part)
        if is_local and _SPECIAL.search(part) and Path("/", *names, part).exists():
            plain = part
        if plain is None or not (is_local or plain == part):
            break
        names.append(plain)
    return names


def _literal_text(part: str) -> str | None:
    """Return the only text that a name of a path can mean, whether or not an entry has it; None for a glob."""
    tokens = _TOKEN.findall(part)
    if _stray_brace(part) is not None or any(stars or one or body for _, stars, one, _, body, _ in tokens):
        return None
    return "".join(escaped or plain for escaped, _, _, _, _, plain in tokens)


def _list_literal(place: _Place, recursive: bool) -> list[ListedFile]:
    """List a literal path: the file of that name, else the files of the directory of that name."""
    parent, _, leaf = place.name.rpartition("/")
    if leaf and (place.bucket or Path(place.root, place.name).is_file()):
        try:
            info = place.open_store(parent).head(leaf)
            return [] if _is_hidden(leaf) else [ListedFile(_place_text(place), info.size, info.etag, info.modified_ms)]
        except ObjectNotFoundError:
            pass
    return [f for f, below in _walk_files(place, place.name, "") if recursive or "/" not in below]


def _select_files(parts: Sequence[str], names: Sequence[str], recursive: bool) -> set[str]:
    """Select the files of a directory that match a path relative to it.

    Args:
        parts: the path's names. Each one means the entry of exactly that name if it exists, else the entries that match
            it as a glob.
        names: names of the directory's files, `/`-separated; must include all that can match.
        recursive: a directory means all files below it; otherwise only those directly in it.
    """
    if not parts:
        return {name for name in names if recursive or "/" not in name}
    part, rest = parts[0], parts[1:]
    files: set[str] = set()
    inside: dict[str, list[str]] = {}  # by directory; in a bucket, a file may have the same name
    for name in names:
        entry, slash, below = name.partition("/")
        if slash:
            inside.setdefault(entry, []).append(below)
        else:
            files.add(entry)
    chosen: set[str] = set()
    if _is_any_depth(part):
        chosen |= _select_files(rest, names, recursive) if rest else set(names)
        rest = parts
    for entry in _matching_entries(part, files | inside.keys()):
        if entry in files and not rest:
            chosen.add(entry)
        chosen |= {f"{entry}/{below}" for below in _select_files(rest, inside.get(entry, ()), recursive)}
    return chosen


def _is_any_depth(part: str) -> bool:
    """Return whether a name of a path matches any number of directories."""
    return len(part) > 1 and not part.strip("*")


def _matching_entries(part: str, entries: Collection[str]) -> Collection[str]:
    """Return the entries of a directory that one name of a path means."""
    if part in entries:
        return (part,)
    if _stray_brace(part) is not None:
        return ()
    pattern = _name_pattern(part)
    return [entry for entry in entries if pattern.fullmatch(entry)]


@lru_cache(maxsize=256)
def _name_pattern(part: str) -> re.Pattern[str]:
    """Translate the glob of one name into a regular expression. Wildcards do not cross `/`."""
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
    """Translate `[a-c]` or `[!a-c]` into a regular expression. A range that ends before its start is empty."""
    chars = re.findall(rf"{_ESCAPED}|.", body, re.DOTALL)
    ranges, i = "", 0
    while i < len(chars):
        is_range = i + 2 < len(chars) and chars[i + 1] == "-"
        first, last = chars[i][-1], chars[i + 2 if is_range else i][-1]
        ranges += f"{re.escape(first)}-{re.escape(last)}" if first <= last else ""
        i += 3 if is_range else 1
    if not ranges:
        return "[^/]" if negated else "(?!)"
    return f"[{'^' if negated else ''}{ranges}]"


def _walk_files(place: _Place, base: str, prefix: str) -> Iterator[tuple[ListedFile, str]]:
    """Yield each visible file below `base` whose relative name starts with `prefix`, with that relative name."""
    if not place.bucket and not Path(place.root, base).is_dir():
        return
    top = f"{place.root}{base}/" if base else place.root
    for info in place.open_store(base).list(prefix):
        name = info.name
        # Most names have only one part.
        hidden = any(map(_is_hidden, name.split("/"))) if "/" in name else _is_hidden(name)
        if not hidden and not name.endswith("/"):
            yield ListedFile(top + name, info.size, info.etag, info.modified_ms), name


def _is_empty_directory(place: _Place) -> bool:
    """Return whether files may still appear: the path's literal local directory, up to the first wildcard, exists."""
    return not place.bucket and Path("/", *_literal_names(place)).is_dir()


def _similar_names(place: _Place) -> tuple[str, ...]:
    """Return the names most similar to the missing one, from the deepest non-empty directory of its path."""
    spelled = _literal_names(place)
    parts = [*spelled, *place.name.split("/")[len(spelled) :]]
    for depth in range(len(parts) - 1, -1, -1):
        base, wanted = "/".join(parts[:depth]), parts[depth]
        if not place.bucket:
            directory = Path("/", base)
            names = sorted(p.name for p in directory.iterdir()) if directory.is_dir() else []
        else:
            names = sorted(
                {info.name.split("/")[0] for info, _ in zip(place.open_store(base).list(""), range(1000), strict=False)}
            )
        if names:
            near = difflib.get_close_matches(wanted, names, n=_NEAR, cutoff=0.3) or names[:_NEAR]
            return tuple(printable_text(f"{place.root}{base}/{name}" if base else place.root + name) for name in near)
    return ()
