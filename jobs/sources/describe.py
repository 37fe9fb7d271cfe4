"""Prepare a source for the log: make its path absolute and find its columns."""

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateSource, RelativePath
from tussock.jobs.settings.home import folder_of
from tussock.jobs.settings.process import store_address
from tussock.jobs.sources.kafka_cluster import SERVERS
from tussock.jobs.sources.keyed import is_log
from tussock.jobs.sources.listing import absolute_path
from tussock.jobs.sources.other_store import FORMAT as OTHER_STORE
from tussock.jobs.sources.other_store import STORE
from tussock.jobs.sources.parquet_schema import UnsupportedFileTypeError, column_objection
from tussock.jobs.sources.postgres_slot import TABLE, place_of
from tussock.jobs.sources.registry import READERS, reader_of
from tussock.statestore.objectstore.base import ObjectStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class LeftOutColumnWarning(UserWarning):
    """A new source omits a column of its files."""

    def __init__(self, source: str, field: Field) -> None:
        super().__init__(source, field)
        self.source, self.field = source, field

    def __str__(self) -> str:
        return f"source {self.source!r} leaves out column {self.field.name!r}: {column_objection(self.field)}"


def place_source(source: CreateSource, base: Path, store: ObjectStore | None = None) -> CreateSource:
    """Return the source with an absolute path and its format's default options.

    The stored path must not depend on a working directory. If it was written relative, and the store is in a folder,
    its relation to that folder is recorded, so that both can move together.

    Args:
        base: the folder that a relative path starts from.
        store: the store that will contain the source.
    """
    options = dict(source.options)
    if source.format == OTHER_STORE and STORE in options:
        options[STORE] = store_address(options[STORE], base)
    if "path" in options:
        options["path"] = absolute_path(options["path"], base)
        folder = None if store is None else folder_of(store)
        if options["path"] != source.options["path"] and folder is not None:
            from_store = os.path.relpath(os.path.realpath(base), folder)
            relative = RelativePath(source.options["path"], str(base.absolute()), from_store)
            source = msgspec.structs.replace(source, relative=relative)
    if (reader := READERS.get(source.format)) is not None:
        options |= reader.default_options(source.options)
    return msgspec.structs.replace(source, options=options)


def describe_source(source: CreateSource, spark: "Callable[[], SparkSession]") -> CreateSource:
    """Return the source with its declared columns, or the columns that its reader finds.

    Columns of unsupported types or without a name are left out, with a LeftOutColumnWarning.

    Raises: UnsupportedFileTypeError if no column is left; the errors of the reader's `check` and `describe`, such as
    MissingPathError. Cost: one listing, and the footer of one file if no columns are declared.
    """
    reader = reader_of(source)
    reader.check(source)
    fields = reader.describe(source, spark)
    stored_fields = tuple(field for field in fields if column_objection(field) is None)
    if not stored_fields:
        raise UnsupportedFileTypeError(source.name, fields)
    for field in fields:
        if field not in stored_fields:
            warnings.warn(LeftOutColumnWarning(source.name, field), stacklevel=2)
    return msgspec.structs.replace(source, fields=stored_fields)


def place_text(source: CreateSource) -> str:
    """Return the location of a source's input, for display."""
    options = source.options
    if source.format == OTHER_STORE:
        return f"{options['relation']} of {options[STORE]}"
    if source.format == "iceberg":
        return f"{options['table']} of catalog {options['catalog']}"
    if is_log(source):
        return f"{options[TABLE]} of {place_of(source).shown}"
    topics = next((options[name] for name in ("subscribe", "subscribePattern", "assign") if name in options), "")
    return options.get("path") or f"{topics} at {options[SERVERS]}"
