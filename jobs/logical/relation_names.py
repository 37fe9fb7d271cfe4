"""Names of relations: a schema, and a name in it.

One text stands for both, and is the key of the catalog and of everything that is stored by relation:

    orders            a relation of the default schema; default.orders means the same
    staging.orders    a relation of another schema

All names are in lower case. This module alone joins and splits them; other code passes them on as they are. Spark gets
a relation as a temporary view whose name is the whole text (jobs/sql/qualified_names.py).
"""

import re
from collections.abc import Iterable, Sequence

from tussock.jobs.logical.quoting import quote_name

DEFAULT_SCHEMA = "default"
PART = re.compile(r"[a-z_][a-z0-9_]{0,99}")
"""The allowed names of schemas, and of relations in their schema."""


class TooManyPartsError(ValueError):
    """A name has more parts than a schema and a relation."""

    def __init__(self, parts: Sequence[str]) -> None:
        super().__init__(catalog_hint(parts))


def catalog_hint(parts: Sequence[str]) -> str:
    """The remedy for a name of three or more parts."""
    return (
        f"{'.'.join(parts)} has a catalog, which a pipeline lacks; write {'.'.join(parts[-2:])}, or name the catalog "
        f"{parts[0]} under [catalogs] in pipeline.toml"
    )


def join_name(schema: str, name: str) -> str:
    """The text that stands for a relation of a schema."""
    return name if schema == DEFAULT_SCHEMA else f"{schema}.{name}"


def split_name(relation: str) -> tuple[str, str]:
    """The schema of a relation, and its name in it."""
    schema, dot, name = relation.partition(".")
    return (schema, name) if dot else (DEFAULT_SCHEMA, relation)


def schema_of(relation: str) -> str:
    """The schema of a relation."""
    return split_name(relation)[0]


def resolve_name(parts: Sequence[str], schema: str = DEFAULT_SCHEMA) -> str:
    """The relation that a name in SQL means, in any case.

    Args:
        parts: one or two.
        schema: of a name without one.

    Raises: TooManyPartsError.
    """
    if len(parts) > 2:
        raise TooManyPartsError(parts)
    *schemas, name = (part.lower() for part in parts)
    return join_name(schemas[0] if schemas else schema, name)


def resolve_text(name: str, schema: str = DEFAULT_SCHEMA) -> str:
    """The relation that a name outside of SQL means: an argument of a command, or the name of a file.

    Raises: TooManyPartsError.
    """
    return resolve_name(name.split("."), schema)


def relation_key(name: str) -> str:
    """The text that the catalog has for a name from outside of SQL. No relation has the one of an invalid name."""
    try:
        return resolve_text(name)
    except TooManyPartsError:
        return name.lower()


def sql_name(relation: str) -> str:
    """The name of a relation as SQL text, quoted part by part."""
    schema, name = split_name(relation)
    return quote_name(name) if schema == DEFAULT_SCHEMA else f"{quote_name(schema)}.{quote_name(name)}"


def outside_name(root: str, relation: str) -> tuple[str, str]:
    """The schema of a database, or the namespace of a catalog, that gets a relation's copy; and its name there.

    The default schema goes to `root`, others to a schema beside it: staging of the root lake becomes lake_staging.
    """
    schema, name = split_name(relation)
    return (root if schema == DEFAULT_SCHEMA else f"{root}_{schema}"), name


def flat_name(relation: str) -> str:
    """The name of a relation where points separate the parts of longer names. `-` occurs in no name."""
    return "-".join(relation.split("."))


def names_mentioned(words: Iterable[str], schema: str = DEFAULT_SCHEMA) -> set[str]:
    """The relations that a text may mean, given its words and symbols.

    A word after a point is a part of the name before it, so a.orders mentions no relation of the default schema.
    """
    names: set[str] = set()
    before = ["", ""]
    for word in (word.lower() for word in words):
        if before[1] != ".":
            names.add(join_name(schema, word) if PART.fullmatch(word) else word)
        else:
            names.add(join_name(before[0], word))
        before = [before[1], word]
    return names
