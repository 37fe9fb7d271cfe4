"""The leaf of a source on one unit: its parts, read by the engine, and rows that Spark has read, become its output.

source without a key   the rows are the output (source_rows.py)
keyed source           the rows are records, which become changes by key (tussock.jobs.sources.row_changes)
"""

from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.chunks.chunk import WEIGHT, empty_chunk
from tussock.jobs.kernels.kernel import thread_kernel
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.schedule.schedule import ScheduledFragment, Source
from tussock.jobs.sources.base import ByPosition, ReadPart
from tussock.jobs.sources.file_facts import file_of_part, with_hidden
from tussock.jobs.sources.keyed import is_keyed, records_of
from tussock.jobs.sources.pins import PinnedFile
from tussock.jobs.sources.ports import Port
from tussock.jobs.sources.registry import plan_of_source, reader_of
from tussock.jobs.sources.rejects import TYPES as REJECT_TYPES
from tussock.jobs.sources.rejects import quarantines_rejects, split_rejects
from tussock.jobs.sources.row_changes import RowChanges, row_changes
from tussock.jobs.sources.widening import widen_columns
from tussock.jobs.task.chain import FragmentOutput
from tussock.jobs.task.opened import opened_objects
from tussock.jobs.task.source_rows import SourceRows
from tussock.jobs.task.unit_output import FragmentInputSize, UnitOutput
from tussock.jobs.task.vnode_parts import VnodeParts
from tussock.jobs.wire.cell import Address, LeafInput
from tussock.jobs.wire.epoch_task import EpochTask
from tussock.statestore.decoding import decoder_of

_CHANGED_AT_ONCE = 1 << 17  # records of a keyed source

_parts = decoder_of(tuple[msgspec.Raw, ...])
_files = decoder_of(tuple[PinnedFile, ...])


@dataclass(frozen=True, slots=True)
class SourceLeaf:
    """The leaf of a source on one unit.

    Args:
        inbox: the cells of the level on this unit.
        is_read_here: whether another fragment of this unit reads the output.
    """

    task: EpochTask
    unit: int
    scheduled: ScheduledFragment
    source: Source
    inbox: Mapping[Address, list[bytes]]
    is_read_here: bool

    def read_source(self) -> Generator[pa.RecordBatch, None, tuple[UnitOutput, FragmentInputSize]]:
        """Read this unit's parts of a source. A full read returns old and new rows, as the records are not stored.

        Yields: cells of rows that are sent while others are read (vnode_parts.py).
        """
        source = self.source
        statement, reader = source.statement, reader_of(source.statement)
        row_id = ("bigint",) if isinstance(reader.identity(statement), ByPosition) else ()
        fields = records_of(statement).fields
        types = (*(fields[c].type for c in source.columns), *(c.type for c in source.hidden), *row_id)
        undeclared: set[str] = set()
        rejects = [empty_chunk(REJECT_TYPES)]

        def read_new() -> Iterator[pa.Table]:
            for part in self._read_parts(LeafInput.SPLITS, LeafInput.ROWS):
                undeclared.update(part.undeclared)
                if part.rejects is not None:
                    rejects.append(part.rejects)
                yield widen_columns(part.rows, types)

        def read_old() -> Iterator[pa.Table]:  # its files and rejects were reported in earlier epochs
            for part in self._read_parts(LeafInput.BACKFILL, LeafInput.BACKFILL_ROWS):
                yield widen_columns(part.rows, types)

        if is_keyed(statement):
            divided = self._parts_of_changes()
            output, taken = yield from _read_changes(statement, read_new(), rejects, divided)
            return replace(output, undeclared=tuple(sorted(undeclared))), taken
        files = self._files_with_ids()
        groups: dict[int, list[PinnedFile]] = {}
        for file in files.values():
            if file.meets >= 0 and file.meets % self.task.unit_count == self.unit:
                groups.setdefault(file.meets, []).append(file)
        objects = opened_objects(self.task.store_uri)
        rows = SourceRows(types, len(source.columns), files, groups, objects, self.scheduled.parts)
        delta, parts = rows.collect_rows(read_new(), read_old())
        taken = FragmentInputSize(rows.read_rows, rows.read_bytes, matched=rows.new_rows - delta.num_rows)
        fed = {Port.REJECTS: pa.concat_tables(rejects)}
        return UnitOutput(FragmentOutput.of(delta), parts, tuple(sorted(undeclared)), fed), taken

    def _parts_of_changes(self) -> VnodeParts | None:
        """The parts in which the changes of a keyed source are sent; None: they are sent as a whole."""
        if self.is_read_here:
            return None
        exchanges = [exchange for exchange in self.scheduled.exchanges if exchange.needed.port is Port.CHANGES]
        if len(exchanges) != 1:
            return None
        needed = exchanges[0].needed
        return VnodeParts(self.scheduled.id, exchanges[0].index, needed.keys, np.asarray(self.task.unit_of_vnode))

    def _read_parts(self, parts: LeafInput, rows: LeafInput) -> Iterator[ReadPart]:
        """Yield the rows of parts that the engine reads, and those that Spark has read, in an order of their own."""
        source = self.source
        engine = reader_of(source.statement).engine
        most = _CHANGED_AT_ONCE if is_keyed(source.statement) else None
        for chunk in sorted(self.inbox.get(Address.of_leaf(self.scheduled.id, parts), [])):
            assert engine is not None, "Spark reads all input of this source"
            for part in _parts.decode(chunk):
                one = engine.read(source.statement, part, source.columns)
                if not source.hidden:
                    yield one
                    continue
                file = file_of_part(part)
                for piece in _cut_rows(one.rows, most):
                    yield replace(one, rows=with_hidden(piece, file, source.hidden))
                    one = replace(one, rejects=None)  # those of the part are yielded once
        for chunk in sorted(self.inbox.get(Address.of_leaf(self.scheduled.id, rows), [])):
            yield split_rejects(pa.ipc.open_stream(chunk).read_all())

    def _files_with_ids(self) -> dict[int, PinnedFile]:
        """The files whose rows keep ids of other files, or give their ids to other rows, by number."""
        cells = self.inbox.get(Address.of_leaf(self.scheduled.id, LeafInput.FILES), [])
        return {file.number: file for cell in cells for file in _files.decode(cell)}


def _read_changes(
    statement: CreateSource, pieces: Iterable[pa.Table], rejects: list[pa.Table], parts: VnodeParts | None
) -> Generator[pa.RecordBatch, None, tuple[UnitOutput, FragmentInputSize]]:
    """Turn the records of a keyed source into changes, piece by piece: columns such as paths are as long as a row.

    Args:
        rejects: of the reader, which grow as pieces are read.
        parts: sends most changes at once; None: the output contains all changes.
    """
    plan, quarantine = plan_of_source(statement), quarantines_rejects(statement)
    rows = nbytes = weight = 0
    read = list[RowChanges]()
    types = tuple(f.type for f in statement.fields)
    no_changes = empty_chunk((*types, *plan.change_types))
    for piece in pieces:
        rows += piece.num_rows
        nbytes += piece.nbytes
        weight += pc.sum(piece[WEIGHT]).as_py() or 0
        one = row_changes(plan, statement.fields, piece, thread_kernel(), quarantine=quarantine)
        if parts is not None:
            yield from parts.add_rows(one.changes)
            one = replace(one, changes=no_changes)
        read.append(one)
    if parts is not None:
        yield from parts.close()
    begun = (*(types[c] for c in plan.scope), *plan.truncation_types)
    sent_later = parts.rest if parts is not None else [one.changes for one in read]
    changes = pa.concat_tables([no_changes, *sent_later])
    truncations = pa.concat_tables([empty_chunk(begun), *(one.truncations for one in read)])
    fed = {
        Port.REJECTS: pa.concat_tables([*rejects, *(one.rejects for one in read)]),
        Port.CHANGES: changes,
        Port.TRUNCATIONS: truncations,
    }
    return UnitOutput(FragmentOutput(empty_chunk(types), rows, weight), fed=fed), FragmentInputSize(rows, nbytes)


def _cut_rows(rows: pa.Table, most: int | None) -> Iterator[pa.Table]:
    """Cut rows into pieces of at most `most`. Without rows, or a bound, there is one piece."""
    most = most or max(1, rows.num_rows)
    return (rows.slice(start, most) for start in range(0, max(1, rows.num_rows), most))
