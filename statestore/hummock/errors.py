"""Errors of the state store's reads and writes."""

from tussock.statestore.errors import DamagedError, InputError


class DamagedSstError(DamagedError):
    """Bytes of an SST differ from those written: a flipped bit, a truncated object, or another object of this name."""

    name: str
    place: str
    finding: str
    expected: str

    def __str__(self) -> str:
        return (
            f"SST {self.name!r} is damaged at {self.place}: found {self.finding}, expected {self.expected}. "
            "No row from there was used. "
            "Restore the object from a copy of the bucket. Its other rows are still readable."
        )


class UnorderedRowsError(InputError):
    """Rows to write are not in strictly ascending key order, so readers could not find them."""

    table_id: int
    row: int
    before: str
    key: str

    def __str__(self) -> str:
        return (
            f"table {self.table_id}: row {self.row} has key {self.key} after key {self.before}; keys of an epoch must "
            "ascend and be unique within a table. Two actors wrote one key, or a batch was sealed unsorted. "
            "Nothing was uploaded."
        )


class WrongRowsError(InputError):
    """Rows to write, or stored sections of one table, do not have the required columns."""

    place: str
    columns: str
    expected: str

    def __str__(self) -> str:
        return (
            f"{self.place}: found columns {self.columns}, expected {self.expected}. "
            "The columns of a table cannot change. Give the changed table a new id."
        )


class MissingSstError(DamagedError):
    """A version names an SST that does not exist in the bucket."""

    uri: str
    name: str

    def __str__(self) -> str:
        return (
            f"SST {self.name!r} is not in {self.uri}, but the version being read names it. If this version is old, "
            "vacuum has removed the SST: open the newest version. Otherwise the object was deleted by other means: "
            "restore it from a copy of the bucket."
        )


def show_key(key: bytes) -> str:
    """Format a storage key for people: table, vnode and the hexadecimal primary key, shortened to 32 bytes."""
    table_id, vnode, rest = int.from_bytes(key[:4], "big"), int.from_bytes(key[4:6], "big"), key[6:]
    return f"{table_id}|{vnode}|{rest[:32].hex()}{'…' if len(rest) > 32 else ''}"
