"""Errors of the state store's reads and writes."""

from tussock.statestore.errors import DamagedError, InputError


class DamagedSstError(DamagedError):
    """Bytes of an SST are not what was written: a flipped bit, a cut object, or an object of another kind under this name."""

    def __init__(self, name: str, place: str, found: str, expected: str) -> None:
        super().__init__(name, place, found, expected)
        self.name, self.place, self.found, self.expected = name, place, found, expected

    def __str__(self) -> str:
        return (
            f"SST {self.name!r} is damaged at {self.place}: found {self.found}, expected {self.expected}. No row of it was used. "
            "Restore the object from a copy of the bucket; rows outside the named place can still be read."
        )


class UnorderedRowsError(InputError):
    """Rows to be written are not in strictly ascending key order, so that no reader could find them."""

    def __init__(self, table_id: int, row: int, before: str, key: str) -> None:
        super().__init__(table_id, row, before, key)
        self.table_id, self.row, self.before, self.key = table_id, row, before, key

    def __str__(self) -> str:
        return (
            f"table {self.table_id}: row {self.row} has key {self.key} after key {self.before}; keys of an epoch must ascend and be "
            "unique within a table. Two actors wrote one key, or a batch was sealed unsorted. Nothing was uploaded."
        )


class WrongRowsError(InputError):
    """Rows to be written, or stored sections of one table, do not have the columns they must have."""

    def __init__(self, place: str, found: str, expected: str) -> None:
        super().__init__(place, found, expected)
        self.place, self.found, self.expected = place, found, expected

    def __str__(self) -> str:
        return (
            f"{self.place}: found columns {self.found}, expected {self.expected}. "
            "A table keeps its columns for life; give the changed one a new id."
        )


class MissingSstError(DamagedError):
    """A version names an SST that is not in the bucket."""

    def __init__(self, uri: str, name: str) -> None:
        super().__init__(uri, name)
        self.uri, self.name = uri, name

    def __str__(self) -> str:
        return (
            f"SST {self.name!r} is not in {self.uri}, though the version being read names it. If that version is old, vacuum has removed "
            "what only it named: open the newest one. Otherwise the object was deleted by hand: restore it from a copy of the bucket."
        )


def show_key(key: bytes) -> str:
    """A storage key as a person reads it: table, vnode and the hexadecimal primary key, cut at 32 bytes."""
    table_id, vnode, rest = int.from_bytes(key[:4], "big"), int.from_bytes(key[4:6], "big"), key[6:]
    return f"{table_id}|{vnode}|{rest[:32].hex()}{'…' if len(rest) > 32 else ''}"
