"""Texts read as plain English: few of the constructions below per folder and kind of text, and no long lines.

The test counts sentences of Markdown pages, docstrings, comments, and messages. A message is a string literal of five
words or more. CONTRIBUTING.md lists the rules. The patterns find symptoms, so a limit leaves room for a
sentence that is right: at most LIMIT per hundred sentences, in rows with at least ROW sentences.
"""

import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
LIMIT = 1.0
ROW = 100
MARKDOWN_WIDTH = 100
PYTHON_WIDTH = 120

CONSTRUCTIONS = {
    "opens with a clause or a preposition": r"^(?:What(?:ever)?|Who(?:ever)?|That|Of) ",
    "a clause in place of a noun": r"\b[Ww]h(?:o|at)(?:ever)? "
    r"(?:is|are|was|were|has|have|had|it|they|one|the|an?|no|comes?|goes|reads?|writes?|waits?)\b",
    "`where` for a condition": r"\b[Ww]here (?:there|it|that|nothing|none|no|one|neither|nobody|somebody|the|an?)\b",
    "a thing that speaks": r"\b(?:says?|said|asks?|asked|tells|told|knows)\b",
    "a vague word": r"\b(?:nobody|somebody|by (?:itself|themselves)|of (?:its|their|one's) own|of ours|"
    r"as ever|is there)\b",
}
"""Patterns by name. A question has no construction of the first two kinds."""

_CODE_BLOCK = re.compile(r"^( *)(?:```|~~~).*?^\1(?:```|~~~)", re.DOTALL | re.MULTILINE)
_MARKUP = (
    (re.compile(r"^\s*\|?[-: |]+\|\s*$|^#+ .*$|<[^>\n]+>", re.MULTILINE), ""),
    (re.compile(r"`[^`]*`"), "x"),
    (re.compile(r"!?\[([^\]]*)\]\([^)]*\)"), r"\1"),
)
_BORDER = re.compile(r"(?<=[.!?:])\s+(?=[A-Z`\"'*x(])|\n\s*\n|\s\|\s|\n\s*(?:[-*]|\d+\.)\s")
_STRING_OR_COMMENT = re.compile(
    r"""#[^\n]*|(?P<prefix>\b[A-Za-z]{1,2})?(?P<quote>\"\"\"|'''|"|')(?P<text>(?:[^\\]|\\.)*?)(?P=quote)""", re.DOTALL
)
_FIELD = re.compile(r"\{[^{}]*\}")  # of an f-string
_SQL = re.compile(r"\s*(?:SELECT|CREATE|INSERT|WITH|UPDATE|MERGE|DELETE|DROP|EXPLAIN)\b")


def folder_of(file: str) -> str:
    """The row of a file: two folders deep below jobs, statestore and docs, else one; "." for files of the root."""
    parts = file.split("/")[:-1]
    deep = 2 if parts and parts[0] in ("jobs", "statestore", "docs") else 1
    return "/".join(parts[:deep]) or "."


@cache
def texts() -> tuple[str, ...]:
    """Paths of the Markdown and Python files of the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md", "*.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\n")
    return tuple(name for name in sorted(filter(None, listed)) if (ROOT / name).is_file())


def sentences(text: str) -> Iterator[str]:
    """The sentences of a text with four words or more, without code."""
    text = _CODE_BLOCK.sub("\n\n", text)
    for pattern, instead in _MARKUP:
        text = pattern.sub(instead, text)
    for part in _BORDER.split(text):
        sentence = " ".join(part.split()).strip(" |*-")
        if sentence.count(" ") >= 3:
            yield sentence


def pieces(file: str) -> Iterator[tuple[str, str]]:
    """Each text of a file with its kind."""
    source = (ROOT / file).read_text()
    yield from [("docs", source)] if file.endswith(".md") else python_texts(source)


def python_texts(source: str) -> Iterator[tuple[str, str]]:
    """The docstrings, comments and messages of Python code.

    One pattern finds strings and comments, which takes a tenth of the time of a syntax tree. Neighbouring strings are
    one message, and neighbouring comments are one comment. A docstring is a triple-quoted string at a line's start.
    """
    kind, text, end = "", "", 0
    for token in _STRING_OR_COMMENT.finditer(source):
        if token["quote"] is None:
            found, piece = "comments", token[0].lstrip("# ")
        else:
            opens_line = not source[source.rfind("\n", 0, token.start()) + 1 : token.start()].strip()
            found = "docstrings" if opens_line and len(token["quote"]) == 3 else "messages"
            piece = _FIELD.sub("x", token["text"]) if "f" in (token["prefix"] or "").lower() else token["text"]
        if found == kind != "docstrings" and not source[end : token.start()].strip():
            text += piece if kind == "messages" else f" {piece}"
        else:
            yield kind, text
            kind, text = found, piece
        end = token.end()
    yield kind, text


_FIRST_LOOK = re.compile("|".join(CONSTRUCTIONS.values()))  # most sentences have none


def found_in(sentence: str) -> list[str]:
    """The constructions of a sentence, by name."""
    if _FIRST_LOOK.search(sentence) is None:
        return []
    clauses = list(CONSTRUCTIONS)[:2] if "?" in sentence else []
    return [name for name, pattern in CONSTRUCTIONS.items() if name not in clauses and re.search(pattern, sentence)]


@cache
def counted() -> dict[tuple[str, str], tuple[int, Counter[str], tuple[str, ...]]]:
    """Per folder and kind: the number of sentences, the hits per construction, and the sentences with a hit."""
    total, hits = Counter[tuple[str, str]](), dict[tuple[str, str], Counter[str]]()
    found = dict[tuple[str, str], list[str]]()
    for file in texts():
        for kind, text in pieces(file):
            if not kind or (kind == "messages" and (text.count(" ") < 4 or _SQL.match(text))):
                continue
            row = (folder_of(file), kind)
            for sentence in sentences(text):
                total[row] += 1
                for name in found_in(sentence):
                    hits.setdefault(row, Counter())[name] += 1
                    found.setdefault(row, []).append(f"{file}: {name}: {sentence}")
    return {row: (count, hits.get(row, Counter()), tuple(found.get(row, ()))) for row, count in total.items()}


def over(folder: str) -> list[str]:
    """The rows of a folder above the limit, each with its sentences."""
    lines = []
    for (name, kind), (total, hits, found) in sorted(counted().items()):
        for construction, count in hits.items() if name == folder and total >= ROW else ():
            if (share := 100 * count / total) > LIMIT:
                shown = [line for line in found if f": {construction}: " in line]
                lines += [f"{name}, {kind}: {share:.1f} of 100 sentences: {construction}", *shown[:20]]
    return lines


@pytest.mark.parametrize("folder", sorted({folder_of(file) for file in texts()}))
def test_a_folder_is_in_plain_english(folder: str) -> None:
    assert "\n".join(over(folder)) == ""


def test_no_line_is_too_long() -> None:
    """Commands and outputs in Markdown are exempt, because they cannot be wrapped."""
    long = []
    for file in texts():
        text, width = (ROOT / file).read_text(), PYTHON_WIDTH
        if file.endswith(".md"):
            text, width = _CODE_BLOCK.sub(lambda block: "\n" * block[0].count("\n"), text), MARKDOWN_WIDTH
        lines = enumerate(text.splitlines(), 1)
        long += [f"{file}:{number}: {len(line)} characters" for number, line in lines if len(line) > width]
    assert long == []


@pytest.mark.parametrize(
    ("sentence", "construction"),
    [
        ("What an epoch takes in is pinned.", "opens with a clause or a preposition"),
        ("The object holds what it has read.", "a clause in place of a noun"),
        ("It is skipped where there is no row.", "`where` for a condition"),
        ("Its name says which rows it holds.", "a thing that speaks"),
        ("Views that a run pauses by itself stay.", "a vague word"),
    ],
)
def test_a_construction_is_found(sentence: str, construction: str) -> None:
    (found,) = list(sentences(sentence))
    assert construction in found_in(found)


def test_code_and_questions_are_not_counted() -> None:
    text = "Run this:\n\n```bash\nwhat is where it says\n```\n\nWhat happens if a run is killed?"
    assert list(sentences(text)) == ["What happens if a run is killed?"]
    assert found_in("What happens if a run is killed?") == []


def test_texts_of_python_code_are_found_by_kind() -> None:
    source = '''"""One."""
a = "# no"  # yes: é
# and on
b = f"{a} it" "s"
'''
    assert [piece for piece in python_texts(source) if piece[0]] == [
        ("docstrings", "One."),
        ("messages", "# no"),
        ("comments", "yes: é and on"),
        ("messages", "x its"),
    ]
