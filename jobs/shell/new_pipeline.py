"""`tussock new`: create a pipeline from the folder `template`, or over the files of a path."""

import json
import re
import shutil
from collections.abc import Mapping
from importlib.resources import as_file, files
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

import msgspec

from tussock.jobs.settings.pipeline import FILE, NAME
from tussock.jobs.settings.user_files import errors_of_writing
from tussock.statestore.errors import InputError

if TYPE_CHECKING:
    from tussock.jobs.sources.preview import SourcePreview

_TEMPLATE = files("tussock.jobs.shell") / "template"  # `make_pipeline` replaces @name@ and @NAME@ in its files
_COMMENTED = re.compile(r"^([^#\n]*[^#\s]) {2,}(# .*)$", re.MULTILINE)


class BadPipelineNameError(InputError):
    """The name is not a valid pipeline name."""

    name: str

    def __str__(self) -> str:
        words = re.sub(r"[^a-z0-9_]+", "_", self.name.lower()).strip("_")
        hint = f", such as {words}" if NAME.fullmatch(words) else ""
        return (
            f"pipeline name {self.name!r}: expected a lower-case letter, then lower-case letters, digits and _{hint}. "
            "Nothing was created."
        )


class PipelineThereError(InputError):
    """A folder with this name exists."""

    folder: str

    def __str__(self) -> str:
        return f"{self.folder} already exists and was not changed. Choose another name, or remove the folder."


def make_pipeline(name: str, pipelines: Path, over: "SourcePreview | None") -> tuple[Path, ...]:
    """Create `pipelines/name` atomically: from the template, or over the files of an inferred source.

    Args:
        over: the source. The pipeline gets its statement, a view that counts its records, and a test of the view.

    Returns: the paths of its files, relative to the new folder, in name order.

    Raises: BadPipelineNameError, PipelineThereError; UserFileError.
    """
    if NAME.fullmatch(name) is None:
        raise BadPipelineNameError(name)
    folder = pipelines / name
    if folder.exists():
        raise PipelineThereError(str(folder))
    texts = {
        path: text.replace("@name@", name).replace("@NAME@", name.upper()) for path, text in _file_texts(over).items()
    }
    texts[Path(FILE)] = _with_aligned_comments(texts[Path(FILE)])  # names have other lengths than their places
    with errors_of_writing(folder):
        _write_files(folder, texts)
    return tuple(sorted(texts))


def _with_aligned_comments(text: str) -> str:
    """Begin the comments that follow settings in one column, two spaces after the longest of these settings."""
    width = max((len(match[1]) for match in _COMMENTED.finditer(text)), default=0)
    return _COMMENTED.sub(lambda match: f"{match[1].ljust(width)}  {match[2]}", text)


def _file_texts(over: "SourcePreview | None") -> dict[Path, str]:
    """Return the files of a new pipeline by their paths within its folder."""
    with as_file(_TEMPLATE) as template:
        text_by_path = {
            path.relative_to(template): path.read_text(encoding="utf-8")
            for path in template.rglob("*")
            if path.is_file()
        }
    return text_by_path if over is None else _texts_over(text_by_path[Path(FILE)], over)


def _write_files(folder: Path, texts: Mapping[Path, str]) -> None:
    """Create the folder with its files completely or not at all. Raises OSError."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    hidden = Path(mkdtemp(prefix=".new-", dir=folder.parent))
    try:
        for path, text in texts.items():
            place = hidden / folder.name / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
        (hidden / folder.name).rename(folder)
    finally:
        shutil.rmtree(hidden, ignore_errors=True)


def counting_view(source: str) -> str:
    """The name of the view in a pipeline over files."""
    return f"{source}_count"


def _texts_over(settings: str, over: "SourcePreview") -> dict[Path, str]:
    """Return the files of a pipeline over a source. `settings`: pipeline.toml of the template."""
    from tussock.jobs.sources.preview import source_text

    source, view = over.source.name, counting_view(over.source.name)
    root, path = _split_path(over.source.options["path"])
    placed = msgspec.structs.replace(over.source, options={**over.source.options, "path": path})
    lines = [
        line
        for line in re.sub(r"\n\[quality\].*?(?=\n\[|\Z)", "", settings, flags=re.DOTALL).splitlines()
        if not line.startswith(("description", "data", "sql"))
    ]
    at = next(i for i, line in enumerate(lines) if line.startswith("store"))
    lines[at + 1 : at + 1] = [f"data = {json.dumps(root, ensure_ascii=False)}", 'sql = ["sources.sql", "views.sql"]']
    notes = "".join(f"-- {note}\n" for note in over.notes)
    return {
        Path(FILE): "\n".join(lines) + "\n",
        Path("sources.sql"): f"{notes}{source_text(placed)}\n",
        Path("views.sql"): "-- Replace this view by your own: any SELECT of Spark over the sources, tables and views "
        f"of the pipeline.\nCREATE MATERIALIZED VIEW {view} AS SELECT count(*) AS records FROM {source};\n",
        Path("tests", f"{view}.yaml"): "# Rows in, rows expected: `tussock test @name@` (docs/view-tests.md).\n"
        f"- name: every record counts\n  view: {view}\n  rows: {{{source}: [{{}}, {{}}]}}\n"
        "  expect: [{records: 2}]\n",
    }


def _split_path(path: str) -> tuple[str, str]:
    """A path as the value of `data` in pipeline.toml, and the path that contains `${data}`."""
    from tussock.jobs.sources.listing import without_query

    folder, _, rest = without_query(path).rpartition("/")
    while re.search(r"[*?\[{]", folder):
        folder, _, part = folder.rpartition("/")
        rest = f"{part}/{rest}"
    return folder, "${data}/" + rest + path[len(without_query(path)) :]
