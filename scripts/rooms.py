"""Check the contracts of rooms in pyproject.toml ([tool.importlinter]) with import-linter.

import-linter does not follow the links `tussock/jobs` and `tussock/statestore`, and reads packages alone. So it
reads a copy of the code in a temporary folder. There the links are folders, and the modules of `plugins/` and
`dags/` are part of the package: `tussock_steps` is `tussock.plugins.tussock_steps`.
"""

import re
import sys
from contextlib import chdir
from pathlib import Path
from shutil import copytree, ignore_patterns
from tempfile import TemporaryDirectory

from importlinter.cli import lint_imports

ROOT = Path(__file__).resolve().parents[1]
_FLAT = re.compile(r"^(\s*(?:from|import)) (tussock_\w+)", re.MULTILINE)  # an import of a plugin


def copy_rooms(root: Path, folder: Path) -> None:
    """Copy the package into an empty folder, with folders for its links, and with plugins and DAGs."""
    leftovers = ignore_patterns("__pycache__")
    package = copytree(root / "tussock", folder / "tussock", ignore=leftovers)
    for name in ("plugins", "dags"):
        copytree(root / name, package / name, ignore=leftovers)
        (package / name / "__init__.py").touch()


def check(folder: Path) -> int:
    """Print import-linter's report about such a copy. Returns 0 if every contract holds."""
    for file in folder.rglob("*.py"):
        if (text := file.read_text()) != (renamed := _FLAT.sub(r"\1 tussock.plugins.\2", text)):
            file.write_text(renamed)
    with chdir(folder):  # import-linter looks for the package here first
        return lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True)


def main() -> int:
    """Check the rooms of this checkout."""
    with TemporaryDirectory(prefix="tussock-rooms-") as folder:
        copy_rooms(ROOT, Path(folder))
        return check(Path(folder))


if __name__ == "__main__":
    sys.exit(main())
