"""Schemas of the catalog: their names, and the relations in them."""

from collections.abc import Callable

import msgspec

from tussock.jobs.catalog.definition import KEYWORDS
from tussock.jobs.logical.relation_names import DEFAULT_SCHEMA, schema_of
from tussock.jobs.logical.statements import CreateSchema, Drop, DropSchema
from tussock.statestore.errors import InputError
from tussock.statestore.meta.catalog import Catalog, Relation


class UnknownSchemaError(InputError):
    """The store has no schema of this name."""

    name: str
    existing: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"there is no schema {self.name!r}; schemas that exist: {', '.join(self.existing)}. Create it before its "
            f"relations: CREATE SCHEMA {self.name}."
        )


class SchemaExistsError(InputError):
    """The store has a schema of this name already."""

    name: str

    def __str__(self) -> str:
        return (
            f"the schema {self.name!r} exists already. Write CREATE SCHEMA IF NOT EXISTS {self.name} to keep it, or "
            "choose another name."
        )


class SchemaNotEmptyError(InputError, hides_row_values=True):
    """A schema to drop has relations."""

    name: str
    statements: tuple[str, ...]  # that drop its relations

    def __str__(self) -> str:
        return (
            f"schema {self.name!r} cannot be dropped, because it is not empty. Nothing was changed. Drop its relations "
            f"first ({'; '.join(self.statements)}). DROP SCHEMA {self.name} CASCADE drops them, and everything that "
            "reads them, with their rows."
        )


class DefaultSchemaError(InputError):
    """A statement would drop the default schema."""

    def __str__(self) -> str:
        return (
            f"the schema {DEFAULT_SCHEMA!r} cannot be dropped: names without a schema belong to it. Nothing was "
            "changed. Drop its relations instead."
        )


def schemas_of(catalog: Catalog) -> tuple[str, ...]:
    """All schemas, in alphabetical order."""
    return tuple(sorted((DEFAULT_SCHEMA, *catalog.schemas)))


def require_schema(catalog: Catalog, schema: str) -> None:
    """Raises UnknownSchemaError."""
    if schema not in schemas_of(catalog):
        raise UnknownSchemaError(schema, schemas_of(catalog))


def create_schema(catalog: Catalog, statement: CreateSchema) -> Catalog:
    """The catalog with a schema. Raises SchemaExistsError."""
    if statement.name not in schemas_of(catalog):
        return msgspec.structs.replace(catalog, schemas=tuple(sorted((*catalog.schemas, statement.name))))
    if not statement.if_not_exists:
        raise SchemaExistsError(statement.name)
    return catalog


def drop_schema(catalog: Catalog, statement: DropSchema, drop: Callable[[Catalog, Drop], Catalog]) -> Catalog:
    """The catalog without a schema.

    Args:
        drop: drops one relation.

    Raises: UnknownSchemaError, SchemaNotEmptyError, DefaultSchemaError; as `drop`.
    """
    name = statement.name
    if name == DEFAULT_SCHEMA:
        raise DefaultSchemaError
    if name not in catalog.schemas:
        if statement.if_exists:
            return catalog
        raise UnknownSchemaError(name, schemas_of(catalog))
    drops = [Drop(relation.kind, relation.name, statement.cascade, True) for relation in _relations_in(catalog, name)]
    if drops and not statement.cascade:
        raise SchemaNotEmptyError(name, tuple(f"DROP {KEYWORDS[d.kind]} {d.name}" for d in reversed(drops)))
    for one in reversed(drops):  # readers before their input
        catalog = drop(catalog, one)
    return msgspec.structs.replace(catalog, schemas=tuple(other for other in catalog.schemas if other != name))


def _relations_in(catalog: Catalog, schema: str) -> list[Relation]:
    """The relations of a schema that a statement can drop, also those that are being built."""
    built = (relation for build in catalog.builds for relation in build.relations)
    relations = {relation.name: relation for relation in (*catalog.live_relations(), *built)}
    return [r for r in relations.values() if schema_of(r.name) == schema]
