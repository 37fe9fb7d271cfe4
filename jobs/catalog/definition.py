"""The definitions of relations, as the catalog stores them."""

from collections.abc import Iterable, Mapping
from functools import lru_cache

import msgspec

from tussock.jobs.catalog.difference import Create
from tussock.jobs.executors.unbounded import UnboundedCost
from tussock.jobs.logical.nodes import Plan
from tussock.jobs.logical.relation_names import relation_key
from tussock.jobs.logical.statements import CreateFunction, CreatePlainView, CreateSource, CreateTable, CreateView
from tussock.jobs.plan.fragments import Fragment, Output
from tussock.statestore.decoding import decoder_of
from tussock.statestore.errors import InputError, did_you_mean
from tussock.statestore.meta.catalog import Catalog, Relation, RelationKind, written_names


class SourceDefinition(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A source, and the state table of the files taken from it."""

    statement: CreateSource  # would create it in its current form
    taken_table_id: int
    created: CreateSource | None = None  # its original CREATE, if it was altered since
    ran: tuple[str, ...] = ()  # the names of statements that ran once on it
    fragments: tuple[Fragment, ...] = ()  # of a keyed source: they maintain its rows
    output: Output | None = None  # the storage of its rows; None: it stores none


class TableDefinition(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A table and the fragment that replays its changes."""

    statement: CreateTable  # would create it in its current form
    fragments: tuple[Fragment, ...]
    output: Output
    created: CreateTable | None = None  # its original CREATE, if it was altered since
    ran: tuple[str, ...] = ()  # the names of statements that ran once on it
    rejects_of: int | None = (
        None  # the source that feeds it, if any (tussock.jobs.catalog.fed_tables); the name is older than other ports
    )

    def with_alteration(self, to: CreateTable) -> "TableDefinition":
        """The definition after an ALTER of the table."""
        return msgspec.structs.replace(self, statement=to, created=self.created or self.statement)


class ViewDefinition(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A view: its SELECT as written, as bound, and as fragments. `columns` is the column list of its statement."""

    sql: str
    plan: Plan
    fragments: tuple[Fragment, ...]
    output: Output
    columns: tuple[str, ...] = ()
    written: str = ""  # see `digest_under`


class PlainViewDefinition(msgspec.Struct, frozen=True, tag=True):
    """A plain view: a name for a query. Nothing is stored."""

    statement: CreatePlainView


class FunctionDefinition(msgspec.Struct, frozen=True, tag=True):
    """A Python function of the user, with its code."""

    statement: CreateFunction


Definition = SourceDefinition | TableDefinition | ViewDefinition | PlainViewDefinition | FunctionDefinition
_WithoutRows = PlainViewDefinition | FunctionDefinition

#: The words after CREATE and DROP, by the kind of relation.
KEYWORDS: Mapping[str, str] = {
    RelationKind.SOURCE: "SOURCE",
    RelationKind.TABLE: "TABLE",
    RelationKind.VIEW: "MATERIALIZED VIEW",
    RelationKind.PLAIN_VIEW: "VIEW",
    RelationKind.FUNCTION: "FUNCTION",
}

_decoder: msgspec.json.Decoder[Definition] = decoder_of(Definition)


class UnknownRelationError(InputError):
    """No relation has this name (and kind)."""

    name: str
    expected: str
    existing: tuple[str, ...]
    building: str = ""  # the start and progress of a view with this name that is being built over several epochs

    def __str__(self) -> str:
        if self.building:
            return (
                f"view {self.name!r} is being built {self.building}. The epoch that finishes the build makes it "
                "visible."
            )
        existing = written_names(self.existing)
        near = did_you_mean(self.name, existing)
        there = ", ".join(existing) or "none yet"
        return f"there is no {self.expected} {self.name!r}; those that exist: {there}{near and '.'}{near}"


def definition_of(relation: Relation) -> Definition:
    """The relation's decoded definition, cached per process, since every epoch needs all of them several times."""
    return _decode_definition(bytes(relation.definition))


@lru_cache(maxsize=4096)
def _decode_definition(definition: bytes) -> Definition:
    return _decoder.decode(definition)


def source_of(relation: Relation) -> CreateSource | None:
    """The statement of a source; None for tables and views."""
    definition = definition_of(relation) if relation.kind is RelationKind.SOURCE else None
    return definition.statement if isinstance(definition, SourceDefinition) else None


def stores_rows(relation: Relation) -> bool:
    """Whether a relation has rows of its own, as tables, views and keyed sources do."""
    return output_of(relation) is not None


def output_of(relation: Relation) -> Output | None:
    """The storage of a relation's rows. None if it stores none: a source without a key, a plain view or a function."""
    definition = definition_of(relation)
    return None if isinstance(definition, _WithoutRows) else definition.output


def functions_of(relations: Iterable[Relation]) -> tuple[CreateFunction, ...]:
    """The Python functions among these relations, with their code."""
    definitions = (definition_of(r) for r in relations if r.kind is RelationKind.FUNCTION)
    return tuple(d.statement for d in definitions if isinstance(d, FunctionDefinition))


def find_relation(catalog: Catalog, name: str, *kinds: str) -> Relation:
    """The live relation with this name and one of the kinds (none given: any kind). Raises UnknownRelationError."""
    fitting = [r for r in catalog.live_relations() if not kinds or r.kind in kinds]
    key = relation_key(name)
    for relation in fitting:
        if relation.name == key:
            return relation
    building = next((b.progress for b in catalog.builds if any(r.name == key for r in b.relations)), "")
    raise UnknownRelationError(name, " or ".join(kinds) or "relation", tuple(sorted(r.name for r in fitting)), building)


def encode_definition(definition: Definition) -> msgspec.Raw:
    """The definition in the form that a relation stores."""
    return msgspec.Raw(msgspec.json.encode(definition))


def fragments_of(relation: Relation) -> tuple[Fragment, ...]:
    """The fragments that maintain a relation."""
    definition = definition_of(relation)
    return () if isinstance(definition, _WithoutRows) else definition.fragments


def follows_moment(relation: Relation) -> bool:
    """Whether rows of a view appear or disappear as the moment advances, without any input."""
    return any(o.node.follows_moment for fragment in fragments_of(relation) for o in fragment.operators)


def unbounded_costs(relation: Relation) -> tuple[UnboundedCost, ...]:
    """The costs of an epoch that grow with the stored rows of a view, without repetition."""
    nodes = (operator.node for fragment in fragments_of(relation) for operator in fragment.operators)
    return tuple(dict.fromkeys(cost for node in nodes for cost in node.unbounded_costs()))


def created_by(relation: Relation) -> Create:
    """The statement that would create the relation in its current form."""
    match definition_of(relation):
        case (
            SourceDefinition(statement)
            | TableDefinition(statement)
            | PlainViewDefinition(statement)
            | FunctionDefinition(statement)
        ):
            return statement
        case ViewDefinition(sql, plan, columns=columns, written=written):
            return CreateView(relation.name, sql, plan, columns=columns, written=written)


def with_readers(catalog: Catalog, *relations: Relation) -> set[int]:
    """The ids of these relations and of all relations that read them, directly or not."""
    ids = {relation.id for relation in relations}
    for later in catalog.live_relations():  # readers always come after their input
        if ids & set(later.depends_on):
            ids.add(later.id)
    return ids


def in_order(catalog: Catalog) -> Catalog:
    """The catalog with each relation after its inputs, otherwise in the same order. Requires: no cycles."""
    by_id = {r.id: r for r in catalog.relations}
    relation_by_id: dict[int, Relation] = {}
    for relation in catalog.relations:
        path = [relation.id]
        while path:
            missing = [i for i in by_id[path[-1]].depends_on if i in by_id and i not in relation_by_id]
            if missing:
                path.append(missing[0])
            else:
                at = path.pop()
                relation_by_id.setdefault(at, by_id[at])
    return msgspec.structs.replace(catalog, relations=tuple(relation_by_id.values()))
