"""Fragments: chains of executors that share a distribution, as plain data stored with their view.

A fragment reads *inputs* (other relations' changes, or other fragments of its own view), runs *operators* in order, and its last operator's
output is the fragment's output. An operator names its inputs by reference: `r >= 0` is the output of operator r of the same fragment,
`-1 - i` is the fragment's input i (`input_ref`, `is_input`, `input_number`). References are stored with the view.
"""

from enum import StrEnum

import msgspec

from tussock.jobs.executors.registry import Node
from tussock.jobs.logical.nodes import Expr
from tussock.jobs.sources.ports import Port

ROW_ID = -1  # as a column of an input from a source: the hidden `_row_id`


def input_ref(number: int) -> int:
    """The reference to the fragment's input of this number, as stored."""
    return -1 - number


def is_input(ref: int) -> bool:
    """Whether a reference is to an input of the fragment; else it is the number of an operator."""
    return ref < 0


def input_number(ref: int) -> int:
    """The number of the input that a reference is to. Requires: is_input(ref)."""
    return -1 - ref


class Dispatch(StrEnum):
    """How the rows of an input find their actor."""

    FORWARD = "forward"  # they stay on the producer's unit and level
    STAY = "stay"  # they stay on the producer's unit, and go to a later level: Spark computes on them in between
    HASH = "hash"  # to the unit of the vnode of their key
    SINGLETON = "singleton"  # to the unit of vnode 0
    BROADCAST = "broadcast"  # to every unit


class Input(msgspec.Struct, frozen=True):
    """One input of a fragment: some columns of what a producer puts out, and how rows find their actor.

    The producer is a relation (`relation_id`) or, when that is None, fragment `fragment` of the same view. `keys` (of a hash dispatch) are
    indices into `columns`.

    `project`, where it is set, is what Spark makes of the rows on their way: one expression over `columns` per column that the
    fragment reads, each a Column or a call that Spark computes. `types` are those of what is read.

    `rejects`, where it is set, is the stored form of the port REJECTS of a source, in the place of its rows (tussock.jobs.sources.ports).
    """

    relation_id: int | None
    fragment: int | None
    columns: tuple[int, ...]
    types: tuple[str, ...]
    dispatch: Dispatch
    keys: tuple[int, ...] = ()
    project: tuple[Expr, ...] | msgspec.UnsetType = (
        msgspec.UNSET
    )  # unset is not stored: definitions from before stay as they are
    rejects: bool | msgspec.UnsetType = msgspec.UNSET  # likewise

    @property
    def on_the_way(self) -> tuple[Expr, ...]:
        """`project`, empty where Spark has no part in it."""
        return () if isinstance(self.project, msgspec.UnsetType) else self.project

    @property
    def port(self) -> Port:
        """Which output of the producer it is."""
        return Port.REJECTS if self.rejects is True else Port.ROWS

    def through(self, port: Port) -> "Input":
        """The same input of another output of the producer."""
        return msgspec.structs.replace(self, rejects=True if port is Port.REJECTS else msgspec.UNSET)


class Operator(msgspec.Struct, frozen=True):
    """An executor: its node, where its chunks come from, and the ids of its state tables."""

    node: Node
    inputs: tuple[int, ...]
    tables: tuple[int, ...] = ()


class Fragment(msgspec.Struct, frozen=True):
    """A chain of executors; one actor per unit runs it, or one in all when `singleton`."""

    inputs: tuple[Input, ...]
    operators: tuple[Operator, ...]
    types: tuple[str, ...]  # of the output
    singleton: bool


class Output(msgspec.Struct, frozen=True):
    """What other views see of a relation's changes, and where its rows are kept.

    `types` are all columns of the stored rows: the relation's own, then hidden columns of its order and its key. `key` is the stream
    key, `distribution` what its rows are hashed by (both indices into `types`; an empty distribution is a singleton).

    `ordered`, if it is set, means that the key of the table begins with the order of the view's ORDER BY, and the stream key follows.
    """

    types: tuple[str, ...]
    key: tuple[int, ...]
    distribution: tuple[int, ...]
    append_only: bool
    table_id: int
    ordered: bool | msgspec.UnsetType = msgspec.UNSET  # unset is not stored: views of earlier releases have no order

    @property
    def is_ordered(self) -> bool:
        """`ordered`, False if it is not set."""
        return self.ordered is True
