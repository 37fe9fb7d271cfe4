"""Stream nodes: what one executor does, as plain data that is stored in the catalog and sent to actors.

Columns are indices into the input chunk. `types` are the types of the output chunk's columns. State tables are laid out by the executor's
own file (`state_tables(node)`, ids 0) and numbered by the planner, which keeps them next to the node (see jobs.plan.fragments).
"""

import msgspec

from jobs.sql.logical import Expr


class TableReplay(msgspec.Struct, frozen=True, tag=True):
    """Replays the pinned DML entries of one table on its rows; state: the table. Output: the table's changes, all columns."""

    relation_id: int
    key: tuple[int, ...]
    types: tuple[str, ...]


class Project(msgspec.Struct, frozen=True, tag=True):
    """One output column per expression; weights stay."""

    exprs: tuple[Expr, ...]
    types: tuple[str, ...]


class Filter(msgspec.Struct, frozen=True, tag=True):
    """Keeps rows whose condition is true."""

    condition: Expr
    types: tuple[str, ...]


class HashJoin(msgspec.Struct, frozen=True, tag=True):
    """Inner equi-join. Output: left columns, then right columns. State: one table a side, `join key | stream key -> row`."""

    left_types: tuple[str, ...]
    right_types: tuple[str, ...]
    left_keys: tuple[int, ...]
    right_keys: tuple[int, ...]
    null_safe: tuple[bool, ...]
    left_stream_key: tuple[int, ...]
    right_stream_key: tuple[int, ...]
    condition: Expr | None
    types: tuple[str, ...]


class Agg(msgspec.Struct, frozen=True):
    """One aggregate over one column (`arg` None: count rows). `type` is the result's, `arg_type` the argument's."""

    function: str  # Count | Sum | Average | Min | Max
    arg: int | None
    arg_type: str | None
    type: str
    mode: str | None = None


class PartialAgg(msgspec.Struct, frozen=True, tag=True):
    """Pre-aggregation by the sender, before the exchange: one row per key, partial states as columns (see executors.hash_agg). No state."""

    input_types: tuple[str, ...]
    keys: tuple[int, ...]
    calls: tuple[Agg, ...]
    append_only: bool
    types: tuple[str, ...]


class HashAgg(msgspec.Struct, frozen=True, tag=True):
    """Groups. Output: keys, then one column per call; stream key: the keys. With `partial` the input is PartialAgg's output, else raw rows.
    Without keys: a singleton that emits its one row from its first epoch, also when there is no input."""

    input_types: tuple[str, ...]  # of the raw rows, also when partial
    keys: tuple[int, ...]  # into the raw rows; with `partial` the key columns come first
    calls: tuple[Agg, ...]
    input_stream_key: tuple[int, ...]  # into the raw rows
    append_only: bool  # of the input
    partial: bool
    types: tuple[str, ...]


class Order(msgspec.Struct, frozen=True):
    """One ORDER BY column."""

    column: int
    descending: bool
    nulls_last: bool


class TopN(msgspec.Struct, frozen=True, tag=True):
    """Rows offset .. offset+limit of the input in `order`, ties broken by the stream key. Singleton. State: `order | stream key -> row`."""

    order: tuple[Order, ...]
    limit: int
    offset: int
    stream_key: tuple[int, ...]
    types: tuple[str, ...]


class Materialize(msgspec.Struct, frozen=True, tag=True):
    """Keeps the view's rows: state `stream key -> row`; passes the netted changes on to views over this view."""

    relation_id: int
    stream_key: tuple[int, ...]
    distribution: tuple[int, ...]
    types: tuple[str, ...]


Node = TableReplay | Project | Filter | HashJoin | PartialAgg | HashAgg | TopN | Materialize
