"""Run the operators of one fragment, one after the other.

The output of a many-to-many join can be far larger than its input, and a window over a long partition may change all of
its rows. Such operators emit their output in pieces if it has one reader and that reader accepts pieces: a projection,
a filter, an aggregation, or the view's rows (if each key is in one piece). Then only one piece is in memory at a time.
Other readers get the whole output. Output without a reader is counted and dropped.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.chunks.chunk import WEIGHT, empty_chunk
from tussock.jobs.chunks.failure import ActorError, SourceFileError, ViewFailedError
from tussock.jobs.executors.base import net_chunk
from tussock.jobs.executors.operator import Actor, Executor, ExpressionError, MakesPieces, TakesPieces
from tussock.jobs.executors.table_replay import StatementRowError
from tussock.jobs.kernels.errors import KernelError
from tussock.jobs.plan.fragments import Fragment, input_ref
from tussock.jobs.schedule.schedule import ScheduledFragment
from tussock.jobs.settings.cause import cause_of
from tussock.jobs.wire.failed_row import FailedRow, failed_row
from tussock.statestore.errors import InputError, TussockError
from tussock.statestore.table.state_table import StateTable

Pieces = Iterator[pa.Table]


@dataclass(frozen=True, slots=True)
class FragmentOutput:
    """The output of a fragment."""

    delta: pa.Table  # empty if the output has no reader
    rows: int
    weight: int  # sum over all rows

    @staticmethod
    def of(delta: pa.Table) -> "FragmentOutput":
        """The output as a whole, for its readers."""
        return FragmentOutput(delta, delta.num_rows, pc.sum(delta[WEIGHT]).as_py() or 0)


class _Outcome:
    """The output of one operator, or one input: a chunk, or pieces that can be read once.

    Pieces can be `parted`: the rows of one key may lie in several pieces and cancel each other out.
    """

    def __init__(
        self, content: pa.Table | Pieces, types: Sequence[str] = (), *, by_key: bool = False, parted: bool = False
    ) -> None:
        """
        Args:
            types: column types, needed for pieces.
            by_key: whether all rows of a key are in one piece.
        """
        self._found, self._types, self.by_key, self._parted = content, types, by_key, parted

    @property
    def in_pieces(self) -> bool:
        """Whether it is not a whole chunk yet."""
        return not isinstance(self._found, pa.Table)

    def take_pieces(self) -> Pieces:
        """The pieces; a chunk is one piece. Call it once: the outcome is empty afterwards."""
        content, self._found = self._found, iter(())
        return iter((content,)) if isinstance(content, pa.Table) else content

    def take_whole(self) -> pa.Table:
        """All rows in one chunk."""
        if not isinstance(self._found, pa.Table):
            pieces = list(self._found)
            together = pa.concat_tables([empty_chunk(self._types), *pieces])
            self._found = net_chunk(together) if self._parted and len(pieces) > 1 else together
        return self._found


def run_operators(
    scheduled: ScheduledFragment,
    inputs: list[pa.Table],
    tables: Callable[[int], StateTable],
    actor: Actor,
    read: bool,
) -> FragmentOutput:
    """Run the operators of a fragment and return its output.

    Args:
        inputs: one chunk per input. The list is emptied, so that each chunk is freed after its last reader.
        tables: returns the state table with an id.
        read: whether the output has a reader.

    Raises:
        FailedRow: an expression raised on a row. The error names the operator.
        ActorError: other input stops the epoch. The error names the view.
    """
    fragment = scheduled.fragment
    assert fragment is not None, "a source's leaf has no operators"
    outcomes = {input_ref(i): _Outcome(chunk) for i, chunk in enumerate(inputs)}
    inputs.clear()
    readers = Counter(ref for operator in fragment.operators for ref in operator.inputs)
    for place, operator in enumerate(fragment.operators):
        types = operator.node.types
        executor = operator.node.make_executor([tables(t) for t in operator.tables], actor)
        named = partial(_name_errors, scheduled=scheduled, operator=place)
        taken = [outcomes[ref] for ref in operator.inputs]
        streams = len(taken) == 1 and readers[operator.inputs[0]] == 1 and taken[0].in_pieces
        readers.subtract(operator.inputs)
        for ref in {ref for ref in operator.inputs if not readers[ref]}:
            del outcomes[ref]
        if streams and isinstance(executor, TakesPieces) and (taken[0].by_key or not executor.needs_keys):
            by_key = taken[0].by_key and executor.row_by_row
            outcomes[place] = _Outcome(
                named(executor.process_pieces(taken[0].take_pieces())), types, by_key=by_key, parted=not by_key
            )
        elif isinstance(executor, MakesPieces):
            outcomes[place] = _Outcome(named(executor.make_pieces(*_take_wholes(taken))), types, by_key=executor.by_key)
        else:
            outcomes[place] = _Outcome(next(named(_apply_executor(executor, _take_wholes(taken)))))
    last = outcomes.pop(len(fragment.operators) - 1 if fragment.operators else input_ref(0))
    return FragmentOutput.of(last.take_whole()) if read else _count_output(fragment, last.take_pieces())


def _take_wholes(taken: list[_Outcome]) -> list[pa.Table]:
    """Each outcome as one chunk. Empties `taken`, so that the caller holds no chunk while an operator reads it."""
    chunks = [outcome.take_whole() for outcome in taken]
    taken.clear()
    return chunks


def _apply_executor(executor: Executor, chunks: list[pa.Table]) -> Pieces:
    """The output of an operator that needs whole chunks, as one piece."""
    yield executor.apply(*chunks)


def _count_output(fragment: Fragment, pieces: Pieces) -> FragmentOutput:
    """Count the output without keeping it."""
    rows = weight = 0
    for piece in pieces:
        rows, weight = rows + piece.num_rows, weight + (pc.sum(piece[WEIGHT]).as_py() or 0)
        del piece  # free it before the next one is made
    return FragmentOutput(empty_chunk(fragment.types), rows, weight)


def _name_errors(pieces: Pieces, scheduled: ScheduledFragment, operator: int) -> Pieces:
    """Pass on the pieces of an operator, and add the view to its errors."""
    try:
        yield from pieces
    except ExpressionError as err:
        raise failed_row(scheduled.shown_name, scheduled.id, operator, err) from err
    except (FailedRow, ActorError, StatementRowError, SourceFileError):
        raise  # these already contain their operator, view, statement or source
    except (InputError, KernelError) as err:
        raise ViewFailedError(scheduled.relation, str(err), scheduled.build) from err
    except TussockError:
        raise
    except Exception as err:  # a library's error on rows that it cannot process
        assert scheduled.fragment is not None
        name = scheduled.fragment.operators[operator].node.explain_text().partition(" ")[0]  # as in EXPLAIN
        cause = f"{name} failed on the rows of this epoch: {cause_of(err)}"
        raise ViewFailedError(scheduled.relation, cause, scheduled.build) from err
