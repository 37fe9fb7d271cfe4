"""Notes name files that are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NOTES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FILE = re.compile(r"(?:jobs|statestore|tests|plugins|dags|scripts|benchmarks|docs)/[A-Za-z0-9_/.]+\.(?:py|md|sh|yaml)")
LINK = re.compile(r"\]\(([^)#]+\.md)\)")


@pytest.mark.parametrize("note", NOTES, ids=lambda note: str(note.relative_to(ROOT)))
def test_a_note_names_files_that_are_there(note: Path) -> None:
    text = note.read_text()
    assert [name for name in FILE.findall(text) if not (ROOT / name).exists()] == []
    assert [link for link in LINK.findall(text) if "://" not in link and not (note.parent / link).exists()] == []
