"""The schedule of one epoch: every live fragment with its level, and the exchanges between them.

The level of a fragment is 1 + the highest level that it reads through an exchange. A forward input stays on its
producer's level. Leaves (sources and tables) and fragments chained to them run one level before their first reader,
so that their chunks pass through no unnecessary level. All readers of a producer with the same `NeededOutput` share one
exchange.

A relation created in this epoch reads existing relations *in full*: their snapshot at the previous epoch, then this
epoch's changes. A relation that is built over several epochs (tussock.jobs.catalog.builds) reads a `SnapshotPart` in
each: the snapshot of the next vnodes, and this epoch's changes to everything read by then. Such inputs have separate
exchanges.

An existing relation whose input is replaced in this epoch reads the *difference*: its previous rows at weight -1,
netted with the rows of the new input.

A paused view has no fragments here, and nothing that runs reads one.

An epoch that a branch takes from its parent runs only the branch's own relations. A relation of the parent that they
read is a leaf, whose output is *replayed*: the changes of its rows in the parent's SSTs of that epoch.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from tussock.jobs.catalog.definition import SourceDefinition, definition_of, fragments_of, output_of
from tussock.jobs.logical.hidden_columns import HiddenColumn, parted_columns
from tussock.jobs.logical.nodes import Expr
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.plan.fragments import ROW_ID, Dispatch, Fragment, Input
from tussock.jobs.sources.keyed import records_of
from tussock.jobs.sources.ports import Port
from tussock.jobs.sources.registry import plan_of_source
from tussock.statestore.meta.branch import own_ids
from tussock.statestore.meta.catalog import ALL_READ, Build, Catalog, Relation, RelationKind, TableSchema, name_in_build


@dataclass(frozen=True, slots=True, order=True)
class SnapshotPart:
    """The part of a producer that a new reader reads in this epoch.

    It consists of the snapshot at the previous epoch from `first` up to `end` (exclusive), and this epoch's changes
    below `end`. Both count vnodes; for a source, the numbers of taken files.
    """

    first: int
    end: int


IN_FULL = SnapshotPart(0, ALL_READ)


@dataclass(frozen=True, slots=True)
class ReplacedInput:
    """The previous input of a reader whose producer is new: columns of the stored rows of `table`."""

    table: TableSchema
    columns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NeededOutput:
    """The part of a producer's output that a reader needs. Readers with equal needs share one exchange."""

    columns: tuple[int, ...]
    dispatch: Dispatch
    keys: tuple[int, ...] = ()  # into columns
    # It includes the snapshot at the previous epoch. None: all of this epoch's changes and nothing else.
    part: SnapshotPart | None = None
    # Over columns: computed by Spark between the levels (tussock.jobs.plan.fragments.Input).
    project: tuple[Expr, ...] = ()
    replaced: ReplacedInput | None = None  # send the difference to these rows
    port: Port = Port.ROWS  # the output of the producer

    @property
    def is_changes(self) -> bool:
        """Whether it is only columns of this epoch's changes."""
        return self.part is None and self.replaced is None and self.port is Port.ROWS


@dataclass(frozen=True, slots=True)
class Exchange:
    """Columns of a producer's output for readers, and how the rows reach their units."""

    index: int  # unique per producer; the `input` of its cells
    needed: NeededOutput
    last_level: int  # of its deepest reader; levels before that pass it through


@dataclass(frozen=True, slots=True)
class InputOrigin:
    """The origin of one input of a fragment: a producer and its exchange (None: forward, on this unit and level)."""

    producer: int
    exchange: int | None
    needed: NeededOutput
    types: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Source:
    """A source's leaf. Output: the relation's columns at `columns`, then the hidden ones, then `_row_id`."""

    relation_id: int
    statement: CreateSource
    columns: tuple[int, ...]
    hidden: tuple[HiddenColumn, ...] = ()

    @property
    def read_columns(self) -> tuple[int, ...]:
        """`columns` and `hidden`."""
        return (*self.columns, *self.hidden)


@dataclass(frozen=True, slots=True)
class ScheduledFragment:
    """One fragment in this epoch's schedule."""

    id: int
    level: int
    relation_id: int
    relation: str
    kind: RelationKind
    build: bool  # several epochs build it (tussock.jobs.catalog.builds)
    new: bool  # this is its first epoch
    source: Source | None
    fragment: Fragment | None  # None: a source leaf
    tables: tuple[TableSchema, ...]
    origins: tuple[InputOrigin, ...]
    exchanges: tuple[Exchange, ...]
    parts: tuple[SnapshotPart, ...]  # that readers need in addition to the changes
    snapshot_table: TableSchema | None  # the stored rows, if a reader needs them
    must_run: bool  # even without input: new global aggregates, snapshots, deletes, rows that follow the moment
    replayed: TableSchema | None = None  # a leaf whose output is the changes of this table in the epoch

    @property
    def shown_name(self) -> str:
        """The relation's name in texts and counters."""
        return name_in_build(self.relation) if self.build else self.relation


@dataclass(frozen=True, slots=True)
class Schedule:
    """All levels of one epoch in order.

    Within a level, a fragment comes after the fragments that it reads by a forward input.
    """

    levels: tuple[tuple[ScheduledFragment, ...], ...]

    def all_fragments(self) -> Iterable[ScheduledFragment]:
        """All fragments, level by level."""
        for level in self.levels:
            yield from level


@dataclass(slots=True)
class _Entry:
    relation: Relation
    build: bool
    source: Source | None
    fragment: Fragment | None
    inputs: tuple[tuple[int, Input, ReplacedInput | None], ...]  # (producer id, input, its previous input if replaced)
    level: int = 0
    replays: bool = False  # the changes of its stored rows


def make_schedule(catalog: Catalog, epoch: int, before: Catalog | None = None) -> Schedule:
    """The schedule of `epoch` for all live relations of the catalog as of that epoch, except paused views.

    Args:
        before: the catalog of the epoch before, which defines the previous inputs of relations. None: the current ones.

    Cost: proportional to the fragments. Cached for a catalog that has not changed since the epoch before.
    """
    if before is catalog and not any(r.created >= epoch or (r.paused or 0) > epoch for r in catalog.stored_relations()):
        return _standing_schedule(_Standing(catalog))
    return _make_schedule(catalog, epoch, before)


def make_followed_schedule(catalog: Catalog, epoch: int) -> Schedule:
    """The schedule of an epoch that a branch takes from its parent: the branch's relations, and what they read.

    Cost: proportional to the fragments of these relations.
    """
    ids = own_ids(catalog)
    own = [r for r in catalog.live_relations() if r.id in ids and not r.paused_at(epoch) and r.state_tables]
    columns = _source_columns(own)
    read = {i.relation_id for relation in own for f in fragments_of(relation) for i in f.inputs}
    entries: list[_Entry] = []
    output: dict[int, int] = {}
    for relation in catalog.live_relations():
        if relation.id in read and relation.id not in ids:
            definition = definition_of(relation)
            stores_rows = not isinstance(definition, SourceDefinition) or bool(definition.fragments)
            source = None if stores_rows else _leaf_of(relation, definition, columns)  # type: ignore[arg-type]
            output[relation.id] = len(entries)
            entries.append(_Entry(relation, False, source, None, (), replays=stores_rows))
    for relation in own:
        _add_fragments(entries, relation, output, output, {}, build=False)
    _set_levels(entries)
    return _assemble_schedule(entries, _Reading(catalog, epoch, catalog))


@dataclass(frozen=True, slots=True, eq=False)
class _Standing:
    """A catalog compared by identity, because comparing two by value would take as long as a schedule."""

    catalog: Catalog

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Standing) and other.catalog is self.catalog

    def __hash__(self) -> int:
        return id(self.catalog)


@lru_cache(maxsize=4)
def _standing_schedule(of: _Standing) -> Schedule:
    """The schedule of every epoch that does not change the catalog."""
    latest = max((max(r.created, r.paused or 0) for r in of.catalog.stored_relations()), default=0)
    return _make_schedule(of.catalog, latest + 1, of.catalog)


def _make_schedule(catalog: Catalog, epoch: int, before: Catalog | None) -> Schedule:
    relations = tuple(
        r
        for r in catalog.live_relations()
        if not r.paused_at(epoch) and r.kind not in (RelationKind.PLAIN_VIEW, RelationKind.FUNCTION)
    )
    built = tuple(r for build in catalog.builds for r in build.relations if r.kind is RelationKind.VIEW)
    relations, building = (*relations, *built), {r.id for r in built}
    entries: list[_Entry] = []
    output: dict[int, int] = {}  # relation id -> the fragment with its output
    leaves: dict[int, int] = {}  # the same of sources -> the leaf, which has the other ports
    source_columns = _source_columns(relations)
    known = {} if before is None else {r.id: r for r in before.relations}
    for relation in relations:
        definition = definition_of(relation)
        build = relation.id in building
        if isinstance(definition, SourceDefinition):
            output[relation.id] = leaves[relation.id] = len(entries)
            entries.append(_Entry(relation, build, _leaf_of(relation, definition, source_columns), None, ()))
            if not definition.fragments:
                continue
        _add_fragments(entries, relation, output, leaves, _inputs_before(relation, known), build=build)
    _set_levels(entries)
    return _assemble_schedule(entries, _Reading(catalog, epoch, before))


def _add_fragments(
    entries: list[_Entry],
    relation: Relation,
    output: dict[int, int],
    leaves: Mapping[int, int],
    earlier: Mapping[tuple[int, int], ReplacedInput],
    *,
    build: bool,
) -> None:
    """Add the fragments of a relation after those of its inputs. `earlier`: of `_inputs_before`."""
    first = len(entries)
    for number, fragment in enumerate(fragments_of(relation)):
        producers = tuple(
            (
                first + i.fragment
                if i.fragment is not None
                else (output if i.port is Port.ROWS else leaves)[i.relation_id],  # type: ignore[index]
                i,
                earlier.get((number, place)),
            )
            for place, i in enumerate(fragment.inputs)
        )
        entries.append(_Entry(relation, build, None, fragment, producers))
    output[relation.id] = len(entries) - 1


def _leaf_of(relation: Relation, definition: SourceDefinition, columns: Mapping[int, tuple[int, ...]]) -> Source:
    """The leaf of a source. A keyed source reads whole records, the others the columns that readers need."""
    statement = definition.statement
    if definition.fragments:
        columns_read = tuple(range(len(records_of(statement).fields)))
        return Source(relation.id, statement, columns_read, plan_of_source(statement).hidden)
    return Source(relation.id, statement, *parted_columns(columns.get(relation.id, ())))


class _Reading:
    """The parts of existing relations that new relations read."""

    def __init__(self, catalog: Catalog, epoch: int, before: Catalog | None) -> None:
        self.epoch = epoch
        self._now = _by_relation(catalog.builds)
        self._before = _by_relation(() if before is None else before.builds)

    def is_new(self, relation: Relation) -> bool:
        """Whether this is the relation's first epoch."""
        return relation.created == self.epoch and relation.id not in self._before

    def snapshot_part(self, reader: Relation, read: Relation, replaced: ReplacedInput | None) -> SnapshotPart | None:
        """The part that the reader reads of a relation. None: all of its changes and nothing else."""
        now, before = self._now.get(reader.id), self._before.get(reader.id)
        if now is not None or before is not None:
            if read.id in self._now or read.id in self._before:
                return None  # in the same build: it has read everything from the start
            first = 0 if before is None else before.read.get(read.id, 0)
            end = ALL_READ if now is None else now.read.get(read.id, 0)
            return None if first == ALL_READ else SnapshotPart(first, end)
        if reader.created == self.epoch and read.created < self.epoch and read.id != reader.id:
            return IN_FULL
        if replaced is not None and read.id in self._before:
            return IN_FULL  # the whole build replaces the previous input
        return None


def _by_relation(builds: Iterable[Build]) -> dict[int, Build]:
    return {r.id: build for build in builds for r in build.relations}


def _inputs_before(relation: Relation, before: Mapping[int, Relation]) -> dict[tuple[int, int], ReplacedInput]:
    """The previous inputs, by (fragment, input), of a relation that reads other inputs from this epoch on.

    `before`: the relations of the epoch before, by id.
    """
    was_before = before.get(relation.id)
    if was_before is None or was_before is relation or bytes(was_before.definition) == bytes(relation.definition):
        return {}
    return {
        (number, place): ReplacedInput(_stored_table(before[old.relation_id]), old.columns)
        for number, (fragment, was) in enumerate(zip(fragments_of(relation), fragments_of(was_before), strict=True))
        for place, (new, old) in enumerate(zip(fragment.inputs, was.inputs, strict=True))
        if old.relation_id is not None and new.relation_id != old.relation_id
    }


def _source_columns(relations: Iterable[Relation]) -> dict[int, tuple[int, ...]]:
    """The columns that readers need of each relation, by id and without ROW_ID. Only fragments of sources are used."""
    wanted: dict[int, set[int]] = {}
    for relation in relations:
        for fragment in fragments_of(relation):
            for i in fragment.inputs:
                if i.relation_id is not None and i.port is Port.ROWS:
                    wanted.setdefault(i.relation_id, set()).update(c for c in i.columns if c != ROW_ID)
    return {r: tuple(sorted(columns)) for r, columns in wanted.items()}


def _set_levels(entries: list[_Entry]) -> None:
    for entry in entries:  # producers come first
        entry.level = max((entries[p].level + (i.dispatch != Dispatch.FORWARD) for p, i, _ in entry.inputs), default=0)
    readers: dict[int, list[tuple[int, Input]]] = {}
    for index, entry in enumerate(entries):
        for producer, i, _ in entry.inputs:
            readers.setdefault(producer, []).append((index, i))
    for index, entry in enumerate(entries):  # leaves run just before their first reader
        if entry.inputs:
            continue
        chained = _chain_of(index, readers)
        reading = [
            entries[r].level - 1 for c in chained for r, i in readers.get(c, ()) if i.dispatch != Dispatch.FORWARD
        ]
        least = max(0, min(reading, default=0))
        for c in chained:
            entries[c].level = least


def _chain_of(leaf: int, readers: dict[int, list[tuple[int, Input]]]) -> list[int]:
    chain = [leaf]
    for at in chain:
        chain += [r for r, i in readers.get(at, ()) if i.dispatch == Dispatch.FORWARD]
    return chain


def _assemble_schedule(entries: list[_Entry], reading: _Reading) -> Schedule:
    exchanges: dict[int, dict[NeededOutput, Exchange]] = {}
    origins: dict[int, list[InputOrigin]] = {}
    parts: dict[int, set[SnapshotPart]] = {}  # by producer
    take_back: set[int] = set()  # producers that must send deleted rows even without input
    for index, entry in enumerate(entries):
        for producer, i, replaced in entry.inputs:
            above = entries[producer]
            own = i.port is Port.ROWS  # other ports send only new rows, no snapshot
            part = reading.snapshot_part(entry.relation, above.relation, replaced) if own else None
            columns = _stored_positions(i.columns, above.source) if own else i.columns
            if part is not None:
                parts.setdefault(producer, set()).add(part)
            if replaced is not None:
                take_back.add(producer)
            needed = NeededOutput(columns, i.dispatch, i.keys, part, i.project, replaced, i.port)
            number = None
            if i.dispatch != Dispatch.FORWARD:
                known = exchanges.setdefault(producer, {})
                same = known.get(needed)
                number = len(known) if same is None else same.index
                known[needed] = Exchange(
                    number, needed, entry.level if same is None else max(entry.level, same.last_level)
                )
            origins.setdefault(index, []).append(InputOrigin(producer, number, needed, i.types))
    levels: list[list[ScheduledFragment]] = [[] for _ in range(max((e.level for e in entries), default=-1) + 1)]
    for index, entry in enumerate(entries):
        relation = entry.relation
        new = reading.is_new(relation)
        stored = None if entry.source is not None or index not in parts else _stored_table(relation)
        levels[entry.level].append(
            ScheduledFragment(
                id=index,
                level=entry.level,
                relation_id=relation.id,
                relation=relation.name,
                kind=relation.kind,
                build=entry.build,
                new=new,
                source=entry.source,
                fragment=entry.fragment,
                tables=relation.state_tables,
                origins=tuple(origins.get(index, ())),
                exchanges=tuple(exchanges.get(index, {}).values()),
                parts=tuple(sorted(parts.get(index, ()))),
                snapshot_table=stored,
                must_run=any(p.first < p.end for p in parts.get(index, ()) if stored is not None)
                or index in take_back
                or entry.replays
                or _runs_without_input(entry.fragment, new),
                replayed=_stored_table(relation) if entry.replays else None,
            )
        )
    return Schedule(tuple(tuple(level) for level in levels))


def _stored_positions(columns: tuple[int, ...], source: Source | None) -> tuple[int, ...]:
    """Column positions in the producer's output. A source's leaf returns the needed columns and the row id."""
    if source is None:
        return columns
    return tuple(len(source.read_columns) if c == ROW_ID else source.read_columns.index(c) for c in columns)


def _stored_table(relation: Relation) -> TableSchema:
    output = output_of(relation)
    assert output is not None
    return next(t for t in relation.state_tables if t.table_id == output.table_id)


def _runs_without_input(fragment: Fragment | None, new: bool) -> bool:
    operators = () if fragment is None else fragment.operators
    return any((new and o.node.emits_without_input) or o.node.follows_moment for o in operators)
