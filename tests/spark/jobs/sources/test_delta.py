"""Delta tables as sources, without a JVM.

The deltalake package writes them. At every epoch they are compared with that package's read of the version that was
taken. Tables that Spark writes: delta_alone.py.
"""

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tussock.jobs.session import Session


@pytest.mark.spark
@pytest.mark.parametrize("folder", ["sales [2024]", "{x}", "a*b?c"])
def test_a_table_is_read_in_a_folder_whose_name_has_characters_of_a_glob(tmp_path: Path, folder: str) -> None:
    write_deltalake(
        str(tmp_path / "plain"), pa.table({"c": ["ab"]})
    )  # the package cannot write a table into such a folder
    shutil.copytree(tmp_path / "plain", tmp_path / folder)
    with Session(str(tmp_path / "store"), runner="local") as session:
        session.execute(
            f"CREATE SOURCE s USING delta OPTIONS (path '{tmp_path / folder}'); "
            f"CREATE MATERIALIZED VIEW v AS SELECT * FROM s"
        )
        session.flush()
        assert session.read("v").to_pylist() == [{"c": "ab"}]
