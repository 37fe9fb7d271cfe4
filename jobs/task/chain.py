"""The operators of one fragment, run one after the other.

A join of many rows with many can put out far more than went in. It hands its output on a piece at a time where one operator alone reads it
and takes pieces (a projection, a filter, an aggregation): then no more than a piece of it is held. Whatever else reads it gets it whole.
"""

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from jobs.executors.base import net
from jobs.executors.operator import Actor, ExpressionError, MakesPieces, TakesPieces
from jobs.executors.table_replay import StatementRowError
from jobs.flow.chunk import empty_chunk
from jobs.flow.failure import ActorError, ViewFailedError
from jobs.plan.fragments import Fragment, input_number, is_input
from jobs.wire.failed_row import FailedRow, failed_row
from statestore.errors import InputError
from statestore.table.state_table import StateTable

Pieces = Iterator[pa.Table]


def run_operators(
    fragment: Fragment, inputs: Sequence[pa.Table], tables: Callable[[int], StateTable], actor: Actor, relation: str, number: int
) -> pa.Table:
    """What the fragment puts out.

    Args:
        inputs: the chunk of each of its inputs.
        tables: the state table of an id.
        relation, number: the fragment's relation and its number, for errors.

    Raises: FailedRow where an expression raised on a row, ActorError for other input that stops the epoch; both name the operator.
    """
    results: list[pa.Table | Pieces] = []
    taken_in_pieces: set[int] = set()  # what goes in one piece may come in another

    def whole(ref: int) -> pa.Table:
        if is_input(ref):
            return inputs[input_number(ref)]
        found = results[ref]
        if not isinstance(found, pa.Table):
            pieces = list(found)
            found = pa.concat_tables([empty_chunk(fragment.operators[ref].node.types), *pieces])
            if len(pieces) > 1 and ref in taken_in_pieces:
                found = net(found)
            results[ref] = found
        return found

    for place, operator in enumerate(fragment.operators):
        executor = operator.node.executor([tables(t) for t in operator.tables], actor)
        (only, *others) = operator.inputs or (-1,)
        given = None if others or is_input(only) or _readers(fragment, only) > 1 else results[only]
        if given is not None and not isinstance(given, pa.Table) and isinstance(executor, TakesPieces):
            results.append(_named(executor.over(given), relation, number, place))
            taken_in_pieces.add(place)
        elif isinstance(executor, MakesPieces):
            results.append(_named(executor.pieces(*map(whole, operator.inputs)), relation, number, place))
        else:
            chunks = map(whole, operator.inputs)
            results.append(next(_named((executor.apply(*chunks) for _ in range(1)), relation, number, place)))
    return whole(len(results) - 1) if results else inputs[0]


def _readers(fragment: Fragment, ref: int) -> int:
    return sum(list(operator.inputs).count(ref) for operator in fragment.operators)


def _named(pieces: Pieces, relation: str, number: int, operator: int) -> Pieces:
    """The pieces of an operator; what it raises names it."""
    try:
        yield from pieces
    except ExpressionError as err:
        raise failed_row(relation, number, operator, err) from err
    except (FailedRow, ActorError, StatementRowError):
        raise  # named already: by the operator that the pieces come from, or by itself
    except InputError as err:
        raise ViewFailedError(relation, str(err)) from err
