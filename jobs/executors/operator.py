"""The interface of an operator: the properties of its node, and the context that an actor gives its executor.

An operator is one file in this folder. It contains the operator's *node* and its *executor*. The node is plain data
that is stored in the catalog and sent to actors: a msgspec struct whose tag is its class name without "Node" (the
logical plan uses that name too). The node answers all questions of planning, EXPLAIN and error messages, so that their
code treats all operators alike. `registry.py` lists the nodes, and mypy checks each of them against `OperatorNode`.

In a node, columns are indexes into the input chunk. For a join, the left columns come first, then the right ones.
`types` are the types of the output columns. State tables have id 0. The planner numbers them and stores the numbers
next to the node (tussock.jobs.plan.fragments).
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, Protocol

import msgspec
import pyarrow as pa

from tussock.jobs.chunks.chunk import WEIGHT
from tussock.jobs.executors.unbounded import UnboundedCost
from tussock.jobs.kernels.errors import RowError
from tussock.jobs.kernels.kernel import Kernel
from tussock.jobs.logical.expression_text import expression_text
from tussock.jobs.logical.nodes import Expr
from tussock.jobs.logical.statements import RowChange
from tussock.statestore.errors import InputError
from tussock.statestore.meta.catalog import TableSchema
from tussock.statestore.months import shown_at
from tussock.statestore.table.state_table import StateTable


@dataclass(frozen=True, slots=True)
class PassedColumn:
    """An output column that is an unchanged input column, or NULL if an outer join pads it."""

    column: int


@dataclass(frozen=True, slots=True)
class ComputedColumn:
    """An output column that the operator computes.

    `text` is its expression over input columns `c{i}`; empty for state only.
    """

    text: str


@dataclass(frozen=True, slots=True)
class Own:
    """The relation's column at this index. Beyond its last column: the input's column at this index."""

    column: int


Origin = PassedColumn | ComputedColumn | Own


class Entry(msgspec.Struct, frozen=True):
    """One row change of the log, with its position.

    `before`: rows that the same entry gave its table before this change.
    """

    position: int
    statement: RowChange
    before: int = 0


def _no_rows(name: str) -> pa.Table:
    raise KeyError(name)


def _seal_nothing(tables: Sequence[StateTable]) -> None:
    pass


class VnodePart(NamedTuple):
    """The rows of an input whose vnodes are in a range, as a chunk; None: there are none."""

    vnodes: range
    rows: pa.Table | None


@dataclass(frozen=True, slots=True)
class Actor:
    """The context in which an executor runs."""

    kernel: Kernel
    vnodes: Sequence[int] = ()  # the actor's vnodes, ascending
    vnode_count: int = 0
    entries: Sequence[Entry] = ()  # row changes of the fragment's table, in log order
    payload: Callable[[str], pa.Table] = _no_rows  # name of the object of an Insert or a Change -> its rows
    new: bool = False  # whether this is the relation's first epoch
    moment_before: int = 0  # value of now() in views in the previous epoch, Unix microseconds
    moment: int = 0  # the same for this epoch
    counters: Counter[str] = field(default_factory=Counter)  # that an executor reports to the driver
    # Further rows of its first input, if these are many, in parts that cover all vnodes. Call it once.
    parts: Callable[[], Iterator[VnodePart]] | None = None
    # Seals the larger of these tables while the executor goes on, so that the MemTables of a large epoch are bounded.
    # Requires: in this epoch, the executor neither reads nor writes again a key that it has written.
    seal_written: Callable[[Sequence[StateTable]], None] = _seal_nothing


class Executor(Protocol):
    """One operator of one actor. Its state is in its StateTables, which the caller seals at the end of the epoch."""

    def apply(self, *chunks: pa.Table) -> pa.Table:
        """Process one chunk (tussock.jobs.chunks.chunk) per input for the epoch, and return the netted output change.

        Raises: ExpressionError if an expression of the node raises on a row.
        """
        ...


class MakesPieces(ABC):
    """An executor that can return its output in pieces, so that only one piece is in memory.

    `by_key`: whether all rows of a stream key, deleted and inserted, are in one piece.
    """

    by_key = False

    @abstractmethod
    def make_pieces(self, *chunks: pa.Table) -> Iterator[pa.Table]:
        """Like `apply`, in pieces. The state is written after the last piece has been consumed."""


class TakesPieces(ABC):
    """An executor with one input that can process it in pieces, one by one unless it overrides `process_pieces`.

    `row_by_row`: whether it processes each row separately, so that pieces by key stay pieces by key.
    `needs_keys`: whether it requires pieces by key.
    """

    row_by_row = needs_keys = False

    @abstractmethod
    def apply(self, *chunks: pa.Table) -> pa.Table:
        """See Executor."""

    def process_pieces(self, pieces: Iterator[pa.Table]) -> Iterator[pa.Table]:
        """Like `apply` on all pieces together."""
        return map(self.apply, pieces)  # map holds no piece while it waits for the next one


class OperatorNode(Protocol):
    """The operator's properties for the planner."""

    @property
    def types(self) -> tuple[str, ...]:
        """The types of the output's columns."""
        ...

    @property
    def operator_name(self) -> str:
        """Its name in errors and in the catalog."""
        ...

    @property
    def keeps_relation(self) -> bool:
        """Whether its only state table contains the relation's rows, for readers."""
        ...

    @property
    def emits_without_input(self) -> bool:
        """Whether it has rows without any input, as a global aggregate does."""
        ...

    @property
    def follows_moment(self) -> bool:
        """Whether its rows depend on the epoch's moment, so that it runs in every epoch, even without input."""
        ...

    def state_tables(self) -> tuple[TableSchema, ...]:
        """Its state tables with id 0, in the executor's order. Raises UnsupportedTypeError."""
        ...

    def column_origins(self) -> tuple[Origin, ...]:
        """The origin of each output column."""
        ...

    def expressions(self) -> tuple[Expr, ...]:
        """All expressions that may raise on a row. An ExpressionError contains an index into them."""
        ...

    def dry_run(self, kernel: Kernel) -> None:
        """Compute its kernels over no rows. Raises UnsupportedExpressionError for one that DuckDB does not accept."""
        ...

    def explain_text(self) -> str:
        """One line for EXPLAIN. Equal nodes have equal texts."""
        ...

    def describe_cost(self) -> str:
        """The cost of an epoch, for EXPLAIN, in rows read and computed: `changed rows + touched groups`."""
        ...

    def unbounded_costs(self) -> tuple[UnboundedCost, ...]:
        """The costs that follow the stored rows, not the changed ones. Empty for most nodes."""
        ...

    def make_executor(self, tables: Sequence[StateTable], actor: Actor) -> Executor:
        """Build the executor over the state tables of `state_tables`. Reads nothing."""
        ...


class _HasTypes(Protocol):
    @property
    def types(self) -> tuple[str, ...]: ...


class PlainNode(msgspec.Struct, frozen=True, tag=True):
    """The default properties of a node, which nodes override."""

    keeps_relation: ClassVar[bool] = False
    follows_moment: ClassVar[bool] = False

    @property
    def operator_name(self) -> str:
        return str(self.__struct_config__.tag)

    @property
    def emits_without_input(self) -> bool:
        return False

    def state_tables(self) -> tuple[TableSchema, ...]:
        return ()

    def expressions(self) -> tuple[Expr, ...]:
        return ()

    def dry_run(self, kernel: Kernel) -> None:
        kernel.dry_run(self.expressions())

    def column_origins(self: _HasTypes) -> tuple[Origin, ...]:
        return tuple(PassedColumn(i) for i in range(len(self.types)))

    def describe_cost(self) -> str:
        return "changed rows"

    def unbounded_costs(self) -> tuple[UnboundedCost, ...]:
        return ()


class ExpressionError(InputError):
    """An expression of an operator raised on a row, as Spark does in ANSI mode.

    `expression` is its index among the node's expressions. `rows` are the rows on which it was computed (the columns
    that the operator reads, with or without weights). `row` is the index of the first row on which it raised.
    """

    expression: int
    text: str
    reason: str
    rows: pa.Table
    row: int

    def __str__(self) -> str:
        return f"expression {self.text} raised: {self.reason}. The row: ({show_row(rows_alone(self.rows), self.row)})."


def expression_error(err: RowError, expression: int, expr: Expr, rows: pa.Table) -> ExpressionError:
    """Convert a kernel's error over `rows` to the error of a node's expression."""
    return ExpressionError(expression, expression_text(expr), err.reason, rows, err.row)


def rows_alone(rows: pa.Table) -> pa.Table:
    """The rows without the weight column, if there is one."""
    return rows.drop_columns([WEIGHT]) if WEIGHT in rows.column_names else rows


def show_row(rows: pa.Table, row: int) -> str:
    """Format one row for a message, e.g. `7, 'east', NULL`."""
    return ", ".join(shown_values(rows, row))


def shown_values(rows: pa.Table, row: int) -> list[str]:
    """Format the values of one row for a message, e.g. `7`, `'east'`, `NULL`."""
    return [_format_value(column, shown_at(column, row)) for column in rows.columns]


def _format_value(column: pa.ChunkedArray, value: object) -> str:
    quoted = pa.types.is_string(column.type) or pa.types.is_binary(column.type)
    return "NULL" if value is None else repr(value) if quoted else str(value)


def column_list(columns: Sequence[int]) -> str:
    """Format columns for EXPLAIN, e.g. `c0, c4`."""
    return ", ".join(f"c{c}" for c in columns)
