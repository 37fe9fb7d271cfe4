"""`tussock airflow-files`: two files for an Airflow's DAG folder, which import the DAGs that the installed package carries.

Copies of `dags/` would go stale with the next release; what these import does not. There are two, for what is wrong with a pipeline is said
by an import error, and a file with an import error makes no DAG.
"""

from importlib.util import find_spec
from pathlib import Path

from tussock.statestore.errors import InputError

_MARK = "Written by `tussock airflow-files`"
_FILES = {
    "tussock_pipelines.py": f'''\
"""The DAGs epoch_, upkeep_, deploy_, rebalance_ and verify_<pipeline> of each pipeline in the folder TUSSOCK_PIPELINES.

{_MARK}. The DAGs come with the package, so that a new release of it needs no new file here.
"""

from tussock_dags.deploy import *  # Airflow looks for DAGs among the names of this file
from tussock_dags.epoch import *
from tussock_dags.rebalance import *
from tussock_dags.upkeep import *
from tussock_dags.verify import *
''',
    "tussock_broken_pipelines.py": f'''\
"""What is wrong with pipelines that have no DAGs, as the import error of this file, which makes none.

{_MARK}. Airflow asks for the words airflow and dag in a file that it is to read.
"""

import tussock_dags.broken_pipelines
''',
}


class NotInstalledError(InputError):
    """The package is not installed but run from a checkout, so an Airflow cannot import its DAGs."""

    def __init__(self, checkout: str) -> None:
        super().__init__(checkout)
        self.checkout = checkout

    def __str__(self) -> str:
        return (
            f"this is the checkout {self.checkout}, whose DAGs Airflow reads where they are: `make up` starts one, and scripts/airflow.sh "
            "runs its commands. For another Airflow, install the package into its Python (`pip install .` makes and installs the wheel). "
            "Nothing was written."
        )


class ForeignFileError(InputError):
    """There is a file of this name that somebody else wrote."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"{self.path} was not written by this command, and stays as it is; move it away and try again. Nothing was written."


class NoDagFolderError(InputError):
    """The folder for the files is not there."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self.folder = folder

    def __str__(self) -> str:
        return f"there is no folder {self.folder}; `airflow config get-value core dags_folder` says where Airflow looks. Nothing was written."


def write_airflow_files(folder: Path) -> tuple[Path, ...]:
    """Write the files into `folder`, over those that this function wrote before.

    Raises: NotInstalledError, NoDagFolderError, ForeignFileError; OSError where the folder can't be written.
    """
    if find_spec("tussock_dags") is None:
        raise NotInstalledError(str(Path(__file__).resolve().parents[2]))
    if not folder.is_dir():
        raise NoDagFolderError(str(folder))
    paths = tuple(folder / name for name in _FILES)
    for path in paths:
        if path.exists() and _MARK not in path.read_text(errors="replace"):
            raise ForeignFileError(str(path))
    for path, text in zip(paths, _FILES.values(), strict=True):
        path.write_text(text)
    return paths
