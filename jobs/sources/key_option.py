"""The option `key` of sources whose rows change: Delta and Iceberg tables, and relations of other stores."""

from collections.abc import Mapping
from typing import ClassVar

from tussock.jobs.logical.hidden_columns import HiddenColumn
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.base import ByColumns, ByValue, Identity

KEY = "key"


def key_columns(source: CreateSource) -> tuple[str, ...]:
    """Return the names in the option `key`, in lower case; empty without a key."""
    return tuple(name.strip().lower() for name in source.options.get(KEY, "").split(",") if name.strip())


class ChangingRows:
    """The part of a reader that follows from changing rows: the key identifies a row, or else its values do."""

    lists_deletes: ClassVar[bool] = True

    def append_only(self, source: CreateSource) -> bool:
        """See SourceDescriber."""
        return False

    def hidden(self, source: CreateSource) -> tuple[HiddenColumn, ...]:
        """See SourceDescriber."""
        return ()

    def identity(self, source: CreateSource) -> Identity:
        """See SourceDescriber."""
        names = [f.name.lower() for f in source.fields]
        key = tuple(names.index(column) for column in key_columns(source))
        return ByColumns(key) if key else ByValue()

    def default_options(self, options: Mapping[str, str]) -> dict[str, str]:
        """See SourceDescriber."""
        return {}
