"""A source as it enters the log: with an absolute path, and with its columns."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from jobs.sources.files import RETAIN, FileSource
from jobs.sources.kafka_cluster import SERVERS
from jobs.sources.listing import absolute_path
from jobs.sources.registry import READERS, reader_of
from jobs.sql.statements import CreateSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def placed(source: CreateSource, base: Path) -> CreateSource:
    """The source with an absolute path (what is stored must not depend on a working directory), and with what its format takes for granted
    where the statement says nothing."""
    if "path" not in source.options:
        return source
    options = {**source.options, "path": absolute_path(source.options["path"], base)}
    if source.format in READERS and isinstance(READERS[source.format], FileSource):
        options.setdefault(RETAIN, "files")
    return msgspec.structs.replace(source, options=options)


def described(source: CreateSource, spark: "Callable[[], SparkSession]") -> CreateSource:
    """The source with its columns: those declared, else those that its reader finds. Raises what the reader's `check` and `describe`
    raise, e.g. MissingPathError. Cost: one listing, and where no columns are declared one file's footer."""
    reader = reader_of(source)
    reader.check(source)
    return msgspec.structs.replace(source, fields=reader.describe(source, spark))


def place_text(source: CreateSource) -> str:
    """Where a source's rows come from, for persons."""
    options = source.options
    found = next((options[name] for name in ("subscribe", "subscribePattern", "assign") if name in options), "")
    return options.get("path") or f"{found} at {options[SERVERS]}"
