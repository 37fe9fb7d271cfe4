"""`tussock new`: create a small example pipeline from the folder `template`."""

import re
import shutil
from importlib.resources import as_file, files
from pathlib import Path
from tempfile import mkdtemp

from tussock.jobs.settings.pipeline import NAME
from tussock.statestore.errors import InputError

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


def make_pipeline(name: str, pipelines: Path) -> tuple[Path, ...]:
    """Create `pipelines/name` from the template atomically.

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
            shutil.copytree(template, hidden / name)
        made = sorted(path for path in (hidden / name).rglob("*") if path.is_file())
        for path in made:
            if path.suffix in _TEXTS:
                path.write_text(path.read_text().replace("@name@", name).replace("@NAME@", name.upper()))
        (hidden / name).rename(folder)
        return tuple(path.relative_to(hidden / name) for path in made)
    finally:
        shutil.rmtree(hidden, ignore_errors=True)
