"""The plan of a deployment that a person approves: an ordered list of items, and its digest.

    setting    a key of pipeline.toml, or an option of the command, that changes an apply
    statement  each statement of the files, in order; blanks and comments do not count, as in `tussock.jobs.catalog.unchanged`
    function   each file of Python code that a CREATE FUNCTION takes in
    suite      each quality suite: measures follow from it
    action     a relation that is created, changed or dropped, with a fingerprint of its bound statement
    variable   a value of the environment that the texts use; it names an edit, and is not part of the digest

Estimates (rows, bytes, how far a build is) and the epoch are no items: an epoch in between does not outdate an approval. Neither are the
measures themselves, which are made or not by the size of a view.
"""

import difflib
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cached_property

import msgspec

from tussock.jobs.logical.script import split_script
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.logical.tokens import tokens_of
from tussock.jobs.plan.definition import created_by
from tussock.jobs.plan.difference import without_places, words_of
from tussock.statestore.decoding import decoded
from tussock.statestore.errors import InputError
from tussock.statestore.meta.catalog import Relation

_DIGEST = re.compile(
    r"^(?:digest )?([0-9a-f]{64})$", re.MULTILINE
)  # a line of its own: statements, which are indented, may have others
_MOST_LINES = 40  # of one edit that are shown
_KINDS = frozenset({"MATERIALIZED", "VIEW", "TABLE", "SOURCE", "FUNCTION", "INTO", "FROM", "ON", "COLUMN"})
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
    """One part of a plan. `text`: the whole statement, code or value; for an action, a few words."""

    kind: ItemKind
    name: str
    text: str

    @property
    def meaning(self) -> str:
        """The text as it is compared: a statement's words alone."""
        return "\0".join(words_of(self.text)) if self.kind is ItemKind.STATEMENT else self.text


class NoApprovalError(InputError):
    """The text that was given as an approved plan is not a plan."""

    def __init__(self, found: str) -> None:
        super().__init__(found)
        self.found = found

    def __str__(self) -> str:
        return (
            f"{self.found[:80]!r} is neither the digest of a plan nor a saved plan. `tussock plan PIPELINE` prints the digest, "
            "64 characters of 0-9 and a-f; `tussock plan PIPELINE --save FILE` writes the whole plan. Nothing was changed."
        )


class Approval(msgspec.Struct, frozen=True, dict=True):
    """All items, in order: plain data, JSON goes through."""

    items: tuple[PlanItem, ...] = ()

    @cached_property
    def digest(self) -> str:
        """64 hexadecimal digits: equal digests do equal things."""
        counted = [(x.kind, x.name, x.meaning) for x in self.items if x.kind is not ItemKind.VARIABLE]
        return hashlib.sha256(msgspec.json.encode(counted)).hexdigest()

    def json(self) -> str:
        """All items as a text, which `approval_of` reads."""
        return msgspec.json.encode(self).decode()

    def inputs(self) -> "Approval":
        """The items that are known before anything is bound."""
        bound = (ItemKind.ACTION, ItemKind.FUNCTION)
        return Approval(tuple(item for item in self.items if item.kind not in bound))


def approval_of(text: str) -> Approval | str:
    """An approved plan from its JSON form, or the digest in a line of a text.

    Raises: NoApprovalError.
    """
    if text.lstrip().startswith("{"):
        try:
            return decoded(text, Approval)
        except msgspec.DecodeError as err:
            raise NoApprovalError(text) from err
    if len(found := set(_DIGEST.findall(text))) != 1:
        raise NoApprovalError(text)
    return str(found.pop())


def statement_items(scripts: Iterable[tuple[object, str]]) -> Iterator[PlanItem]:
    """The statements of a pipeline's files, in order. Raises SqlError for a text that is no script."""
    for _, script in scripts:
        for statement in split_script(script):
            yield PlanItem(ItemKind.STATEMENT, _title(statement.text), statement.text)


def fingerprint(relation: Relation) -> str:
    """A digest of the statement that would create the relation as it is, its plan included; blanks and comments do not count."""
    document = without_places(msgspec.to_builtins(created_by(relation)))
    assert isinstance(document, dict)
    if "sql" in document:
        document["sql"] = words_of(document["sql"])
    flags = ("if_not_exists", "or_replace")
    return hashlib.sha256(msgspec.json.encode({k: v for k, v in document.items() if k not in flags})).hexdigest()[:16]


def edits(approved: Approval, now: Approval) -> tuple[str, ...]:
    """The differences of two plans, as lines for a person: edited texts and settings, or else changed actions."""
    found = [
        line
        for kind in ItemKind
        if kind not in (ItemKind.ACTION, ItemKind.VARIABLE)
        for line in _edits_of(kind, approved, now)
    ]
    names = [[item.name for item in one.items if item.kind is ItemKind.STATEMENT] for one in (approved, now)]
    if not found and names[0] != names[1]:
        found = [f"the order of the statements: {', '.join(names[0])} approved; {', '.join(names[1])} now"]
    if found:
        return (*found, *_edits_of(ItemKind.VARIABLE, approved, now))
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
                yield from _cut([f"    {'+' if then is None else '-'} {line}" for line in one.text.splitlines()])
        elif then.meaning != here.meaning:
            if "\n" in then.text + here.text or kind is ItemKind.STATEMENT:
                yield f"{kind} {name}: has changed, - approved, + now:"
                lines = difflib.ndiff(then.text.splitlines(), here.text.splitlines())
                yield from _cut([f"    {line.rstrip()}" for line in lines if line[:1] in "+-"])
            else:
                yield f"{kind} {name}: {then.text or 'nothing'} approved, {here.text or 'nothing'} now"


def _by_name(kind: ItemKind, items: Sequence[PlanItem]) -> Mapping[str, PlanItem]:
    """By name; equal names are numbered."""
    found: dict[str, PlanItem] = {}
    seen: Counter[str] = Counter()
    for item in items:
        if item.kind is kind:
            seen[item.name] += 1
            found[item.name if seen[item.name] == 1 else f"{item.name} ({seen[item.name]})"] = item
    return found


def _cut(lines: Sequence[str]) -> Iterator[str]:
    yield from lines[:_MOST_LINES]
    if len(lines) > _MOST_LINES:
        yield f"    and {len(lines) - _MOST_LINES} more lines"


def _title(text: str) -> str:
    """The verb of a statement and the name of its relation: `create materialized view by_shop`, `insert into shops`."""
    words: list[str] = []
    for token in tokens_of(SourceText(text)):
        word = token.text.upper()
        if word not in _KINDS | _VERBS | _UNNAMED:
            return " ".join([*words, token.value()])
        if word not in _UNNAMED:
            words.append(word.lower())
    return " ".join(words)
