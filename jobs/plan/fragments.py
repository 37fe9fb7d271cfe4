"""Fragments: chains of executors that share a distribution, as plain data stored with their view.

A fragment reads *inputs* (changes of other relations, or other fragments of the same view) and runs *operators* in
order. The output of the last operator is the fragment's output. Operators refer to their inputs by number: `r >= 0`
is the output of operator r of the same fragment, `-1 - i` is the fragment's input i (`input_ref`, `is_input`,
`input_number`). References are stored with the view.
"""

from enum import StrEnum

import msgspec

from tussock.jobs.executors.registry import Node
from tussock.jobs.logical.nodes import Expr
from tussock.jobs.sources.ports import Port

ROW_ID = -1  # as an input column from a source: the hidden `_row_id`. Other hidden columns are HiddenColumns


def input_ref(number: int) -> int:
    """The stored reference to a fragment's input."""
    return -1 - number


def is_input(ref: int) -> bool:
    """Whether a reference refers to an input of the fragment. Otherwise it is the number of an operator."""
    return ref < 0


def input_number(ref: int) -> int:
    """The number of the input that a reference refers to. Requires: is_input(ref)."""
    return -1 - ref


class Dispatch(StrEnum):
    """How the rows of an input reach their actor."""

    FORWARD = "forward"  # on the producer's unit and level
    STAY = "stay"  # on the producer's unit at a later level; Spark computes on them in between
    HASH = "hash"  # to the unit of the vnode of their key
    SINGLETON = "singleton"  # to the unit of vnode 0
    BROADCAST = "broadcast"  # to every unit


class Input(msgspec.Struct, frozen=True, omit_defaults=True):
    """One input of a fragment: some columns of a producer's output, and how the rows reach their actor.

    The producer is a relation (`relation_id`), or else fragment `fragment` of the same view. `keys` of a hash
    dispatch are indices into `columns`.

    `project`, if not empty, is computed by Spark between the levels: one expression over `columns` per column that the
    fragment reads, each a Column or a call that Spark computes. `types` are the types of the columns that the
    fragment reads. `port` is an output of the producer.
    """

    relation_id: int | None
    fragment: int | None
    columns: tuple[int, ...]
    types: tuple[str, ...]
    dispatch: Dispatch
    keys: tuple[int, ...] = ()
    project: tuple[Expr, ...] = ()
    port: Port = Port.ROWS


class Operator(msgspec.Struct, frozen=True):
    """An executor: its node, its inputs, and the ids of its state tables."""

    node: Node
    inputs: tuple[int, ...]
    tables: tuple[int, ...] = ()


class Fragment(msgspec.Struct, frozen=True):
    """A chain of executors. One actor per unit runs it; a `singleton` has one actor in all."""

    inputs: tuple[Input, ...]
    operators: tuple[Operator, ...]
    types: tuple[str, ...]  # of the output
    singleton: bool


class Output(msgspec.Struct, frozen=True, omit_defaults=True):
    """A relation's changes as other views see them, and the storage of its rows.

    `types`: the relation's own columns, then hidden columns of its order and its key. Its stored rows begin with them.
    Further columns, such as the positions of a keyed source, are read by its own fragment only.
    `key` is the stream key, and `distribution` the columns by which rows are hashed. Both are indices into `types`;
    an empty distribution is a singleton.

    `is_ordered`: the key of the table begins with the order of the view's ORDER BY, followed by the stream key.
    """

    types: tuple[str, ...]
    key: tuple[int, ...]
    distribution: tuple[int, ...]
    append_only: bool
    table_id: int
    is_ordered: bool = False
