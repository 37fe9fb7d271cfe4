"""Notes name files that are there."""

import re
from pathlib import Path

import pytest

from jobs.settings.pipeline import known_keys
from scripts import reference_pages

ROOT = Path(__file__).resolve().parents[1]
NOTES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FILE = re.compile(r"(?:jobs|statestore|tests|plugins|dags|scripts|benchmarks|docs)/[A-Za-z0-9_/.]+\.(?:py|md|sh|yaml)")
LINK = re.compile(r"\]\(([^)#]+\.md)\)")


@pytest.mark.parametrize("note", NOTES, ids=lambda note: str(note.relative_to(ROOT)))
def test_a_note_names_files_that_are_there(note: Path) -> None:
    text = note.read_text()
    assert [name for name in FILE.findall(text) if not (ROOT / name).exists()] == []
    assert [link for link in LINK.findall(text) if "://" not in link and not (note.parent / link).exists()] == []


def test_pages_that_are_made_of_the_code_say_what_it_says() -> None:
    for path, text in reference_pages.pages().items():
        assert path.read_text() == text, f"{path.name} is not what `make docs` makes"


def test_every_key_of_pipeline_toml_is_on_its_page() -> None:
    text = reference_pages.pipeline_page()
    assert [key for key in known_keys() if key != "spark" and f"| `{key}` |" not in text] == []
