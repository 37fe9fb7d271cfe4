"""The operators of one fragment, run one after the other.

A join of many rows with many can put out far more than went in, and a window over a long partition may change all of its rows. They hand
their output on a piece at a time where one operator alone reads it and takes such pieces (a projection, a filter, an aggregation; the
view's rows, where each key is in one piece): then no more than a piece of it is held. Whatever else reads it gets it whole. What nobody
reads behind the fragment is counted and let go of.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.executors.base import net
from tussock.jobs.executors.operator import Actor, ExpressionError, MakesPieces, TakesPieces
from tussock.jobs.executors.table_replay import StatementRowError
from tussock.jobs.flow.chunk import WEIGHT, empty_chunk
from tussock.jobs.flow.failure import ActorError, ViewFailedError
from tussock.jobs.kernels.errors import KernelError
from tussock.jobs.plan.fragments import Fragment, input_ref
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


def run_operators(
    fragment: Fragment,
    inputs: list[pa.Table],
    tables: Callable[[int], StateTable],
    actor: Actor,
    relation: str,
    number: int,
    read: bool,
) -> Put:
    """What the fragment puts out.

    Args:
        inputs: the chunk of each of its inputs. The list is empty afterwards: no chunk is held longer than an operator has yet to read it.
        tables: the state table of an id.
        relation, number: the fragment's relation and its number, for errors.
        read: whether anybody reads what it puts out.

    Raises: FailedRow where an expression raised on a row, ActorError for other input that stops the epoch; both name the operator.
    """
    held: dict[int, pa.Table | Pieces] = {input_ref(i): chunk for i, chunk in enumerate(inputs)}
    inputs.clear()
    readers = Counter(ref for operator in fragment.operators for ref in operator.inputs)
    taken_in_pieces: set[int] = set()
    by_key: set[int] = set()  # else what goes in one piece may come in another

    def whole(ref: int) -> pa.Table:
        found = held[ref]
        if not isinstance(found, pa.Table):
            pieces = list(found)
            found = pa.concat_tables([empty_chunk(fragment.operators[ref].node.types), *pieces])
            if len(pieces) > 1 and ref in taken_in_pieces and ref not in by_key:
                found = net(found)
            held[ref] = found
        return found

    for place, operator in enumerate(fragment.operators):
        name = operator.node.text().partition(" ")[0]
        executor = operator.node.executor([tables(t) for t in operator.tables], actor)
        only = operator.inputs[0] if len(operator.inputs) == 1 else None
        given = held[only] if only is not None and readers[only] == 1 else None
        pieces = given if given is not None and not isinstance(given, pa.Table) else None
        if pieces is not None and isinstance(executor, TakesPieces) and (only in by_key or not executor.needs_keys):
            held[place] = _named(executor.over(pieces), relation, number, place, name)
            taken_in_pieces.add(place)
            if only in by_key and executor.row_by_row:
                by_key.add(place)
        elif isinstance(executor, MakesPieces):
            held[place] = _named(executor.pieces(*map(whole, operator.inputs)), relation, number, place, name)
            if executor.by_key:
                by_key.add(place)
        else:
            chunks = [whole(ref) for ref in operator.inputs]
        del given, pieces
        readers.subtract(operator.inputs)
        for ref in {ref for ref in operator.inputs if not readers[ref]}:
            del held[ref]
        if place not in held:
            held[place] = next(_named((executor.apply(*chunks) for _ in range(1)), relation, number, place, name))
            chunks.clear()
    last = len(fragment.operators) - 1 if fragment.operators else input_ref(0)
    return Put.of(whole(last)) if read else _counted(fragment, held[last])


def _counted(fragment: Fragment, found: pa.Table | Pieces) -> Put:
    """What nobody reads, counted and let go of."""
    rows = weight = 0
    for piece in (found,) if isinstance(found, pa.Table) else found:
        rows, weight = rows + piece.num_rows, weight + (pc.sum(piece[WEIGHT]).as_py() or 0)
        del piece  # before the next is made
    return Put(empty_chunk(fragment.types), rows, weight)


def _named(pieces: Pieces, relation: str, number: int, operator: int, name: str) -> Pieces:
    """The pieces of an operator; what it raises names the view. `name`: the operator's, as EXPLAIN shows it."""
    try:
        yield from pieces
    except ExpressionError as err:
        raise failed_row(relation, number, operator, err) from err
    except (FailedRow, ActorError, StatementRowError):
        raise  # named already: by the operator that the pieces come from, or by itself
    except (InputError, KernelError) as err:
        raise ViewFailedError(relation, str(err)) from err
    except TussockError:
        raise
    except Exception as err:  # of a library, which met rows that it cannot take
        raise ViewFailedError(relation, f"{name} failed on the rows of this epoch: {cause_of(err)}") from err
