"""Find models that dbt compiled in part: the incremental branch, a sample, or one batch of the inputs.

Such SQL is valid, and a view over it would silently lack rows. So the texts of the model and of its macros are compared
with the compiled SQL.
"""

import re
from collections.abc import Container, Iterator, Mapping, Sequence

from tussock.jobs.importing.dbt_manifest import COMPILE, DbtNode

_TAG = re.compile(r"\{%-?\s*(?P<word>\w+)\b(?P<rest>.*?)-?%\}", re.DOTALL)
_COMMENT = re.compile(r"\{#.*?#\}", re.DOTALL)
_EXPRESSION = re.compile(r"\{\{.*?\}\}", re.DOTALL)
_INLINE = re.compile(r"(['\"])(?P<text>(?:(?!\1).)*)\1\s*if\s+is_incremental\(\)", re.DOTALL)
_CALL = re.compile(r"\bis_incremental\s*\(\s*\)")
_NEGATED = re.compile(r"\bnot\s+is_incremental\s*\(\s*\)")
_LEAST_FRAGMENT = 8  # characters of a branch that tell it from other SQL
_LONGEST_VALUE = 500  # characters that an expression of a template may become
#: `ref` and `source` of dbt with --empty, with --sample, and in a batch of a microbatch model.
_PART = re.compile(
    r"\(select \* from (?P<relation>[^\s()]+) where (?:false limit 0"
    r"|(?:(?! where |select).)+? (?:>=|<) '[^']+'(?: and (?:(?! where |select).)+? < '[^']+')?)\)(?!\s*dbt_subquery)"
)
_WRITTEN_PART = re.compile(r"\(select \* from \{\{")


def refusal_of_branch(
    node: DbtNode, macros: Mapping[str, str], relations: Container[str], inlined: Sequence[str] = ()
) -> str:
    """Why the compiled SQL of a node lacks rows; empty if nothing indicates it.

    Args:
        macros: the texts of the macros that the node uses.
        relations: the names of the project's relations in compiled SQL.
        inlined: the texts of the ephemeral models that dbt wrote into the node, and of their macros.
    """
    compiled = " ".join((node.compiled_code or "").split())
    texts = (node.raw_code or "", *macros.values())
    if fragment := next(filter(None, (_incremental_fragment(text, texts[0], compiled) for text in texts)), ""):
        return f"only its incremental branch is compiled ({fragment!r}). {how_to_compile(node)}"
    own_texts = [" ".join(text.split()) for text in (*texts, *inlined)]
    if any(map(_WRITTEN_PART.search, own_texts)):
        return ""
    for part in _PART.finditer(compiled):  # a WITH of the project has the same form, over another of its queries
        if part["relation"] not in relations or any(part[0] in text for text in own_texts):
            continue
        return (
            f"dbt compiled it with --empty, with --sample or for one batch, so it reads only a part of "
            f"{part['relation']}. Run {COMPILE} without such options, and import again"
        )
    return ""


def how_to_compile(node: DbtNode) -> str:
    """The remedy for a node with a compiled incremental branch."""
    if node.config.full_refresh is False:
        return (
            "Its full_refresh=false keeps dbt on this branch. Remove it, or run dbt compile with a --target whose "
            "schema has no table of this model, and import again"
        )
    return f"Run {COMPILE}, and import again"


def _incremental_fragment(text: str, raw: str, compiled: str) -> str:
    """A part of the compiled SQL that a template writes only if is_incremental() is true; empty if there is none."""
    text, raw = _COMMENT.sub("", text), _COMMENT.sub("", raw)
    inside, outside = list[str](), list[str]()
    for part, is_incremental in _parts_of(text):
        (inside if is_incremental else outside).append(part)
    inside += [match["text"] for match in _INLINE.finditer(text)]
    others = " ".join(_EXPRESSION.sub(" ", " ".join((*outside, *([] if raw == text else [raw])))).split())
    for part in inside:
        words = [" ".join(piece.split()) for piece in _EXPRESSION.split(part)]
        if sum(map(len, words)) < _LEAST_FRAGMENT:
            continue
        pattern = re.compile(f".{{0,{_LONGEST_VALUE}}}?".join(rf"\s*{re.escape(word)}\s*" for word in words))
        found = pattern.search(compiled)
        if found is not None and pattern.search(others) is None:
            return found[0].strip()[:60]
    return ""


def _parts_of(text: str) -> Iterator[tuple[str, bool]]:
    """The texts between the tags of a template, and whether only an incremental run writes them."""
    branches, negations, at = list[bool](), list[bool](), 0  # of the open `if` blocks
    for tag in _TAG.finditer(text):
        yield text[at : tag.start()], any(branches)
        at = tag.end()
        condition, is_one = tag["rest"], not re.search(r"\bor\b", tag["rest"])
        holds = bool(_CALL.search(condition)) and not _NEGATED.search(condition) and is_one
        denies = bool(_NEGATED.search(condition)) and not re.search(r"\band\b", condition)
        match tag["word"]:
            case "if":
                branches.append(holds)
                negations.append(denies)
            case "elif" if branches:
                branches[-1] = holds or negations[-1]
                negations[-1] |= denies
            case "else" if branches:
                branches[-1] = negations[-1]
            case "endif" if branches:
                branches.pop()
                negations.pop()
    yield text[at:], any(branches)
