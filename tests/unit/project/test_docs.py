"""Files that the notes name exist."""

import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from scripts import errors_page, reference_pages
from tussock.jobs.settings.pipeline import known_keys

ROOT = Path(__file__).resolve().parents[3]
NOTES = [
    *(
        ROOT / page
        for page in ("README.md", "CONTRIBUTING.md", "jobs/README.md", "statestore/README.md", "tests/README.md")
    ),
    *sorted((ROOT / "docs").rglob("*.md")),
]
FILE = re.compile(
    r"(?<![\w/])(?:jobs|statestore|tests|plugins|dags|scripts|benchmarks|docs)/[A-Za-z0-9_/.]+\.(?:py|md|sh|yaml)"
)
LINK = re.compile(r"\]\(([^)#]+\.md)\)")


@pytest.mark.parametrize("note", NOTES, ids=lambda note: str(note.relative_to(ROOT)))
def test_a_note_names_existing_files(note: Path) -> None:
    text = note.read_text()
    homes = (ROOT, ROOT / "jobs/shell/template")  # user pages name the files of `tussock new`
    assert [name for name in FILE.findall(text) if not any((home / name).exists() for home in homes)] == []
    assert [link for link in LINK.findall(text) if "://" not in link and not (note.parent / link).exists()] == []


MOST_LINES = 4_800
MOST_LINES_OF_A_NOTE = 250
#: A commit: 7 to 40 hexadecimal digits, with a letter and a digit among them.
COMMIT = re.compile(r"(?<![\w@….-])(?=[0-9a-f]*[a-f])(?=[0-9a-f]*[0-9])[0-9a-f]{7,40}(?![\w…-])")


def test_the_design_notes_are_short_and_name_no_commit() -> None:
    notes = {note.name: note.read_text() for note in (ROOT / "docs/design").glob("*.md")}
    lines = {name: text.count("\n") for name, text in notes.items()}
    assert {name: count for name, count in lines.items() if count > MOST_LINES_OF_A_NOTE} == {}, "split the note"
    assert sum(lines.values()) <= MOST_LINES, "what a reader needs before a change stays; measurements and history go"
    assert {name: found for name, text in notes.items() if (found := COMMIT.findall(text))} == {}


def test_each_design_note_has_the_same_sections() -> None:
    sections = ["Problem", "Decision", "How it works", "Rejected"]
    notes = {note.name: note.read_text() for note in (ROOT / "docs/design").glob("*.md")}
    found = {name: re.findall(r"^## (.+)$", text, re.MULTILINE) for name, text in notes.items()}
    assert {name: own for name, own in found.items() if own != sections and name not in ("README.md", "words.md")} == {}


def test_each_file_that_a_design_note_names_without_its_folder_exists() -> None:
    named = {
        name for note in (ROOT / "docs/design").glob("*.md") for name in re.findall(r"`(\w+\.py)`", note.read_text())
    }
    places = ("jobs", "statestore", "plugins", "dags", "scripts", "benchmarks", "docker", "tests", "tussock")
    files = {file.name for place in places for file in (ROOT / place).rglob("*.py")}
    assert sorted(named - files) == []


def test_the_index_of_the_design_notes_names_each_of_them_once() -> None:
    folder = ROOT / "docs/design"
    linked = re.findall(r"\]\(([a-z-]+\.md)\): |\]\(([a-z-]+\.md)\)(?:,| and) ", (folder / "README.md").read_text())
    assert sorted(a or b for a, b in linked) == sorted({note.name for note in folder.glob("*.md")} - {"README.md"})


def test_generated_pages_are_up_to_date() -> None:
    for path, text in reference_pages.pages().items():
        assert path.read_text() == text, f"{path.name} is not what `make docs` makes"


def test_every_key_of_pipeline_toml_is_on_its_page() -> None:
    text = reference_pages.pipeline_page()
    shown = re.findall(r"^- `([^`]+)`: ", text, re.MULTILINE)
    assert [
        key
        for key in known_keys()
        if key not in ("spark", "freshness", "arrival", "notify", "watch", "variables", "catalogs", "env")
        and not any(fnmatchcase(one, key) for one in shown)
    ] == []


def test_the_page_of_pipeline_toml_shows_the_defaults_of_the_code() -> None:
    text = " ".join(reference_pages.pipeline_page().split())
    for line in (
        "`epoch.limit`: maximum time per task; Airflow then stops and retries it. Expected: a time span: a number and "
        'a unit, as in 90s, 15m, 36h or 7d, and at most 999999d. Default: `"1d"` ',
        "`schedule.catchup`: optional; also run the intervals that have already passed. Expected: true or false. "
        "Default: `false`. Example: `true`",
        "start of the first interval; required with cron. Expected: a date, or a date with a time. Example",
        "Default: unchanged; 2 in a new store",
        "Default: `268_435_456`",
        'Default: `["failed", "held", "paused", "late", "evolved"]`',
        "`arrival.orders.min_rows`: readable rows per interval. Expected: a whole number",
    ):
        assert line in text, line


def test_every_error_of_the_code_has_its_way_out() -> None:
    names = {error.name for error in errors_page.user_errors()}
    assert {"BadRowError", "LostRaceError", "BrokenPipelinesError"} <= names, "of every room"
    assert set(errors_page.ways_out()) == names, "docs/errors.yaml: a line for each class, and for no other"
    assert [error.name for error in errors_page.user_errors() if not error.meaning] == [], (
        "an error's docstring gives its meaning"
    )


def test_the_errors_of_the_page_are_those_that_the_code_makes_classes_of() -> None:
    import tussock.jobs.cli  # noqa: F401  with most of the rooms
    from tussock.statestore.errors import TussockError

    def below(kind: type) -> set[str]:
        return {kind.__name__ for kind in kind.__subclasses__() if kind.__module__.startswith("tussock.")}.union(
            *(below(sub) for sub in kind.__subclasses__())
        )

    found = below(TussockError) - set(errors_page.BRANCHES)
    assert len(found) > 30
    assert found <= {error.name for error in errors_page.user_errors()}


def test_the_function_of_the_first_change_has_no_kernel_yet() -> None:
    assert "gives `bin` a kernel" in (ROOT / "CONTRIBUTING.md").read_text()
    assert '"bin": {call: "bin(l)", how: "Spark"}' in (ROOT / "docs/functions.yaml").read_text(), (
        "choose another one for CONTRIBUTING.md"
    )
