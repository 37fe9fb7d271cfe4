"""`tussock new`: create a pipeline from the folder `template`, or over the files of a path."""

import json
import re
import shutil
from importlib.resources import as_file, files
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

import msgspec

from tussock.jobs.settings.pipeline import NAME
from tussock.statestore.errors import InputError

if TYPE_CHECKING:
    from tussock.jobs.sources.preview import SourcePreview

_TEMPLATE = files("tussock.jobs.shell") / "template"
_TEXTS = {".toml", ".sql", ".json", ".yaml"}  # files in which @name@ and @NAME@ are replaced by the pipeline's name


class BadPipelineNameError(InputError):
    """The name is not a valid pipeline name."""

    def __init__(self, found: str) -> None:
        super().__init__(found)
        self.found = found

    def __str__(self) -> str:
        words = re.sub(r"[^a-z0-9_]+", "_", self.found.lower()).strip("_")
        hint = f", such as {words}" if NAME.fullmatch(words) else ""
        return (
            f"pipeline name {self.found!r}: expected a lower-case letter, then lower-case letters, digits and _{hint}. "
            "Nothing was created."
        )


class PipelineThereError(InputError):
    """A folder with this name exists."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self.folder = folder

    def __str__(self) -> str:
        return f"{self.folder} already exists and was not changed. Choose another name, or remove the folder."


def make_pipeline(name: str, pipelines: Path, over: "SourcePreview | None" = None) -> tuple[Path, ...]:
    """Create `pipelines/name` atomically: from the template, or over the files of an inferred source.

    Args:
        over: the source. The pipeline gets its statement, a view that counts its records, and a test of the view.

    Returns: the paths of its files, relative to the new folder, in name order.

    Raises: BadPipelineNameError, PipelineThereError; OSError if the folder cannot be written.
    """
    if NAME.fullmatch(name) is None:
        raise BadPipelineNameError(name)
    folder = pipelines / name
    if folder.exists():
        raise PipelineThereError(str(folder))
    pipelines.mkdir(parents=True, exist_ok=True)
    hidden = Path(mkdtemp(prefix=".new-", dir=pipelines))
    try:
        with as_file(_TEMPLATE) as template:
            if over is None:
                shutil.copytree(template, hidden / name)
            else:
                _write_over(hidden / name, (template / "pipeline.toml").read_text(), over)
        made = sorted(path for path in (hidden / name).rglob("*") if path.is_file())
        for path in made:
            if path.suffix in _TEXTS:
                path.write_text(path.read_text().replace("@name@", name).replace("@NAME@", name.upper()))
        (hidden / name).rename(folder)
        return tuple(path.relative_to(hidden / name) for path in made)
    finally:
        shutil.rmtree(hidden, ignore_errors=True)


def counting_view(source: str) -> str:
    """The name of the view in a pipeline over files."""
    return f"{source}_count"


def _write_over(folder: Path, settings: str, over: "SourcePreview") -> None:
    """Write the files of a pipeline over a source. `settings`: pipeline.toml of the template."""
    from tussock.jobs.sources.preview import source_text

    source, view = over.source.name, counting_view(over.source.name)
    root, path = _divided(over.source.options["path"])
    placed = msgspec.structs.replace(over.source, options={**over.source.options, "path": path})
    lines = [
        line
        for line in re.sub(r"\n\[quality\].*?(?=\n\[|\Z)", "", settings, flags=re.DOTALL).splitlines()
        if not line.startswith(("description", "data", "sql"))
    ]
    at = next(i for i, line in enumerate(lines) if line.startswith("store"))
    lines[at + 1 : at + 1] = [f"data = {json.dumps(root)}", 'sql = ["sources.sql", "views.sql"]']
    notes = "".join(f"-- {note}\n" for note in over.notes)
    (folder / "tests").mkdir(parents=True)
    (folder / "pipeline.toml").write_text("\n".join(lines) + "\n")
    (folder / "sources.sql").write_text(f"{notes}{source_text(placed)}\n")
    (folder / "views.sql").write_text(
        "-- Replace this view by your own: any SELECT of Spark over the sources, tables and views of the pipeline.\n"
        f"CREATE MATERIALIZED VIEW {view} AS SELECT count(*) AS records FROM {source};\n"
    )
    (folder / "tests" / f"{view}.yaml").write_text(
        "# Rows in, rows expected: `tussock test @name@` (docs/view-tests.md).\n"
        f"- name: every record counts\n  view: {view}\n  rows: {{{source}: [{{}}, {{}}]}}\n  expect: [{{records: 2}}]\n"
    )


def _divided(path: str) -> tuple[str, str]:
    """A path as the value of `data` in pipeline.toml, and the path that contains `${data}`."""
    from tussock.jobs.sources.listing import without_query

    folder, _, rest = without_query(path).rpartition("/")
    while re.search(r"[*?\[{]", folder):
        folder, _, part = folder.rpartition("/")
        rest = f"{part}/{rest}"
    return folder, "${data}/" + rest + path[len(without_query(path)) :]
