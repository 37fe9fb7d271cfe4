"""The operators of one fragment, run one after the other.

A join of many rows with many can put out far more than went in. It hands its output on a piece at a time where one operator alone reads it
and takes pieces (a projection, a filter, an aggregation): then no more than a piece of it is held. Whatever else reads it gets it whole,
and lets go of it when it likes where it is the last to read it.
"""

from collections import Counter
from collections.abc import Callable, Iterator

import pyarrow as pa

from jobs.executors.base import net
from jobs.executors.operator import Actor, Consumes, Executor, ExpressionError, MakesPieces, TakesPieces
from jobs.executors.table_replay import StatementRowError
from jobs.flow.chunk import empty_chunk
from jobs.flow.failure import ActorError, ViewFailedError
from jobs.plan.fragments import Fragment, input_ref
from jobs.wire.failed_row import FailedRow, failed_row
from statestore.errors import InputError
from statestore.table.state_table import StateTable

Pieces = Iterator[pa.Table]


def run_operators(
    fragment: Fragment, inputs: list[pa.Table], tables: Callable[[int], StateTable], actor: Actor, relation: str, number: int
) -> pa.Table:
    """What the fragment puts out.

    Args:
        inputs: the chunk of each of its inputs. The list is empty afterwards: no chunk is held longer than an operator has yet to read it.
        tables: the state table of an id.
        relation, number: the fragment's relation and its number, for errors.

    Raises: FailedRow where an expression raised on a row, ActorError for other input that stops the epoch; both name the operator.
    """
    held: dict[int, pa.Table | Pieces] = {input_ref(i): chunk for i, chunk in enumerate(inputs)}
    inputs.clear()
    readers = Counter(ref for operator in fragment.operators for ref in operator.inputs)
    taken_in_pieces: set[int] = set()  # what goes in one piece may come in another

    def whole(ref: int) -> pa.Table:
        found = held[ref]
        if not isinstance(found, pa.Table):
            pieces = list(found)
            found = pa.concat_tables([empty_chunk(fragment.operators[ref].node.types), *pieces])
            if len(pieces) > 1 and ref in taken_in_pieces:
                found = net(found)
            held[ref] = found
        return found

    for place, operator in enumerate(fragment.operators):
        executor = operator.node.executor([tables(t) for t in operator.tables], actor)
        only = operator.inputs[0] if len(operator.inputs) == 1 else None
        given = held[only] if only is not None and readers[only] == 1 else None
        if given is not None and not isinstance(given, pa.Table) and isinstance(executor, TakesPieces):
            held[place] = _named(executor.over(given), relation, number, place)
            taken_in_pieces.add(place)
        elif isinstance(executor, MakesPieces):
            held[place] = _named(executor.pieces(*map(whole, operator.inputs)), relation, number, place)
        else:
            chunks = [whole(ref) for ref in operator.inputs]
        del given
        readers.subtract(operator.inputs)
        for ref in {ref for ref in operator.inputs if not readers[ref]}:
            del held[ref]
        if place not in held:
            held[place] = next(_named((_applied(executor, chunks) for _ in range(1)), relation, number, place))
            chunks.clear()
    return whole(len(fragment.operators) - 1) if fragment.operators else held[input_ref(0)]


def _applied(executor: Executor, chunks: list[pa.Table]) -> pa.Table:
    return executor.consume(chunks) if isinstance(executor, Consumes) else executor.apply(*chunks)


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
