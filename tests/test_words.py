"""The list of words: every one has a line, and the file that is said to define it exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LINES = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs/design/words.md").read_text().splitlines()
    if line.startswith("| ") and not line.startswith("| word ")
]


@pytest.mark.parametrize("line", LINES, ids=lambda line: line[0])
def test_a_word_has_a_meaning_and_a_file_that_is_there(line: list[str]) -> None:
    word, meaning, place = line
    assert word
    assert meaning
    (file,) = re.findall(r"^`([^`]+)`$", place)
    assert (ROOT / file).is_file(), f"{word}: {file} moved; say where it is now"


def test_no_word_has_two_lines() -> None:
    words = [word for word, *_ in LINES]
    assert len(words) == len(set(words)) > 100
