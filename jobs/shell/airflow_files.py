"""`tussock airflow-files`: write two files into Airflow's DAG folder that import the DAGs of the installed package.

The files import the DAGs instead of copying them, so they stay valid after an upgrade. Broken pipelines need a second
file: it reports them as its import error, and Airflow creates no DAG from a file with an import error.
"""

from importlib.util import find_spec
from pathlib import Path

from tussock.jobs.settings.user_files import errors_of_reading, write_text
from tussock.statestore.errors import InputError

_MARK = "Written by `tussock airflow-files`"
_FILES = {
    "tussock_pipelines.py": f'''\
"""The DAGs epoch_, upkeep_, deploy_, preview_, rebalance_ and verify_<pipeline> of each pipeline in TUSSOCK_PIPELINES.

{_MARK}. The package contains the DAGs, so this file stays valid after an upgrade.
"""

from tussock_dags.deploy import *  # Airflow collects DAGs from the names of this file
from tussock_dags.epoch import *
from tussock_dags.preview import *
from tussock_dags.rebalance import *
from tussock_dags.upkeep import *
from tussock_dags.verify import *
''',
    "tussock_broken_pipelines.py": f'''\
"""Reports pipelines that cannot have DAGs, as the import error of this file. It defines no DAG.

{_MARK}. Airflow reads a file only if it contains the words airflow and dag.
"""

import tussock_dags.broken_pipelines
''',
}


class NotInstalledError(InputError):
    """Tussock runs from a checkout and is not installed, so Airflow cannot import its DAGs."""

    checkout: str

    def __str__(self) -> str:
        return (
            f"Tussock runs from the checkout {self.checkout}. Run `make up` to start an Airflow that reads the "
            "checkout's DAGs; scripts/airflow.sh runs its commands. To use another Airflow, install the package into "
            "its Python environment (`pip install .`) and run this command again. Nothing was written."
        )


class ForeignFileError(InputError):
    """A file with this name exists and was not written by this command."""

    path: str

    def __str__(self) -> str:
        return (
            f"{self.path} was not written by this command and was not changed. Move it away and try again. Nothing was "
            "written."
        )


class NoDagFolderError(InputError, hides_row_values=True):
    """The folder for the files does not exist."""

    folder: str

    def __str__(self) -> str:
        return (
            f"The folder {self.folder} does not exist. `airflow config get-value core dags_folder` prints Airflow's "
            "folder. Nothing was written."
        )


def write_airflow_files(folder: Path) -> tuple[Path, ...]:
    """Write both files into `folder`, and replace files that an earlier call wrote.

    Raises: NotInstalledError, NoDagFolderError, ForeignFileError; UserFileError.
    """
    if find_spec("tussock_dags") is None:
        raise NotInstalledError(str(Path(__file__).resolve().parents[2]))
    if not folder.is_dir():
        raise NoDagFolderError(str(folder))
    paths = tuple(folder / name for name in _FILES)
    for path in paths:
        with errors_of_reading(path):
            if path.exists() and _MARK not in path.read_text(encoding="utf-8", errors="replace"):
                raise ForeignFileError(str(path))
    for path, text in zip(paths, _FILES.values(), strict=True):
        write_text(path, text)
    return paths
