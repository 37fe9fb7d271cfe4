"""Notes on views whose `*` was bound before their source had its newest columns. No Spark.

A `*` stays as it was created, so files that bring columns do not change a view. The note of `tussock plan` names the
columns that the view would have if it were created now.
"""

from collections.abc import Sequence

from tussock.jobs.catalog.definition import ViewDefinition, definition_of, source_of
from tussock.jobs.logical.nodes import scans_of
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.logical.tokens import Token, tokens_of
from tussock.statestore.meta.catalog import Catalog, Relation

_BEFORE_STAR = ("SELECT", "DISTINCT", "ALL", ",")
_AFTER_NAME = ("AS",)


def star_note(catalog: Catalog, view: Relation) -> str:
    """Return a note on the columns that the `*` of a view lacks; empty if it lacks none.

    Columns are added at the end, so a `*` that was bound before lacks those after the last one that the view reads.
    """
    definition = definition_of(view)
    if not isinstance(definition, ViewDefinition):
        return ""
    last = dict[str, int]()
    for scan in scans_of(definition.plan):
        last[scan.relation] = max(last.get(scan.relation, -1), *scan.columns, -1)
    sources = {r.name: source for r in catalog.live_relations() if (source := source_of(r)) is not None}
    lacking = {
        name: missing
        for name, place in last.items()
        if name in sources and (missing := [f.name for f in sources[name].fields[place + 1 :]])
    }
    if not lacking:
        return ""
    tokens = tokens_of(SourceText(definition.sql))
    parts = [f"{', '.join(missing)} of {name}" for name, missing in lacking.items() if _covers(tokens, name)]
    if not parts:
        return ""
    return (
        f"its * was bound before the source had the columns {'; '.join(parts)}, and stays so. CREATE OR REPLACE "
        "MATERIALIZED VIEW with the same SELECT binds it again"
    )


def _covers(tokens: Sequence[Token], source: str) -> bool:
    """Whether a `*` of a SELECT covers the columns of a source: without a qualifier, or with its name or alias."""
    own = source.rpartition(".")[2]
    names = {own}
    for place, token in enumerate(tokens[:-1]):
        if token.value().lower() == own:
            after = place + 2 if tokens[place + 1].text.upper() in _AFTER_NAME else place + 1
            if after < len(tokens) and tokens[after].kind in ("word", "name"):
                names.add(tokens[after].value().lower())
    for place, token in enumerate(tokens[1:], start=1):
        if token.text != "*":
            continue
        before = tokens[place - 1]
        if before.text.upper() in _BEFORE_STAR:
            return True
        if before.text == "." and place > 1 and tokens[place - 2].value().lower() in names:
            return True
    return False
