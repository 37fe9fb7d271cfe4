"""Names of three parts in SQL files: `main.staging.orders`. `[catalogs]` gives the schema of each catalog's schemas."""

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta

from tussock.statestore.errors import InputError

SchemaPattern = Annotated[
    str,
    Meta(
        pattern=r"^[a-z0-9_]*\{schema\}[a-z0-9_]*$",
        description='the name of a schema with {schema}, e.g. "{schema}" or "main_{schema}"',
    ),
]


def without_catalogs(text: str, catalogs: Mapping[str, str]) -> str:
    """A script whose names have two parts: `main.staging.orders` becomes `staging.orders`.

    Blanks take the place of the catalog, so that places in errors stay if the schema does. Cost: none without catalogs.

    Args:
        catalogs: by catalog, the schema with `{schema}` for the second part. In lower case.
    """
    from tussock.jobs.logical.source_text import SourceText
    from tussock.jobs.logical.tokens import tokens_of

    if not catalogs:
        return text
    try:
        tokens = tokens_of(SourceText(text))
    except InputError:  # an unterminated string; the parser of the script reports its place
        return text
    parts, at, before = "", 0, ""
    for place, token in enumerate(tokens):
        words = tokens[place : place + 5]
        pattern = catalogs.get(token.value().lower()) if token.kind in ("word", "name") and before != "." else None
        if pattern is not None and [word.text for word in words[1::2]] == [".", "."] and len(words) == 5:
            schema = pattern.replace("{schema}", words[2].value().lower())
            blanks = " " * max(0, words[2].end - token.start - len(schema))
            parts, at = f"{parts}{text[at : token.start]}{blanks}{schema}", words[2].end
        before = token.text
    return parts + text[at:]
