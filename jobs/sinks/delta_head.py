"""The newest state of a Delta table, as far as a publish needs it, without its list of files."""

from types import SimpleNamespace
from typing import Any, Protocol

import msgspec
from deltalake import DeltaTable, Schema

from tussock.jobs.sinks.delta_outline import app_of


class TableHead(Protocol):
    """A part of DeltaTable, which KnownHead has too."""

    def version(self) -> int: ...
    def transaction_version(self, app_id: str) -> int | None: ...
    def metadata(self) -> Any: ...
    def schema(self) -> Any: ...
    def protocol(self) -> Any: ...


class KnownHead(msgspec.Struct, frozen=True):
    """The state that a locator's document describes. So a publish needs no look at the whole log.

    Args:
        number: the version.
        transactions: versions of transaction identifiers, by appId.
        fields: the columns, in Delta's JSON.
        readers, writers: the features of the table.
    """

    number: int
    transactions: dict[str, int]
    id: str
    configuration: dict[str, str]
    fields: str
    readers: tuple[str, ...]
    writers: tuple[str, ...]

    @staticmethod
    def of_table(table: DeltaTable, others: tuple[str, ...]) -> "KnownHead":
        """Return the state of a table. `others`: appIds beside those of `app_of`."""
        transactions, replaced = {}, 0
        while (epoch := table.transaction_version(app_of(replaced))) is not None:
            transactions[app_of(replaced)] = epoch
            replaced += 1
        for app in others:
            if (number := table.transaction_version(app)) is not None:
                transactions[app] = number
        metadata, protocol = table.metadata(), table.protocol()
        return KnownHead(
            table.version(),
            transactions,
            str(metadata.id),
            dict(metadata.configuration),
            table.schema().to_json(),
            tuple(protocol.reader_features or ()),
            tuple(protocol.writer_features or ()),
        )

    def after(self, version: int, **transactions: int) -> "KnownHead":
        """Return the state after a commit that changes no columns."""
        return msgspec.structs.replace(self, number=version, transactions=self.transactions | transactions)

    def version(self) -> int:
        """See DeltaTable."""
        return self.number

    def transaction_version(self, app_id: str) -> int | None:
        """See DeltaTable."""
        return self.transactions.get(app_id)

    def metadata(self) -> Any:
        """See DeltaTable."""
        return SimpleNamespace(id=self.id, configuration=self.configuration)

    def schema(self) -> Any:
        """See DeltaTable."""
        return Schema.from_json(self.fields)

    def protocol(self) -> Any:
        """See DeltaTable."""
        return SimpleNamespace(reader_features=self.readers, writer_features=self.writers)
