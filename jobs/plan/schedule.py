"""The schedule of one epoch: every live fragment with its level, and the exchanges between them.

Level of a fragment = 1 + the highest level it reads through an exchange; a forward input stays on its producer's level. Leaves (sources and
tables) and what is chained to them run one level before their first reader, so that their chunks pass through no level for nothing.
One exchange per producer and `Want` serves all its readers.

A relation created in this epoch reads existing relations *in full*: their snapshot at the previous epoch, then this epoch's changes.
One that is built over several epochs (tussock.jobs.plan.builds) reads a `SnapshotPart` in each: the snapshot of the next vnodes, and
this epoch's changes to all that it has read by then. Such inputs have exchanges of their own.

A relation that goes on, and reads one that takes another's place in this epoch, gets the *difference*: the rows that it read before, at
weight -1, netted with the new one's.

A paused view has no fragment here, and nothing that runs reads one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from tussock.jobs.logical.nodes import Expr
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.plan.definition import SourceDefinition, definition_of, fragments_of, output_of
from tussock.jobs.plan.fragments import ROW_ID, Dispatch, Fragment, Input
from tussock.jobs.sources.ports import Port
from tussock.statestore.meta.catalog import ALL_READ, Build, Catalog, Relation, RelationKind, TableSchema, name_in_build


@dataclass(frozen=True, slots=True, order=True)
class SnapshotPart:
    """What a reader that is new takes of a producer: the snapshot at the previous epoch from `first` up to, not including, `end`, and this
    epoch's changes below `end`. Counted in vnodes, of a source in the numbers of what it has taken."""

    first: int
    end: int


IN_FULL = SnapshotPart(0, ALL_READ)


@dataclass(frozen=True, slots=True)
class Replaced:
    """What a reader read until now in the place of a producer that is new: columns of the stored rows of `table`."""

    table: TableSchema
    columns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Want:
    """The part of a producer's output that a reader wants. Readers that want the same share one exchange."""

    columns: tuple[int, ...]
    dispatch: Dispatch
    keys: tuple[int, ...] = ()  # into columns
    part: SnapshotPart | None = (
        None  # with the snapshot at the previous epoch; None: this epoch's changes alone, all of them
    )
    project: tuple[
        Expr, ...
    ] = ()  # over columns: what Spark makes of the rows on their way (tussock.jobs.plan.fragments.Input)
    replaced: Replaced | None = None  # the difference to these rows is what goes out
    port: Port = Port.ROWS  # the output of the producer

    @property
    def is_changes(self) -> bool:
        """Whether it is some columns of this epoch's changes, and nothing else."""
        return self.part is None and self.replaced is None and self.port is Port.ROWS


@dataclass(frozen=True, slots=True)
class Exchange:
    """A producer's output on its way: some columns, and how their rows find their units."""

    index: int  # unique per producer; the `input` of its cells
    want: Want
    last_level: int  # of its deepest reader; until there it passes through


@dataclass(frozen=True, slots=True)
class Feed:
    """Where one input of a fragment comes from: a producer, and its exchange (None: forward, on this unit and level)."""

    producer: int
    exchange: int | None
    want: Want
    types: tuple[str, ...]


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
    build: bool  # several epochs build it (tussock.jobs.plan.builds)
    new: bool  # this is its first epoch
    source: Source | None
    fragment: Fragment | None  # None: a source leaf
    tables: tuple[TableSchema, ...]
    feeds: tuple[Feed, ...]
    exchanges: tuple[Exchange, ...]
    parts: tuple[SnapshotPart, ...]  # what readers want beside the changes
    snapshot_table: TableSchema | None  # the stored rows, where a reader wants some
    must_run: (
        bool  # also without input: a new global aggregate, a snapshot to send, rows that go, rows that the moment moves
    )

    @property
    def shown(self) -> str:
        """The relation's name for texts and counts."""
        return name_in_build(self.relation) if self.build else self.relation


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
    build: bool
    source: Source | None
    fragment: Fragment | None
    inputs: tuple[tuple[int, Input, Replaced | None], ...]  # (producer id, input, what was read there before)
    level: int = 0


def schedule(catalog: Catalog, epoch: int, before: Catalog | None = None) -> Schedule:
    """The schedule of `epoch` for all live relations of the catalog as of that epoch, but for views that are paused.

    Args:
        before: the catalog of the epoch before, which says what a relation read until now. None: what it reads now.

    Cost: grows with the fragments; nothing for a catalog that stands since the epoch before and was scheduled then.
    """
    if before is catalog and not any(r.created >= epoch or (r.paused or 0) > epoch for r in catalog.stored()):
        return _standing(_Standing(catalog))
    return _schedule(catalog, epoch, before)


@dataclass(frozen=True, slots=True, eq=False)
class _Standing:
    """A catalog, the same only as itself: comparing two would take as long as a schedule."""

    catalog: Catalog

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Standing) and other.catalog is self.catalog

    def __hash__(self) -> int:
        return id(self.catalog)


@lru_cache(maxsize=4)
def _standing(of: _Standing) -> Schedule:
    """The schedule of every epoch that leaves a catalog as it is."""
    latest = max((max(r.created, r.paused or 0) for r in of.catalog.stored()), default=0)
    return _schedule(of.catalog, latest + 1, of.catalog)


def _schedule(catalog: Catalog, epoch: int, before: Catalog | None) -> Schedule:
    relations = tuple(
        r
        for r in catalog.live()
        if not r.paused_at(epoch) and r.kind not in (RelationKind.PLAIN_VIEW, RelationKind.FUNCTION)
    )
    built = tuple(r for build in catalog.builds for r in build.relations if r.kind is RelationKind.VIEW)
    relations, building = (*relations, *built), {r.id for r in built}
    entries: list[_Entry] = []
    output: dict[int, int] = {}  # relation id -> the fragment that puts out its changes
    source_columns = _source_columns(relations)
    known = {} if before is None else {r.id: r for r in before.relations}
    for relation in relations:
        definition = definition_of(relation)
        build = relation.id in building
        if isinstance(definition, SourceDefinition):
            source = Source(relation.id, definition.statement, source_columns.get(relation.id, ()))
            output[relation.id] = len(entries)
            entries.append(_Entry(relation, build, source, None, ()))
            continue
        first, earlier = len(entries), _inputs_before(relation, known)
        for number, fragment in enumerate(fragments_of(relation)):
            producers = tuple(
                (
                    first + i.fragment if i.fragment is not None else output[i.relation_id],  # type: ignore[index]
                    i,
                    earlier.get((number, place)),
                )
                for place, i in enumerate(fragment.inputs)
            )
            entries.append(_Entry(relation, build, None, fragment, producers))
        output[relation.id] = len(entries) - 1
    _set_levels(entries)
    return _assemble(entries, _Reading(catalog, epoch, before))


class _Reading:
    """What relations that are new take of those that are there."""

    def __init__(self, catalog: Catalog, epoch: int, before: Catalog | None) -> None:
        self.epoch = epoch
        self._now = _by_relation(catalog.builds)
        self._before = _by_relation(() if before is None else before.builds)

    def is_new(self, relation: Relation) -> bool:
        """Whether this is the relation's first epoch."""
        return relation.created == self.epoch and relation.id not in self._before

    def part(self, reader: Relation, read: Relation, replaced: Replaced | None) -> SnapshotPart | None:
        """What the reader takes of a relation; None: its changes alone, all of them."""
        now, before = self._now.get(reader.id), self._before.get(reader.id)
        if now is not None or before is not None:
            if read.id in self._now or read.id in self._before:
                return None  # of the same build: it has had all of it from the start
            first = 0 if before is None else before.read.get(read.id, 0)
            end = ALL_READ if now is None else now.read.get(read.id, 0)
            return None if first == ALL_READ else SnapshotPart(first, end)
        if reader.created == self.epoch and read.created < self.epoch and read.id != reader.id:
            return IN_FULL
        if replaced is not None and read.id in self._before:
            return IN_FULL  # what it read until now gives way to all that was built
        return None


def _by_relation(builds: Iterable[Build]) -> dict[int, Build]:
    return {r.id: build for build in builds for r in build.relations}


def _inputs_before(relation: Relation, before: Mapping[int, Relation]) -> dict[tuple[int, int], Replaced]:
    """By (fragment, input): what the relation read until now if it reads another from this epoch on. `before`: the relations of
    the epoch before, by id."""
    was_before = before.get(relation.id)
    if was_before is None or was_before is relation or bytes(was_before.definition) == bytes(relation.definition):
        return {}
    return {
        (number, place): Replaced(_stored_table(before[old.relation_id]), old.columns)
        for number, (fragment, was) in enumerate(zip(fragments_of(relation), fragments_of(was_before), strict=True))
        for place, (new, old) in enumerate(zip(fragment.inputs, was.inputs, strict=True))
        if old.relation_id is not None and new.relation_id != old.relation_id
    }


def _source_columns(relations: Iterable[Relation]) -> dict[int, tuple[int, ...]]:
    """Per relation id the columns that any reader wants (ROW_ID left out); only sources' are looked at."""
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
    for index, entry in enumerate(entries):  # leaves wait for their first reader
        if entry.inputs:
            continue
        chained = _chained(index, readers)
        reading = [
            entries[r].level - 1 for c in chained for r, i in readers.get(c, ()) if i.dispatch != Dispatch.FORWARD
        ]
        for c in chained:
            entries[c].level = max(0, min(reading, default=0))


def _chained(leaf: int, readers: dict[int, list[tuple[int, Input]]]) -> list[int]:
    found = [leaf]
    for at in found:
        found += [r for r, i in readers.get(at, ()) if i.dispatch == Dispatch.FORWARD]
    return found


def _assemble(entries: list[_Entry], reading: _Reading) -> Schedule:
    exchanges: dict[int, dict[Want, Exchange]] = {}
    feeds: dict[int, list[Feed]] = {}
    parts: dict[int, set[SnapshotPart]] = {}  # by producer
    take_back: set[int] = set()  # producers that send what goes, also where nothing comes
    for index, entry in enumerate(entries):
        for producer, i, replaced in entry.inputs:
            above = entries[producer]
            own = i.port is Port.ROWS  # other ports put out news alone: nothing of what was taken before
            part = reading.part(entry.relation, above.relation, replaced) if own else None
            columns = _stored(i.columns, above.source) if own else i.columns
            if part is not None:
                parts.setdefault(producer, set()).add(part)
            if replaced is not None:
                take_back.add(producer)
            want = Want(columns, i.dispatch, i.keys, part, i.on_the_way, replaced, i.port)
            number = None
            if i.dispatch != Dispatch.FORWARD:
                known = exchanges.setdefault(producer, {})
                same = known.get(want)
                number = len(known) if same is None else same.index
                known[want] = Exchange(number, want, entry.level if same is None else max(entry.level, same.last_level))
            feeds.setdefault(index, []).append(Feed(producer, number, want, i.types))
    levels: list[list[Scheduled]] = [[] for _ in range(max((e.level for e in entries), default=-1) + 1)]
    for index, entry in enumerate(entries):
        relation = entry.relation
        new = reading.is_new(relation)
        stored = None if entry.source is not None or index not in parts else _stored_table(relation)
        levels[entry.level].append(
            Scheduled(
                index,
                entry.level,
                relation.id,
                relation.name,
                relation.kind,
                entry.build,
                new,
                entry.source,
                entry.fragment,
                relation.state_tables,
                tuple(feeds.get(index, ())),
                tuple(exchanges.get(index, {}).values()),
                tuple(sorted(parts.get(index, ()))),
                stored,
                any(p.first < p.end for p in parts.get(index, ()) if stored is not None)
                or index in take_back
                or _runs_without_input(entry.fragment, new),
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


def _runs_without_input(fragment: Fragment | None, new: bool) -> bool:
    operators = () if fragment is None else fragment.operators
    return any((new and o.node.emits_without_input) or o.node.follows_moment for o in operators)
