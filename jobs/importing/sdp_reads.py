"""Reads of files, topics and tables by location in a declarative pipeline, as CREATE SOURCE.

read_files('/data/orders', format => 'json', schema => 'id INT')      SQL of Databricks
cloud_files('/data/orders', 'json', map('header', 'true'))            SQL of Delta Live Tables
spark.readStream.format('cloudFiles').option(…).load('/data/orders')  Python
spark.read.csv('/data/orders', header=True)                           Python
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from tussock.jobs.logical.quoting import string_text
from tussock.jobs.logical.tokens import Token
from tussock.jobs.sources.listing import RECURSIVE
from tussock.statestore.errors import InputError

#: Formats of Spark's readers with the same format of a source.
_FORMATS = ("csv", "json", "parquet", "orc", "avro", "text", "xml", "delta", "kafka")
#: Formats whose files or services describe their columns.
DESCRIBED = ("parquet", "orc", "avro", "delta", "text", "kafka")
_CHANGE_FEEDS = ("readchangefeed", "readchangedata")
_FIXED_VERSIONS = ("versionasof", "timestampasof", "startingversion", "startingtimestamp")
_NO_FEED = (
    "no source has the changes of a table as rows. Read the table itself, without this option: its views follow "
    "updates and deletes, and need no `_change_type`"
)
_NO_START = "a source follows the newest version of a table, and has no fixed start. Remove the option"
_STREAM_ONLY = re.compile(  # how a stream is cut into batches, and where it keeps its state; no row depends on it
    r"(cloudfiles\.)?(max(files|bytes)pertrigger|usenotifications|useincrementallisting|includeexistingfiles|"
    r"schemalocation|schemaevolutionmode|backfillinterval|allowoverwrites|validateoptions|usemanagedfileevents|"
    r"fetchparallelism|region|connectionstring|resourcegroup|subscriptionid|tenantid|clientid|clientsecret|"
    r"ignorechanges|ignoredeletes|skipchangecommits|failondataloss|maxoffsetspertrigger|inferschema|"
    r"infercolumntypes|mergeschema|prefersdate|latestfirst|checkpointlocation|cleansource.*|rescueddatacolumn)"
)
_AZURE = re.compile(r"(?:abfss?|wasbs?)://([^@/]+)@([^./]+)\.[^/]+/(.*)")


class UnsupportedReadError(InputError):
    """A read that no source of this project replaces."""

    read: str
    reason: str

    def __str__(self) -> str:
        return f"{self.read}: {self.reason}"


@dataclass(frozen=True, slots=True)
class SourceRead:
    """A read of files, a table by location, or a topic.

    Args:
        format: as in CREATE SOURCE; "": that of the files.
        path: "" for a topic.
        columns: the declared columns as DDL; None: the files decide.
        options: of CREATE SOURCE, without the path.
        inferred_types: whether Spark infers the types of text files; otherwise their values are strings.
        hints: columns with types that take precedence over the inferred ones, as DDL.
        names: of all columns of a csv file, in their order; empty: those of its header.
        notes: differences from the read as written.
    """

    format: str
    path: str
    columns: str | None = None
    options: tuple[tuple[str, str], ...] = ()
    inferred_types: bool = False
    hints: str = ""
    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=(), compare=False)

    def to_sql(self, name: str, path: str, columns: str | None) -> str:
        """The CREATE SOURCE statement, over a path and with columns that may be known only now."""
        options = {**({"path": path} if path else {}), **dict(self.options)}
        if path:
            options["may_be_missing"] = "true"
        listed = ", ".join(f"{_key_text(key)} {string_text(value)}" for key, value in options.items())
        declared = f" ({columns})" if columns else ""
        return f"CREATE SOURCE {name}{declared} USING {self.format} OPTIONS ({listed})"


def read_of_call(function: str, arguments: list[Token]) -> SourceRead:
    """The read of a table-valued function, from the tokens between its brackets.

    Raises: UnsupportedReadError.
    """
    positional, named = _arguments_of(function, arguments)
    if function == "cloud_files":
        if len(positional) < 2 or named:
            raise UnsupportedReadError(function, "expected cloud_files(path, format[, map(option, value, …)])")
        options = {k.removeprefix("cloudFiles."): v for k, v in _pairs_of(positional[2:]).items()}
        _assume_header(positional[1].lower(), None, options)
        return read_of_options(
            positional[1], positional[0], options, None, infers=_is_true(options, "inferColumnTypes"), nested=True
        )
    if len(positional) != 1:
        raise UnsupportedReadError(function, "expected read_files(path, format => '…', …)")
    format = named.pop("format", "")
    schema, hints = named.pop("schema", None), named.pop("schemahints", "")
    infers = named.pop("infercolumntypes", "true").lower() == "true"
    named.setdefault("header", "true") if format == "csv" and "header" not in named else None
    return read_of_options(format, positional[0], named, schema, infers=infers, hints=hints, detects=True, nested=True)


def read_of_options(
    format: str,
    path: str,
    options: Mapping[str, str],
    columns: str | None,
    *,
    infers: bool,
    hints: str = "",
    detects: bool = False,
    nested: bool = False,
) -> SourceRead:
    """The read of Spark's reader with these options.

    Args:
        detects: the files show a format that is not named ("").
        nested: a folder means all files below it, as for Auto Loader. Spark's own readers take those directly in it.

    Raises: UnsupportedReadError.
    """
    format = format.lower()
    options = dict(options)
    if format == "cloudfiles":
        format = _pop_option(options, "cloudFiles.format") or ""
        infers = (_pop_option(options, "cloudFiles.inferColumnTypes") or "false").lower() == "true"
        hints = _pop_option(options, "cloudFiles.schemaHints") or hints
        format, nested = format.lower(), True
        _assume_header(format, columns, options)
    if not format and not detects:
        raise UnsupportedReadError(path or "a read", "its format is not named; add format => 'csv', 'json', …")
    if format and format not in _FORMATS:
        raise UnsupportedReadError(
            f"format {format!r}", f"no source reads it; the formats of sources are {', '.join(_FORMATS)}"
        )
    nested = nested and format not in ("delta", "kafka") and not any(c in path for c in "*?[{")
    if (pattern := _pop_option(options, "pathGlobFilter") or _pop_option(options, "fileNamePattern")) and path:
        path = f"{path.rstrip('/')}/{'**/' if nested else ''}{pattern}"
    elif nested and not any(key.lower() == "recursivefilelookup" for key in options):
        options[RECURSIVE] = "true"
    notes = _translate_options(options)
    if format == "kafka":
        path = ""
    else:
        path, account = _path_of(path)
        if account:
            options["account"] = account
    return SourceRead(format, path, columns, tuple(sorted(options.items())), infers, hints, notes=tuple(notes))


def _translate_options(options: dict[str, str]) -> list[str]:
    """Replace options of streams by options of sources, and return notes on them. Raises UnsupportedReadError."""
    notes = list[str]()
    for name in list(options):
        if _STREAM_ONLY.fullmatch(name.lower()):
            if name.lower() in ("ignorechanges", "ignoredeletes", "skipchangecommits"):
                notes.append(f"{name} is dropped: views follow updates and deletes of the table")
            del options[name]
    mode = _pop_option(options, "mode")
    if mode is not None and mode.upper() != "FAILFAST":
        options["on_error"] = "quarantine"
        notes.append(f"mode {mode}: unreadable records go to the table of rejects")
    for name in [key for key in options if key.lower() in _CHANGE_FEEDS]:
        if _is_true({name: options.pop(name)}, name):
            raise UnsupportedReadError(f"option {name}", _NO_FEED)
    if (version := next((name for name in options if name.lower() in _FIXED_VERSIONS), None)) is not None:
        raise UnsupportedReadError(f"option {version}", _NO_START)
    return notes


def _assume_header(format: str, columns: str | None, options: dict[str, str]) -> None:
    """Auto Loader assumes that csv files have headers when it infers their columns."""
    if format == "csv" and columns is None and not any(key.lower() == "header" for key in options):
        options["header"] = "true"


def _path_of(path: str) -> tuple[str, str]:
    """A path as in CREATE SOURCE, and the account of Azure's storage."""
    if (azure := _AZURE.fullmatch(path)) is not None:
        return f"az://{azure[1]}/{azure[3]}", azure[2]
    for written, ours in (
        ("s3a://", "s3://"),
        ("s3n://", "s3://"),
        ("file:///", "/"),
        ("file:/", "/"),
        ("dbfs:/", "/dbfs/"),
    ):
        if path.startswith(written):
            return ours + path.removeprefix(written), ""
    return path, ""


def _pop_option(options: dict[str, str], name: str) -> str | None:
    key = next((k for k in options if k.lower() == name.lower()), None)
    return None if key is None else options.pop(key)


def _is_true(options: Mapping[str, str], name: str) -> bool:
    return any(k.lower() == name.lower() and v.lower() == "true" for k, v in options.items())


def _arguments_of(function: str, tokens: list[Token]) -> tuple[list[str], dict[str, str]]:
    """The constant arguments of a call: by position, and by name in lower case. A map becomes `key=value` texts."""
    positional, named = list[str](), dict[str, str]()
    for argument in split_arguments(tokens):
        if len(argument) > 3 and argument[1].text == "=" and argument[2].text == ">":
            named[argument[0].value().lower()] = constant_of(function, argument[3:])
        elif argument and argument[0].text.lower() == "map":
            entries = split_arguments(argument[2:-1])
            texts = [constant_of(function, entry) for entry in entries]
            positional += [f"{k}={v}" for k, v in zip(texts[::2], texts[1::2], strict=True)]
        else:
            positional.append(constant_of(function, argument))
    return positional, named


def _pairs_of(texts: list[str]) -> dict[str, str]:
    return {key: value for key, _, value in (text.partition("=") for text in texts)}


def split_arguments(tokens: list[Token]) -> list[list[Token]]:
    """The arguments of a call, or the entries of a list or a map."""
    arguments, depth = [list[Token]()], 0
    for token in tokens:
        if token.kind == "symbol":
            depth += (token.text in "([{") - (token.text in ")]}")
        if depth == 0 and token.text == ",":
            arguments.append([])
        else:
            arguments[-1].append(token)
    return [argument for argument in arguments if argument]


def constant_of(function: str, tokens: list[Token]) -> str:
    """A string, a number or a Boolean; strings may be joined by `||`."""
    parts = [t for t in tokens if t.text != "|"]
    if len(parts) == 1 and parts[0].kind in ("string", "number", "word"):
        return parts[0].value()
    if parts and all(t.kind == "string" for t in parts):
        return "".join(t.value() for t in parts)
    written = " ".join(t.text for t in tokens)
    raise UnsupportedReadError(f"{function}(… {written} …)", "expected a constant")


def _key_text(key: str) -> str:
    return key if re.fullmatch(r"\w+(\.\w+)*", key) else string_text(key)
