"""The face of an operator: what its node says of itself, and what an actor gives its executor.

An operator is one file of this room. The file holds its *node* (plain data that is stored in the catalog and sent to actors, a msgspec
struct whose tag is its class name, without `Node`, which tells it from the logical plan's node of that name) and its *executor*. The node
answers every question that planning, EXPLAIN and error messages have, so that none of them knows one operator from another. `registry.py`
lists the nodes; mypy holds each of them to `OperatorNode`.

In a node columns are indices into the input chunk, of a join into the left columns followed by the right ones; `types` are the types of the
output's columns. State tables have id 0; the planner numbers them and keeps the numbers next to the node (tussock.jobs.plan.fragments).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec
import pyarrow as pa

from tussock.jobs.flow.chunk import WEIGHT
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
class Passed:
    """An output column that is an input's column, unchanged (or NULL, where an outer join pads it)."""

    column: int


@dataclass(frozen=True, slots=True)
class Computed:
    """An output column that the operator computes; `text` says how, over columns `c{i}` of the input. Empty: a state that nobody reads."""

    text: str


@dataclass(frozen=True, slots=True)
class Own:
    """The relation's own column at this place; after its last one, the input's column at this place."""

    column: int


Origin = Passed | Computed | Own


class Entry(msgspec.Struct, frozen=True):
    """One row change of the log, with its position there; before it the same entry gave its table `before` rows."""

    position: int
    statement: RowChange
    before: int = 0


def _no_rows(name: str) -> pa.Table:
    raise KeyError(name)


@dataclass(frozen=True, slots=True)
class Actor:
    """What an executor knows of the actor that runs it."""

    kernel: Kernel
    vnodes: Sequence[int] = ()  # the actor's own, ascending
    vnode_count: int = 0
    entries: Sequence[Entry] = ()  # row changes of the log, of the fragment's table, in log order
    payload: Callable[[str], pa.Table] = _no_rows  # the object of an Insert or a Change -> its rows
    new: bool = False  # this is the first epoch of the relation
    moment_before: int = 0  # of the epoch before: what now() meant in views, Unix microseconds
    moment: int = 0  # of this epoch


class Executor(Protocol):
    """One operator of one actor. Its state is in the StateTables it was built with; the caller seals them when the epoch is done."""

    def apply(self, *chunks: pa.Table) -> pa.Table:
        """Take one chunk per input (tussock.jobs.flow.chunk), all of the epoch, and return what changes downstream, netted.

        Raises: ExpressionError where an expression of the node raises on a row.
        """
        ...


class MakesPieces(ABC):
    """An executor that can hand its output on a piece at a time, so that not all of it is held.

    `by_key`: whether all rows of a stream key are in one piece, those that go and those that come.
    """

    by_key = False

    @abstractmethod
    def pieces(self, *chunks: pa.Table) -> Iterator[pa.Table]:
        """As `apply`, in pieces. The state is written when the last one has been taken."""


class TakesPieces(ABC):
    """An executor of one input that can take it a piece at a time.

    `row_by_row`: whether it looks at each row by itself, so that pieces by key stay such.
    `needs_keys`: whether it can take only pieces by key.
    """

    row_by_row = needs_keys = False

    @abstractmethod
    def over(self, pieces: Iterator[pa.Table]) -> Iterator[pa.Table]:
        """As `apply` of the pieces put together."""


class OperatorNode(Protocol):
    """What the plan knows of an operator."""

    @property
    def types(self) -> tuple[str, ...]:
        """The types of the output's columns."""
        ...

    @property
    def operator_name(self) -> str:
        """Its name in errors; it is stored with this name."""
        ...

    @property
    def keeps_relation(self) -> bool:
        """Whether its one state table holds the rows of the relation itself, where readers find them."""
        ...

    @property
    def emits_without_input(self) -> bool:
        """Whether it has rows before anything came in, as a global aggregate has."""
        ...

    @property
    def follows_moment(self) -> bool:
        """Whether its rows come and go as epochs' moments pass, so that it runs in every epoch, also without input."""
        ...

    def state_tables(self) -> tuple[TableSchema, ...]:
        """The layout of its state, in the order in which the executor takes the tables, with ids 0. Raises UnsupportedTypeError."""
        ...

    def lineage(self) -> tuple[Origin, ...]:
        """Where each output column comes from."""
        ...

    def expressions(self) -> tuple[Expr, ...]:
        """Every expression that may raise on a row. An ExpressionError names one by its index here."""
        ...

    def text(self) -> str:
        """One line for EXPLAIN; equal nodes give equal text."""
        ...

    def cost(self) -> str:
        """What an epoch costs here, in the rows that are read and computed, for EXPLAIN: `changed rows + touched groups`."""
        ...

    def executor(self, tables: Sequence[StateTable], actor: Actor) -> Executor:
        """The executor over the state tables that `state_tables` lays out. Makes no read."""
        ...


class PlainNode(msgspec.Struct, frozen=True, tag=True):
    """What most operators say of themselves. A node that can say more has its own answer."""

    @property
    def operator_name(self) -> str:
        return str(self.__struct_config__.tag)

    @property
    def keeps_relation(self) -> bool:
        return False

    @property
    def emits_without_input(self) -> bool:
        return False

    @property
    def follows_moment(self) -> bool:
        return False

    def state_tables(self) -> tuple[TableSchema, ...]:
        return ()

    def expressions(self) -> tuple[Expr, ...]:
        return ()


class ExpressionError(InputError):
    """An expression of an operator raised on a row, as Spark in ANSI mode would.

    `expression` is its index among the node's expressions. `rows` are what it was computed over (the columns that the operator reads, with
    or without weights) and `row` the place of the first row that it raised on.
    """

    def __init__(self, expression: int, text: str, reason: str, rows: pa.Table, row: int) -> None:
        super().__init__(expression, text, reason, rows, row)
        self.expression, self.text, self.reason, self.rows, self.row = expression, text, reason, rows, row

    def __str__(self) -> str:
        return f"expression {self.text} raised: {self.reason}. The row: ({show_row(rows_alone(self.rows), self.row)})."


def expression_error(err: RowError, expression: int, expr: Expr, rows: pa.Table) -> ExpressionError:
    """The error of a node's expression for what the kernel raised over `rows`."""
    return ExpressionError(expression, expression_text(expr), err.reason, rows, err.row)


def rows_alone(rows: pa.Table) -> pa.Table:
    """Rows without weights, whether they had any or not."""
    return rows.drop_columns([WEIGHT]) if WEIGHT in rows.column_names else rows


def show_row(rows: pa.Table, row: int) -> str:
    """One row as a person reads it: `7, 'east', NULL`."""
    values = [shown_at(column, row) for column in rows.columns]
    return ", ".join("NULL" if v is None else repr(v) if isinstance(v, str | bytes) else str(v) for v in values)


def column_list(columns: Sequence[int]) -> str:
    """Columns as EXPLAIN shows them: `c0, c4`."""
    return ", ".join(f"c{c}" for c in columns)
