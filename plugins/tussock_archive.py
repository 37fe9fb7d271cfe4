"""The code that a Spark job brings along: `jobs` and `statestore` as one zip, so that workers run what was submitted and nothing else."""

import hashlib
import io
import os
import zipfile
from pathlib import Path

PACKAGES = ("jobs", "statestore")
_EPOCH_OF_ZIP = (1980, 1, 1, 0, 0, 0)  # a fixed time: the same code makes the same bytes, and so the same name


def build_archive(root: Path, folder: Path) -> Path:
    """The zip of `root`'s packages in `folder`, named after what is in it; made only where it is not there yet.

    Cost: reads some hundred small files.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(path for package in PACKAGES for path in (root / package).rglob("*.py")):
            archive.writestr(zipfile.ZipInfo(str(path.relative_to(root)), _EPOCH_OF_ZIP), path.read_bytes())
    data = buffer.getvalue()
    target = folder / f"tussock-{hashlib.sha256(data).hexdigest()[:16]}.zip"
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        part = target.with_suffix(f".{os.getpid()}")  # two tasks may build it at once
        part.write_bytes(data)
        part.replace(target)
    return target
