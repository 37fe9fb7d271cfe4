"""The operators of one fragment, run one after the other.

A join of many rows with many can put out far more than went in, and a window over a long partition may change all of its rows. They hand
their output on a piece at a time where one operator alone reads it and takes such pieces (a projection, a filter, an aggregation; the
view's rows, where each key is in one piece): then no more than a piece of it is held. Whatever else reads it gets it whole. What nobody
reads behind the fragment is counted and let go of.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.executors.base import net
from tussock.jobs.executors.operator import Actor, Executor, ExpressionError, MakesPieces, TakesPieces
from tussock.jobs.executors.table_replay import StatementRowError
from tussock.jobs.flow.chunk import WEIGHT, empty_chunk
from tussock.jobs.flow.failure import ActorError, ViewFailedError
from tussock.jobs.kernels.errors import KernelError
from tussock.jobs.plan.fragments import Fragment, input_ref
from tussock.jobs.plan.schedule import Scheduled
from tussock.jobs.settings.cause import cause_of
from tussock.jobs.wire.failed_row import FailedRow, failed_row
from tussock.statestore.errors import InputError, TussockError
from tussock.statestore.table.state_table import StateTable

Pieces = Iterator[pa.Table]


@dataclass(frozen=True, slots=True)
class Put:
    """What a fragment put out."""

    delta: pa.Table  # without rows where nobody reads it
    rows: int
    weight: int  # of all rows together

    @staticmethod
    def of(delta: pa.Table) -> "Put":
        """All of it, to be read."""
        return Put(delta, delta.num_rows, pc.sum(delta[WEIGHT]).as_py() or 0)


class _Outcome:
    """The output of one operator, or one input: a chunk, or pieces that are taken once.

    Pieces can be `parted`: the rows of one key may lie in several of them and cancel each other out.
    """

    def __init__(
        self, found: pa.Table | Pieces, types: Sequence[str] = (), *, by_key: bool = False, parted: bool = False
    ) -> None:
        """
        Args:
            types: of the columns, needed for pieces.
            by_key: the rows of a key are all in one piece.
        """
        self._found, self._types, self.by_key, self._parted = found, types, by_key, parted

    @property
    def in_pieces(self) -> bool:
        """Whether it still comes in pieces."""
        return not isinstance(self._found, pa.Table)

    def stream(self) -> Pieces:
        """Piece by piece; a chunk is one. Call it once: the outcome is empty afterwards."""
        found, self._found = self._found, iter(())
        return iter((found,)) if isinstance(found, pa.Table) else found

    def whole(self) -> pa.Table:
        """All of it in one chunk."""
        if not isinstance(self._found, pa.Table):
            pieces = list(self._found)
            together = pa.concat_tables([empty_chunk(self._types), *pieces])
            self._found = net(together) if self._parted and len(pieces) > 1 else together
        return self._found


def run_operators(
    scheduled: Scheduled,
    inputs: list[pa.Table],
    tables: Callable[[int], StateTable],
    actor: Actor,
    read: bool,
) -> Put:
    """What the fragment puts out.

    Args:
        inputs: the chunk of each of its inputs. The list is empty afterwards: no chunk is held longer than an operator has yet to read it.
        tables: the state table of an id.
        read: whether anybody reads what it puts out.

    Raises: FailedRow where an expression raised on a row, ActorError for other input that stops the epoch; both name the operator.
    """
    fragment = scheduled.fragment
    assert fragment is not None, "a source's leaf has no operators"
    outcomes = {input_ref(i): _Outcome(chunk) for i, chunk in enumerate(inputs)}
    inputs.clear()
    readers = Counter(ref for operator in fragment.operators for ref in operator.inputs)
    for place, operator in enumerate(fragment.operators):
        types = operator.node.types
        executor = operator.node.executor([tables(t) for t in operator.tables], actor)
        named = partial(_named, scheduled=scheduled, operator=place, name=operator.node.text().partition(" ")[0])
        taken = [outcomes[ref] for ref in operator.inputs]
        streams = len(taken) == 1 and readers[operator.inputs[0]] == 1 and taken[0].in_pieces
        readers.subtract(operator.inputs)
        for ref in {ref for ref in operator.inputs if not readers[ref]}:
            del outcomes[ref]
        if streams and isinstance(executor, TakesPieces) and (taken[0].by_key or not executor.needs_keys):
            by_key = taken[0].by_key and executor.row_by_row
            outcomes[place] = _Outcome(named(executor.over(taken[0].stream())), types, by_key=by_key, parted=not by_key)
        elif isinstance(executor, MakesPieces):
            outcomes[place] = _Outcome(named(executor.pieces(*_wholes(taken))), types, by_key=executor.by_key)
        else:
            outcomes[place] = _Outcome(next(named(_applied(executor, _wholes(taken)))))
    last = outcomes.pop(len(fragment.operators) - 1 if fragment.operators else input_ref(0))
    return Put.of(last.whole()) if read else _counted(fragment, last.stream())


def _wholes(taken: list[_Outcome]) -> list[pa.Table]:
    """Each in one chunk. `taken` is empty afterwards: the caller holds no chunk while an operator reads it."""
    chunks = [outcome.whole() for outcome in taken]
    taken.clear()
    return chunks


def _applied(executor: Executor, chunks: list[pa.Table]) -> Pieces:
    """The output of an operator that takes whole chunks: one piece."""
    yield executor.apply(*chunks)


def _counted(fragment: Fragment, pieces: Pieces) -> Put:
    """What nobody reads, counted and let go of."""
    rows = weight = 0
    for piece in pieces:
        rows, weight = rows + piece.num_rows, weight + (pc.sum(piece[WEIGHT]).as_py() or 0)
        del piece  # before the next is made
    return Put(empty_chunk(fragment.types), rows, weight)


def _named(pieces: Pieces, scheduled: Scheduled, operator: int, name: str) -> Pieces:
    """The pieces of an operator; what it raises names the view. `name`: the operator's, as EXPLAIN shows it."""
    try:
        yield from pieces
    except ExpressionError as err:
        raise failed_row(scheduled.shown, scheduled.id, operator, err) from err
    except (FailedRow, ActorError, StatementRowError):
        raise  # named already: by the operator that the pieces come from, or by itself
    except (InputError, KernelError) as err:
        raise ViewFailedError(scheduled.relation, str(err), scheduled.build) from err
    except TussockError:
        raise
    except Exception as err:  # of a library, which met rows that it cannot take
        cause = f"{name} failed on the rows of this epoch: {cause_of(err)}"
        raise ViewFailedError(scheduled.relation, cause, scheduled.build) from err
