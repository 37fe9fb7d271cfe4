"""Every type of ORC files under every declared type: read like Spark and Arrow, or held."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import orc

from tests.support.jobs.sources.counted import calls_during
from tests.support.jobs.sources.pinned import pinned
from tussock.jobs.logical.nodes import Field
from tussock.jobs.sources.errors import SchemaMismatchError, UnreadableFileError
from tussock.jobs.sources.orc import OrcFiles


def test_columns_of_hive_go_by_place_and_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.orc"
    orc.write_table(pa.table({"_col0": [1], "_col1": ["x"]}), path)
    OrcFiles().require_types(pinned(path), [Field("id", "bigint"), Field("name", "string")], {})
    with pytest.raises(SchemaMismatchError, match="column 'name': found string, expected int"):
        OrcFiles().require_types(pinned(path), [Field("id", "bigint"), Field("name", "int")], {})
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(UnreadableFileError, match="cannot be read as orc"):
        OrcFiles().require_types(pinned(path), [Field("id", "bigint")], {})


@pytest.mark.parametrize("stem", ["c", "_col"])
def test_the_work_of_judging_a_file_grows_with_the_columns_and_not_with_their_square(stem: str, tmp_path: Path) -> None:
    def calls(columns: int) -> int:
        names = [f"{stem}{i}" for i in range(columns)]
        orc.write_table(pa.table({name: [1] for name in names}), path := str(tmp_path / f"{columns}.orc"))
        pin, fields = pinned(path), [Field(name, "bigint") for name in names]
        return calls_during(lambda: OrcFiles().require_types(pin, fields, {}))

    calls(1)  # for imports and caches
    assert calls(400) < 3 * calls(200)
