"""Changes in a Postgres log, as messages of the plugin pgoutput, turned into columns of texts.

    B  begin: final LSN u64, time, xid          I  insert: relation u32, 'N', tuple
    C  commit: flags u8, LSN u64, end LSN u64   U  update: relation u32, ['K' or 'O', tuple], 'N', tuple
    R  relation: its columns                    D  delete: relation u32, 'K' or 'O', tuple
    T  truncate: count u32, options u8, relations u32…

    tuple   columns u16, per column: 'n' NULL | 'u' unchanged, not logged | 't' length u32, text

Numbers are big-endian (protocol version 1). A tuple 'K' has the old values of the key alone, and comes only if the key
changed. A tuple 'O' (REPLICA IDENTITY FULL) has all old values.

Positions of values follow from the lengths before them. So they are computed column by column, for all messages of a
relation at once: no loop runs per message or per row. Only descriptions of relations and truncations are read one by
one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.sources.keyed import DELETE, TRUNCATE, UPSERT
from tussock.statestore.positions import expand_ranges

_Bytes = npt.NDArray[np.uint8]
_Places = npt.NDArray[np.int64]
_Flags = npt.NDArray[np.bool_]

_PADDING = 8  # bytes after the last message, so that a length that is not there can be read without a test


@dataclass(frozen=True, slots=True)
class LoggedColumn:
    """A column of a relation as the log describes it. `type_oid`: of pg_type."""

    name: str
    is_key: bool
    type_oid: int
    type_modifier: int


@dataclass(frozen=True, slots=True)
class LoggedRelation:
    """A relation as the log describes it, from message `first` on."""

    oid: int
    columns: tuple[LoggedColumn, ...]
    first: int


@dataclass(frozen=True, slots=True)
class LoggedRecords:
    """Changes of one relation under one description.

    Args:
        relation: the description.
        places: (records,) the places of their messages in the log, doubled. A changed key is a deletion and an upsert.
        operations: (records,) UPSERT, DELETE or TRUNCATE.
        values: per wanted column (records,) texts; NULL also if the value is omitted. Deletions have those of the key.
        omitted: per wanted column (records,) whether the value did not change and is not in the log.
        moved: (records,) whether an update changed the key.
    """

    relation: LoggedRelation
    places: _Places
    operations: pa.Array
    values: tuple[pa.Array, ...]
    omitted: tuple[_Flags, ...]
    moved: _Flags


@dataclass(frozen=True, slots=True)
class _Cells:
    """A column of some tuples: (tuples,) kind, and place and length of the text in the log."""

    kind: _Bytes
    start: _Places
    length: _Places

    def where(self, chosen: _Flags, other: "_Cells") -> "_Cells":
        """These cells where `chosen`, and the other ones elsewhere."""
        return _Cells(
            np.where(chosen, self.kind, other.kind),
            np.where(chosen, self.start, other.start),
            np.where(chosen, self.length, other.length),
        )

    def take(self, places: npt.NDArray[np.intp]) -> "_Cells":
        return _Cells(self.kind[places], self.start[places], self.length[places])


class Log:
    """Messages of whole transactions."""

    def __init__(self, data: bytes, lengths: npt.NDArray[np.int64]) -> None:
        """
        Args:
            data: the messages without gaps.
            lengths: (messages,) bytes of each.
        """
        self._bytes: _Bytes = np.frombuffer(data + bytes(_PADDING), np.uint8)
        self._starts: _Places = np.cumsum(lengths, dtype=np.int64) - lengths
        self._kinds: _Bytes = self._bytes[self._starts]

    @classmethod
    def empty(cls) -> "Log":
        """Return a log without messages."""
        return cls(b"", np.zeros(0, np.int64))

    def __len__(self) -> int:
        return len(self._starts)

    @property
    def nbytes(self) -> int:
        """Bytes of all messages."""
        return len(self._bytes) - _PADDING

    @cached_property
    def commit_ends(self) -> npt.NDArray[np.int64]:
        """(messages,) where the log's record of the commit ends, for the transaction of each message."""
        commits = np.flatnonzero(self._kinds == ord("C"))
        ends = self._int64_at(self._starts[commits] + 10)
        return ends[np.searchsorted(commits, np.arange(len(self)))]

    @cached_property
    def relations(self) -> tuple[LoggedRelation, ...]:
        """All descriptions of relations, in order."""
        return tuple(self._relation_at(int(message)) for message in np.flatnonzero(self._kinds == ord("R")))

    def records_of(
        self, oid: int, columns: Sequence[str], key: Sequence[int], after: int, until: int
    ) -> list[LoggedRecords]:
        """Return the changes of a table, one part per description of it.

        Args:
            oid: the identity of the table. It may have had several names.
            columns: names of the wanted columns. The caller compares them with the descriptions first
                (`relations_in`).
            key: the wanted columns that are the key.
            after, until: only transactions whose commit ends after the one, and not after the other.
        """
        wanted = (self.commit_ends > after) & (self.commit_ends <= until)
        parts = []
        for relation, messages in self._changes_of(oid, wanted):
            parts.append(self._records(relation, messages, columns, key))
        return parts

    def truncates(self, oid: int, after: int, until: int) -> bool:
        """Return whether one of these transactions truncates a table."""
        wanted = (self.commit_ends > after) & (self.commit_ends <= until)
        return any(oid in self._truncated_relations(int(m)) for m in np.flatnonzero((self._kinds == ord("T")) & wanted))

    def relations_in(self, oid: int, after: int, until: int) -> list[LoggedRelation]:
        """Return the descriptions of a table under which these transactions changed rows of it."""
        wanted = (self.commit_ends > after) & (self.commit_ends <= until)
        return [relation for relation, _ in self._changes_of(oid, wanted)]

    def _changes_of(self, oid: int, wanted: _Flags) -> list[tuple[LoggedRelation, _Places]]:
        """The messages about a table's rows, by description."""
        versions = [relation for relation in self.relations if relation.oid == oid]
        rows = np.flatnonzero(np.isin(self._kinds, np.frombuffer(b"IUD", np.uint8)) & wanted)
        mine = rows[self._int32_at(self._starts[rows] + 1) == oid]
        truncations = [
            m for m in np.flatnonzero((self._kinds == ord("T")) & wanted) if oid in self._truncated_relations(int(m))
        ]
        mine = np.sort(np.concatenate([mine, truncations]).astype(np.int64))
        version = np.searchsorted([relation.first for relation in versions], mine) - 1
        parts = ((relation, mine[version == number]) for number, relation in enumerate(versions))
        return [(relation, messages) for relation, messages in parts if len(messages)]

    def _records(
        self, relation: LoggedRelation, messages: _Places, columns: Sequence[str], key: Sequence[int]
    ) -> LoggedRecords:
        names = {column.name: place for place, column in enumerate(relation.columns)}
        places = [names[name] for name in columns]
        kinds, at = self._kinds[messages], self._starts[messages] + 5
        is_truncation = kinds == ord("T")
        is_new = np.isin(kinds, np.frombuffer(b"IU", np.uint8))
        mark = self._bytes[at]
        has_old = np.isin(mark, np.frombuffer(b"KO", np.uint8)) & ~is_truncation
        old, after_old = self._tuples(at[has_old] + 1, len(relation.columns))
        new_at = at.copy()
        new_at[has_old] = after_old
        new, _ = self._tuples(new_at[is_new] + 1, len(relation.columns))
        old_of_new = np.cumsum(has_old)[is_new] - 1  # the old tuple of each new one, if it has one
        pairs = has_old[is_new]
        is_whole = pairs & (mark[is_new] == ord("O"))
        moved, upserts = np.zeros(len(pairs), np.bool_), []
        for place in places:
            cells = new[place]
            if len(old[place].kind):
                before = old[place].take(np.where(pairs, old_of_new, 0))
                known = (cells.kind == ord("u")) & (before.kind != ord("u"))
                takes = known & (is_whole | (pairs & relation.columns[place].is_key))
                cells = before.where(takes, cells)
            upserts.append(cells)
        if pairs.any():
            for number in key:
                before = self._texts(old[places[number]].take(old_of_new[pairs]))
                now = self._texts(upserts[number].take(np.flatnonzero(pairs)))
                other = pc.fill_null(pc.not_equal(before, now), True)
                moved[pairs] |= np.asarray(other)
        gone = np.flatnonzero(has_old)[old_of_new[moved]]  # messages with a changed key
        deleted = np.flatnonzero(kinds == ord("D"))
        counts = len(gone), len(pairs), len(deleted), int(is_truncation.sum())
        order_of = (
            2 * messages[gone],
            2 * messages[is_new] + 1,
            2 * messages[deleted],
            2 * messages[is_truncation],
        )
        old_of_deleted = np.cumsum(has_old)[deleted] - 1
        values, omitted = [], []
        for number, place in enumerate(places):
            own = upserts[number]
            old_rows = np.concatenate([old_of_new[moved], old_of_deleted])
            values.append(self._column_in_order(own, old[place].take(old_rows) if number in key else None, counts))
            flags = [np.zeros(count, np.bool_) for count in counts]
            flags[1] = own.kind == ord("u")
            omitted.append(np.concatenate(flags))
        operations = np.repeat([DELETE, UPSERT, DELETE, TRUNCATE], counts)
        moves = np.concatenate([np.zeros(counts[0], np.bool_), moved, np.zeros(counts[2] + counts[3], np.bool_)])
        return LoggedRecords(
            relation,
            np.concatenate(order_of),
            pa.array(operations.tolist() if not len(operations) else operations, pa.string()),
            tuple(values),
            tuple(omitted),
            moves,
        )

    def _column_in_order(self, own: _Cells, old: _Cells | None, counts: tuple[int, int, int, int]) -> pa.Array:
        """(sum of counts,) a column of rows with a changed key, upserts, deletes and truncations.

        Args:
            own: of the upserts.
            old: of the rows with a changed key, then of the deletes; None outside of the key, which gives NULLs.
        """
        moved, _, deleted, truncated = counts
        texts = pa.nulls(moved + deleted, pa.string()) if old is None else self._texts(old)
        parts = [texts[:moved], self._texts(own), texts[moved:], pa.nulls(truncated, pa.string())]
        return pa.chunked_array(parts, pa.string()).combine_chunks()

    def _tuples(self, at: _Places, width: int) -> tuple[list[_Cells], _Places]:
        """The cells of the tuples that begin at these places, by column, and where each tuple ends."""
        place, cells = at + 2, []
        for _ in range(width):
            kind = self._bytes[place]
            has_text = kind == ord("t")
            length = np.where(has_text, self._int32_at(np.where(has_text, place + 1, 0)), 0)
            cells.append(_Cells(kind, place + 5, length))
            place = place + 1 + np.where(has_text, 4 + length, 0)
        return cells, place

    def _texts(self, cells: _Cells) -> pa.Array:
        """(tuples,) the texts of cells; NULL without one."""
        offsets = np.zeros(len(cells.kind) + 1, np.int64)
        np.cumsum(cells.length, out=offsets[1:])
        # The place of each byte: it follows the byte before, or begins a text.
        bytes_at = expand_ranges(cells.start, cells.length)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self._bytes[bytes_at])]
        texts = pa.Array.from_buffers(pa.large_string(), len(cells.kind), buffers).cast(pa.string())
        return pc.if_else(pa.array(cells.kind == ord("t")), texts, pa.scalar(None, pa.string()))

    def _relation_at(self, message: int) -> LoggedRelation:
        """Read a description. One of a few messages: the server sends it once per relation and change of it."""
        data, at = self._bytes, int(self._starts[message])
        oid = int(self._int32_at(np.array([at + 1]))[0])
        _, at = self._text_at(at + 5)  # the schema and the name, which are not its identity
        _, at = self._text_at(at)
        count, at = int(data[at + 1]) << 8 | int(data[at + 2]), at + 3
        columns = []
        for _ in range(count):
            is_key, (column, at) = bool(data[at] & 1), self._text_at(at + 1)
            kind, modifier = (int(n) for n in self._int32_at(np.array([at, at + 4])))
            columns.append(LoggedColumn(column, is_key, kind, modifier))
            at += 8
        return LoggedRelation(oid, tuple(columns), message)

    def _truncated_relations(self, message: int) -> tuple[int, ...]:
        """The relations of a truncation."""
        at = int(self._starts[message])
        (count,) = self._int32_at(np.array([at + 1]))
        return tuple(map(int, self._int32_at(at + 6 + 4 * np.arange(count))))

    def _text_at(self, at: int) -> tuple[str, int]:
        """The text that ends with a zero byte, and the place after it."""
        end = at
        while self._bytes[end]:
            end += 1
        return bytes(self._bytes[at:end]).decode(), end + 1

    def _int32_at(self, at: _Places) -> npt.NDArray[np.int64]:
        data = self._bytes
        return (
            data[at].astype(np.int64) << 24
            | data[at + 1].astype(np.int64) << 16
            | data[at + 2].astype(np.int64) << 8
            | data[at + 3]
        )

    def _int64_at(self, at: _Places) -> npt.NDArray[np.int64]:
        return self._int32_at(at) << 32 | self._int32_at(at + 4)
