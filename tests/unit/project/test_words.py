"""The list of words: every word has a line and an existing file; class names are unique and agree with the words."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
ENTRY = re.compile(r"^- (.+(?:\n  .+)*)", re.MULTILINE)
#: `**word**: meaning (`file`)`. An entry in another shape has one cell, and fails the first test.
LINES = [
    re.sub(r"^\*\*(.+?)\*\*: (.+) \((`[^`]+`)\)$", r"\1\n\2\n\3", " ".join(entry.split())).split("\n")
    for entry in ENTRY.findall((ROOT / "docs/design/words.md").read_text())
]


@pytest.mark.parametrize("line", LINES, ids=lambda line: line[0])
def test_each_word_has_a_meaning_and_an_existing_file(line: list[str]) -> None:
    word, meaning, place = line
    assert word
    assert meaning
    (file,) = re.findall(r"^`([^`]+)`$", place)
    assert (ROOT / file).is_file(), f"{word}: {file} does not exist; give its new path"


#: More words than these would be a language of its own. A new one takes the line of another.
MOST_WORDS = 90


def test_each_word_has_one_line_and_one_meaning() -> None:
    words = [word for word, *_ in LINES]
    assert len(words) == len(set(words)) > 50
    assert len(words) <= MOST_WORDS, "define the term where it is used, or remove another word"
    assert [word for word in words if "(" in word] == [], "a word for one of several meanings needs another name"


def _classes() -> Iterator[tuple[str, str]]:
    """File and name of each class of the project that other files may import. Private ones may share a name."""
    for room in ("jobs", "statestore", "plugins", "dags"):
        for file in sorted((ROOT / room).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    yield str(file.relative_to(ROOT)), node.name


CLASSES = list(_classes())


def test_no_two_classes_have_the_same_name() -> None:
    counts = Counter(name for _, name in CLASSES)
    shared = [f"{name}: {file}" for file, name in CLASSES if counts[name] > 1]
    assert not shared, "give each its own name; a stored class keeps its name with tag=:\n" + "\n".join(sorted(shared))
    assert len(CLASSES) > 800


def test_a_class_with_the_name_of_a_word_is_in_the_file_of_the_word() -> None:
    places: dict[str, set[str]] = {}
    for words, _, place in LINES:
        places.setdefault(words.lower(), set()).add(place.strip("`"))
    as_words = [(file, name, re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name).lower()) for file, name in CLASSES]
    strays = [
        f"{name} in {file}: {word!r} is of {places[word]}"
        for file, name, word in as_words
        if file not in places.get(word, {file})
    ]
    assert not strays, "correct the line of the word, or name the class otherwise:\n" + "\n".join(strays)
    assert sum(word in places for _, _, word in as_words) > 25
