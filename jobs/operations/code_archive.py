"""Archives that a Spark job brings along: the package `tussock`, and in cluster mode the folder of its pipeline.

So workers run exactly the submitted code, and a driver on another host has the pipeline's files.
"""

import hashlib
import io
import os
import zipfile
from collections.abc import Iterable
from pathlib import Path

import tussock

PACKAGE = Path(tussock.__file__).parent
ROOMS = ("jobs", "statestore")
_EPOCH_OF_ZIP = (1980, 1, 1, 0, 0, 0)  # fixed, so that the same code gives the same bytes and the same name


def build_archive(folder: Path, package: Path = PACKAGE) -> Path:
    """Write the zip of a package to `folder`, named after its content. An existing archive is not written again.

    Args:
        package: the folder of the package `tussock`. In a checkout its subpackages are links, so each is walked
            separately.

    Cost: reads several hundred small files.
    """
    files = [*package.glob("*.py"), *(file for room in ROOMS for file in (package / room).rglob("*.py"))]
    return _write_archive(folder, "tussock", package, files)


def archive_pipeline(folder: Path, pipeline: Path) -> Path:
    """Write the zip of a pipeline's folder to `folder`, as `build_archive`. Inside, it has the folder's name."""
    files = [file for file in pipeline.rglob("*") if file.is_file() and "__pycache__" not in file.parts]
    return _write_archive(folder, pipeline.name, pipeline, files)


def _write_archive(folder: Path, name: str, root: Path, files: Iterable[Path]) -> Path:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(files):
            archive.writestr(zipfile.ZipInfo(f"{name}/{path.relative_to(root)}", _EPOCH_OF_ZIP), path.read_bytes())
    data = buffer.getvalue()
    target = folder / f"{name}-{hashlib.sha256(data).hexdigest()[:16]}.zip"
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        part = target.with_suffix(f".{os.getpid()}")  # two tasks may build the archive concurrently
        part.write_bytes(data)
        part.replace(target)
    return target
