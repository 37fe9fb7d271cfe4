"""The differences between a CREATE statement and the relation that already has its name, as lines of text."""

import difflib
from collections.abc import Iterator, Sequence

import msgspec

from tussock.jobs.logical.nodes import Field, Plan
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.logical.statements import CreateFunction, CreatePlainView, CreateSource, CreateTable, CreateView
from tussock.jobs.logical.tokens import tokens_of
from tussock.statestore.meta.catalog import RelationKind

Create = CreateSource | CreateTable | CreateView | CreatePlainView | CreateFunction


def list_differences(existing: Create, wanted: Create) -> tuple[str, ...]:
    """The differences of the statement `wanted` from the relation that `existing` created. Empty if there are none.

    Tables are equal if they have the same columns and key. Sources are equal if they have the same format, options and
    columns; a statement without columns matches any. Views are equal if their SELECTs differ only in blanks and
    comments, or are bound to the same plan. CREATE OR REPLACE compares the columns too.
    """
    match existing, wanted:
        case CreateSource(), CreateSource():
            return tuple(_of_sources(existing, wanted))
        case CreateTable(), CreateTable():
            return tuple(_of_tables(existing, wanted))
        case CreateView(), CreateView():
            return tuple(_of_views(existing, wanted))
        case CreatePlainView(), CreatePlainView():
            return tuple(_of_plain_views(existing, wanted))
        case CreateFunction(), CreateFunction():
            return tuple(_of_functions(existing, wanted))
        case _:
            return (f"it is a {_kind_of(existing)}, this statement creates a {_kind_of(wanted)}",)


def _of_sources(existing: CreateSource, wanted: CreateSource) -> Iterator[str]:
    if existing.format != wanted.format:
        yield f"format: {existing.format} in the store, {wanted.format} in the statement"
    there, here = ({k.lower(): (k, v) for k, v in s.options.items()} for s in (existing, wanted))
    same = {"path"} if is_same_place(existing, wanted) else set[str]()
    for option in dict.fromkeys(o for o in (*there, *here) if o not in same):
        name, before = there.get(option, (option, None))
        name, after = here.get(option, (name, None))
        if before != after:
            yield f"option {name}: {_or_none(before)} in the store, {_or_none(after)} in the statement"
    if wanted.fields:
        yield from _of_columns(existing.fields, wanted.fields)
        there_key, here_key = (() if s.keyed is None else s.keyed.columns for s in (existing, wanted))
        yield from _of_keys(there_key, here_key, existing, wanted)


def is_same_place(existing: CreateSource, wanted: CreateSource) -> bool:
    """Whether two sources have one relative path, from the same place as seen from the store."""
    one, other = existing.relative, wanted.relative
    if one is None or other is None:
        return False
    return (one.path, one.from_store) == (other.path, other.from_store)


def _of_tables(existing: CreateTable, wanted: CreateTable) -> Iterator[str]:
    yield from _of_columns(existing.fields, wanted.fields)
    yield from _of_keys(existing.key, wanted.key, existing, wanted)
    if existing.append_only != wanted.append_only:
        yield f"APPEND ONLY only in the {'store' if existing.append_only else 'statement'}"
    if [f.name for f in existing.fields] == [f.name for f in wanted.fields]:
        for i, field in enumerate(existing.fields):
            if (was := existing.declared_type(i)) != (
                is_now := wanted.declared_type(i)
            ) and field.type == wanted.fields[i].type:
                yield f"column {field.name!r}: {was} in the store, {is_now} in the statement"
            if (i in existing.not_null) != (i in wanted.not_null):
                yield (
                    f"column {field.name!r}: NOT NULL only in the {'store' if i in existing.not_null else 'statement'}"
                )
            old, new = (next((d.sql for d in s.defaults if d.column == i), "none") for s in (existing, wanted))
            if old != new:
                yield f"default of column {field.name!r}: {old} in the store, {new} in the statement"


def _of_keys(
    there: Sequence[int], here: Sequence[int], existing: CreateTable | CreateSource, wanted: CreateTable | CreateSource
) -> Iterator[str]:
    keys = ((there, existing), (here, wanted))
    before, after = (", ".join(s.fields[k].name for k in key) for key, s in keys)
    if before != after:
        yield f"primary key: {_format_key(before)} in the store, {_format_key(after)} in the statement"


def _format_key(names: str) -> str:
    return f"({names})" if names else "none"


def _of_views(existing: CreateView, wanted: CreateView) -> Iterator[str]:
    same_words = words_of(existing.sql) == words_of(wanted.sql) and existing.columns == wanted.columns
    if wanted.or_replace and existing.plan.fields != wanted.plan.fields:  # a `*` covers new columns of its source
        same_words = False
    if same_words or _comparable_plan(existing.plan) == _comparable_plan(wanted.plan):
        return
    yield from _of_columns(existing.plan.fields, wanted.plan.fields)
    yield from _of_lines(existing.sql, wanted.sql)


def _of_plain_views(existing: CreatePlainView, wanted: CreatePlainView) -> Iterator[str]:
    yield from _of_columns(existing.fields, wanted.fields)
    if words_of(existing.sql) != words_of(wanted.sql):
        yield from _of_lines(existing.sql, wanted.sql)


def _of_functions(existing: CreateFunction, wanted: CreateFunction) -> Iterator[str]:
    if [f.type for f in existing.fields] != [f.type for f in wanted.fields]:
        taken, wished = (", ".join(f"{f.name} {f.type}" for f in s.fields) for s in (existing, wanted))
        yield f"parameters: ({taken}) in the store, ({wished}) in the statement"
    if existing.returns != wanted.returns:
        yield f"returns: {existing.returns} in the store, {wanted.returns} in the statement"
    if (existing.module, existing.function) != (wanted.module, wanted.function):
        yield (
            f"code: '{existing.module}:{existing.function}' in the store, '{wanted.module}:{wanted.function}' in the "
            "statement"
        )
    there, here = ({m.name: m.source for m in s.code} for s in (existing, wanted))
    for name in dict.fromkeys((*there, *here)):
        if there.get(name) != here.get(name):
            yield f"functions/{name}.py (- store, + statement):"
            before, after = (s.get(name, "").splitlines() for s in (there, here))
            yield from (line.rstrip() for line in difflib.ndiff(before, after) if line[:1] in "+-")


def _of_lines(existing: str, wanted: str) -> Iterator[str]:
    yield "query (- store, + statement):"
    before, after = ([line.strip() for line in sql.strip().splitlines()] for sql in (existing, wanted))
    yield from (line.rstrip() for line in difflib.ndiff(before, after) if not line.startswith("?"))


def _of_columns(existing: Sequence[Field], wanted: Sequence[Field]) -> Iterator[str]:
    there, here = ({f.name: f.type for f in fields} for fields in (existing, wanted))
    for name in dict.fromkeys((*there, *here)):
        if there.get(name) != here.get(name):
            yield f"column {name!r}: {there.get(name, 'none')} in the store, {here.get(name, 'none')} in the statement"
    if there == here and list(there) != list(here):
        yield f"order of the columns: {', '.join(there)} in the store, {', '.join(here)} in the statement"


def _or_none(value: str | None) -> str:
    return "none" if value is None else repr(value)


def _kind_of(statement: Create) -> str:
    return (
        RelationKind.PLAIN_VIEW
        if isinstance(statement, CreatePlainView)
        else type(statement).__name__.removeprefix("Create").lower()
    )


def words_of(sql: str) -> list[str]:
    """The tokens of a text, without blanks and comments."""
    return [t.text for t in tokens_of(SourceText(sql))]


def _comparable_plan(plan: Plan) -> object:
    """The plan without the source places of its expressions."""
    return without_places(msgspec.to_builtins(plan))


def without_places(value: object) -> object:
    """The builtins of a plan, an expression or fragments, without their source places."""
    if isinstance(value, dict):
        return {k: without_places(v) for k, v in value.items() if k != "place"}
    return [without_places(v) for v in value] if isinstance(value, list | tuple) else value
