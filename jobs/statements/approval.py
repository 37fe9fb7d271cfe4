"""The plan of a deployment that a person approves: an ordered list of items, and its digest.

    setting    a key of pipeline.toml, or an option of the command, that affects `tussock apply`
    statement  a statement of the files, in order; blanks and comments are ignored, as in jobs/statements/unchanged.py
    function   a Python file that a CREATE FUNCTION uses
    suite      a quality suite, which determines the measures
    action     a relation that is created, changed or dropped, with a fingerprint of its bound statement
    variable   a value of the environment that the texts use; it explains a difference and is not part of the digest

Estimates (rows, bytes, progress of a build) and the epoch are not items, so that an epoch in between does not
invalidate an approval. Measures are not items either, because the size of a view decides whether they are created.
"""

import difflib
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cached_property

import msgspec

from tussock.jobs.catalog.definition import created_by
from tussock.jobs.catalog.difference import without_places, words_of
from tussock.jobs.logical.script import split_script
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.logical.tokens import tokens_of
from tussock.statestore.decoding import decode_json
from tussock.statestore.errors import InputError
from tussock.statestore.meta.catalog import Relation

_DIGEST = re.compile(
    r"^(?:digest )?([0-9a-f]{64})$", re.MULTILINE
)  # at the start of a line; statements are indented, so digests in their text do not match
_MOST_LINES = 40  # shown per difference
_KINDS = frozenset(
    {"MATERIALIZED", "STREAMING", "VIEW", "TABLE", "SOURCE", "FLOW", "FUNCTION", "INTO", "FROM", "ON", "COLUMN"}
)
_VERBS = frozenset({"CREATE", "INSERT", "UPDATE", "DELETE", "MERGE", "TRUNCATE", "ALTER", "DROP", "COMMENT"})
_UNNAMED = frozenset({"OR", "REPLACE", "IF", "NOT", "EXISTS"})


class ItemKind(StrEnum):
    """The kinds of items."""

    SETTING = "setting"
    STATEMENT = "statement"
    FUNCTION = "function"
    SUITE = "suite"
    ACTION = "action"
    VARIABLE = "variable"


class PlanItem(msgspec.Struct, frozen=True):
    """One part of a plan. `text` is the whole statement, code or value; for an action, a few words."""

    kind: ItemKind
    name: str
    text: str

    @property
    def meaning(self) -> str:
        """The text for comparison: for a statement, only its tokens."""
        return "\0".join(words_of(self.text)) if self.kind is ItemKind.STATEMENT else self.text


class NoApprovalError(InputError):
    """The given text is not an approved plan."""

    text: str

    def __str__(self) -> str:
        return (
            f"{self.text[:80]!r} is neither the digest of a plan nor a saved plan. `tussock plan PIPELINE` prints "
            "the digest, 64 characters of 0-9 and a-f; `tussock plan PIPELINE --save FILE` writes the whole plan. "
            "Nothing was changed."
        )


class Approval(msgspec.Struct, frozen=True, dict=True):
    """All items of a plan in order, as plain data that survives JSON."""

    items: tuple[PlanItem, ...] = ()

    @cached_property
    def digest(self) -> str:
        """64 hexadecimal digits. Plans with equal digests have the same effect."""
        counted = [(x.kind, x.name, x.meaning) for x in self.items if x.kind is not ItemKind.VARIABLE]
        return hashlib.sha256(msgspec.json.encode(counted)).hexdigest()

    def to_json(self) -> str:
        """All items as a text for `approval_of`."""
        return msgspec.json.encode(self).decode()

    def input_items(self) -> "Approval":
        """The items that are known before any statement is bound."""
        bound = (ItemKind.ACTION, ItemKind.FUNCTION)
        return Approval(tuple(item for item in self.items if item.kind not in bound))


def approval_of(text: str) -> Approval | str:
    """Read an approved plan from its JSON form, or find the digest in a text.

    Raises: NoApprovalError.
    """
    if text.lstrip().startswith("{"):
        try:
            return decode_json(text, Approval)
        except msgspec.DecodeError as err:
            raise NoApprovalError(text) from err
    if len(digests := set(_DIGEST.findall(text))) != 1:
        raise NoApprovalError(text)
    return str(digests.pop())


def statement_items(scripts: Iterable[tuple[object, str]]) -> Iterator[PlanItem]:
    """The statements of a pipeline's files, in order. Raises SqlError if a script cannot be split."""
    for _, script in scripts:
        for statement in split_script(script):
            yield PlanItem(ItemKind.STATEMENT, _statement_title(statement.text), statement.text)


def fingerprint_relation(relation: Relation) -> str:
    """A digest of the statement that would create the relation in its current form, including its plan.

    Blanks and comments are ignored. So is the way from the store to a source: the plan of a new store has no store yet.
    """
    document = without_places(msgspec.to_builtins(created_by(relation)))
    assert isinstance(document, dict)
    if "sql" in document:
        document["sql"] = words_of(document["sql"])
    ignored = ("if_not_exists", "or_replace", "relative", "moved")
    return hashlib.sha256(msgspec.json.encode({k: v for k, v in document.items() if k not in ignored})).hexdigest()[:16]


def describe_edits(approved: Approval, now: Approval) -> tuple[str, ...]:
    """The differences between two plans as lines of text: changed texts and settings, otherwise changed actions."""
    edits = [
        line
        for kind in ItemKind
        if kind not in (ItemKind.ACTION, ItemKind.VARIABLE)
        for line in _edits_of(kind, approved, now)
    ]
    names = [[item.name for item in one.items if item.kind is ItemKind.STATEMENT] for one in (approved, now)]
    if not edits and names[0] != names[1]:
        edits = [f"the order of the statements: {', '.join(names[0])} approved; {', '.join(names[1])} now"]
    if edits:
        return (*edits, *_edits_of(ItemKind.VARIABLE, approved, now))
    return tuple(_edits_of(ItemKind.ACTION, approved, now)) or ("the order of the actions",)


def _edits_of(kind: ItemKind, approved: Approval, now: Approval) -> Iterator[str]:
    before, after = _by_name(kind, approved.items), _by_name(kind, now.items)
    for name in dict.fromkeys((*before, *after)):
        then, here = before.get(name), after.get(name)
        if then is None or here is None:
            one = then or here
            assert one is not None
            yield f"{kind} {name}: {'is new' if then is None else 'is gone'} since the approval"
            if kind is not ItemKind.ACTION:
                yield from _limit_lines(
                    [f"    {'+' if then is None else '-'} {line}" for line in one.text.splitlines()]
                )
        elif then.meaning != here.meaning:
            if "\n" in then.text + here.text or kind is ItemKind.STATEMENT:
                yield f"{kind} {name}: has changed, - approved, + now:"
                lines = difflib.ndiff(then.text.splitlines(), here.text.splitlines())
                yield from _limit_lines([f"    {line.rstrip()}" for line in lines if line[:1] in "+-"])
            else:
                yield f"{kind} {name}: {then.text or 'nothing'} approved, {here.text or 'nothing'} now"


def _by_name(kind: ItemKind, items: Sequence[PlanItem]) -> Mapping[str, PlanItem]:
    """The items of one kind by name. Repeated names are numbered."""
    item_by_name: dict[str, PlanItem] = {}
    seen: Counter[str] = Counter()
    for item in items:
        if item.kind is kind:
            seen[item.name] += 1
            item_by_name[item.name if seen[item.name] == 1 else f"{item.name} ({seen[item.name]})"] = item
    return item_by_name


def _limit_lines(lines: Sequence[str]) -> Iterator[str]:
    yield from lines[:_MOST_LINES]
    if len(lines) > _MOST_LINES:
        yield f"    and {len(lines) - _MOST_LINES} more lines"


def _statement_title(text: str) -> str:
    """The verb of a statement and the name of its relation: `create materialized view by_shop`, `insert into shops`."""
    words: list[str] = []
    for token in tokens_of(SourceText(text)):
        word = token.text.upper()
        if word not in _KINDS | _VERBS | _UNNAMED:
            return " ".join([*words, token.value()])
        if word not in _UNNAMED:
            words.append(word.lower())
    return " ".join(words)
