"""The schedule of one epoch: every live fragment with its level, and the exchanges between them.

Level of a fragment = 1 + the highest level it reads through an exchange; a forward input stays on its producer's level. Leaves (sources and
tables) and what is chained to them run one level before their first reader, so that their chunks pass through no level for nothing.
One exchange per (producer, columns, dispatch, keys) serves all its readers.

A relation created in this epoch reads existing relations *in full*: their snapshot at the previous epoch, then this epoch's changes.
Such an input has an exchange of its own.

A paused view has no fragment here, and nothing that runs reads one.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from jobs.plan.definition import SourceDefinition, definition_of, fragments_of, output_of
from jobs.plan.fragments import ROW_ID, Dispatch, Fragment, Input, Operator
from jobs.sql.logical import Expr
from jobs.sql.statements import CreateSource
from statestore.meta.catalog import Catalog, Relation, RelationKind, TableSchema


@dataclass(frozen=True, slots=True)
class Exchange:
    """A producer's output on its way: some columns, and how their rows find their units."""

    index: int  # unique per producer; the `input` of its cells
    columns: tuple[int, ...]
    keys: tuple[int, ...]  # into columns
    full: bool  # with the snapshot at the previous epoch
    last_level: int  # of its deepest reader; until there it passes through
    dispatch: Dispatch
    project: tuple[Expr, ...] = ()  # over columns: what Spark makes of the rows on their way (jobs.plan.fragments.Input)


@dataclass(frozen=True, slots=True)
class Feed:
    """Where one input of a fragment comes from: a producer, and its exchange (None: forward, on this unit and level)."""

    producer: int
    exchange: int | None
    columns: tuple[int, ...]
    types: tuple[str, ...]
    full: bool
    project: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """A source's leaf: what to read of its files. Output: the relation's columns at `columns`, then `_row_id`."""

    relation_id: int
    statement: CreateSource
    columns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Scheduled:
    """One fragment in this epoch's schedule."""

    id: int
    level: int
    relation_id: int
    relation: str
    kind: RelationKind
    new: bool  # created in this epoch
    source: Source | None
    fragment: Fragment | None  # None: a source leaf
    tables: tuple[TableSchema, ...]
    feeds: tuple[Feed, ...]
    exchanges: tuple[Exchange, ...]
    snapshot_table: TableSchema | None  # the stored rows, where a reader wants them in full
    must_run: bool  # also without input: a new global aggregate, a snapshot to send, rows that the moment moves


@dataclass(frozen=True, slots=True)
class Schedule:
    """All levels of one epoch, in order; fragments of a level in the order in which forward inputs need them."""

    levels: tuple[tuple[Scheduled, ...], ...]

    def fragments(self) -> Iterable[Scheduled]:
        """All fragments, level by level."""
        for level in self.levels:
            yield from level


@dataclass(slots=True)
class _Entry:
    relation: Relation
    source: Source | None
    fragment: Fragment | None
    inputs: tuple[tuple[int, Input], ...]  # (producer id, input)
    level: int = 0


def schedule(catalog: Catalog, epoch: int) -> Schedule:
    """The schedule of `epoch` for all live relations of the catalog as of that epoch, but for views that are paused."""
    relations = tuple(
        r for r in catalog.live() if not r.paused_at(epoch) and r.kind not in (RelationKind.PLAIN_VIEW, RelationKind.FUNCTION)
    )
    entries: list[_Entry] = []
    output: dict[int, int] = {}  # relation id -> the fragment that puts out its changes
    source_columns = _source_columns(relations)
    for relation in relations:
        definition = definition_of(relation)
        if isinstance(definition, SourceDefinition):
            source = Source(relation.id, definition.statement, source_columns.get(relation.id, ()))
            output[relation.id] = len(entries)
            entries.append(_Entry(relation, source, None, ()))
            continue
        first = len(entries)
        for fragment in fragments_of(relation):
            producers = tuple(
                (first + i.fragment if i.fragment is not None else output[i.relation_id], i)  # type: ignore[index]
                for i in fragment.inputs
            )
            entries.append(_Entry(relation, None, fragment, producers))
        output[relation.id] = len(entries) - 1
    _set_levels(entries)
    return _assemble(entries, epoch)


def _source_columns(relations: Iterable[Relation]) -> dict[int, tuple[int, ...]]:
    """Per relation id the columns that any reader wants (ROW_ID left out); only sources' are looked at."""
    wanted: dict[int, set[int]] = {}
    for relation in relations:
        for fragment in fragments_of(relation):
            for i in fragment.inputs:
                if i.relation_id is not None:
                    wanted.setdefault(i.relation_id, set()).update(c for c in i.columns if c != ROW_ID)
    return {r: tuple(sorted(columns)) for r, columns in wanted.items()}


def _set_levels(entries: list[_Entry]) -> None:
    for entry in entries:  # producers come first
        entry.level = max((entries[p].level + (i.dispatch != Dispatch.FORWARD) for p, i in entry.inputs), default=0)
    readers: dict[int, list[tuple[int, Input]]] = {}
    for index, entry in enumerate(entries):
        for producer, i in entry.inputs:
            readers.setdefault(producer, []).append((index, i))
    for index, entry in enumerate(entries):  # leaves wait for their first reader
        if entry.inputs:
            continue
        chained = _chained(index, readers)
        reading = [entries[r].level - 1 for c in chained for r, i in readers.get(c, ()) if i.dispatch != Dispatch.FORWARD]
        for c in chained:
            entries[c].level = max(0, min(reading, default=0))


def _chained(leaf: int, readers: dict[int, list[tuple[int, Input]]]) -> list[int]:
    found = [leaf]
    for at in found:
        found += [r for r, i in readers.get(at, ()) if i.dispatch == Dispatch.FORWARD]
    return found


def _assemble(entries: list[_Entry], epoch: int) -> Schedule:
    exchanges: dict[int, dict[tuple[object, ...], Exchange]] = {}
    feeds: dict[int, list[Feed]] = {}
    snapshots: set[int] = set()
    for index, entry in enumerate(entries):
        for producer, i in entry.inputs:
            above = entries[producer]
            full = entry.relation.created == epoch and above.relation.created < epoch and above.relation.id != entry.relation.id
            columns = _stored(i.columns, above.source)
            if full and above.source is None:
                snapshots.add(producer)
            number = None
            if i.dispatch != Dispatch.FORWARD:
                known = exchanges.setdefault(producer, {})
                key = (columns, i.dispatch, i.keys, full, i.on_the_way)
                number = known[key].index if key in known else len(known)
                last = max(entry.level, known[key].last_level if key in known else 0)
                known[key] = Exchange(number, columns, i.keys, full, last, i.dispatch, i.on_the_way)
            feeds.setdefault(index, []).append(Feed(producer, number, columns, i.types, full, i.on_the_way))
    levels: list[list[Scheduled]] = [[] for _ in range(max((e.level for e in entries), default=-1) + 1)]
    for index, entry in enumerate(entries):
        relation = entry.relation
        new = relation.created == epoch
        stored = None if entry.source is not None or index not in snapshots else _stored_table(relation)
        levels[entry.level].append(
            Scheduled(
                index,
                entry.level,
                relation.id,
                relation.name,
                relation.kind,
                new,
                entry.source,
                entry.fragment,
                relation.state_tables,
                tuple(feeds.get(index, ())),
                tuple(exchanges.get(index, {}).values()),
                stored,
                stored is not None or (entry.fragment is not None and _runs_without_input(entry.fragment.operators, new)),
            )
        )
    return Schedule(tuple(tuple(level) for level in levels))


def _stored(columns: tuple[int, ...], source: Source | None) -> tuple[int, ...]:
    """Column places in the producer's output; a source's leaf puts out only the columns that are wanted, then the row id."""
    if source is None:
        return columns
    return tuple(len(source.columns) if c == ROW_ID else source.columns.index(c) for c in columns)


def _stored_table(relation: Relation) -> TableSchema:
    output = output_of(relation)
    assert output is not None
    return next(t for t in relation.state_tables if t.table_id == output.table_id)


def _runs_without_input(operators: Iterable[Operator], new: bool) -> bool:
    return any((new and o.node.emits_without_input) or o.node.follows_moment for o in operators)
