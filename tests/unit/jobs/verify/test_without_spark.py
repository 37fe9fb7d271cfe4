"""Parts of verification that need no query: Delta tables read by the package."""

import json
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tussock.jobs.delta.delta_columns import NOTE
from tussock.jobs.delta.delta_log import DeltaPlace
from tussock.jobs.sources.delta_by_spark import _by_the_package
from tussock.jobs.sources.listing import split_bucket
from tussock.jobs.spark import collected


def test_the_package_reads_a_delta_table_as_spark_would(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.table({"p": ["k", "kk"], "c": ["ab", None], "n": [1, 2]})
    write_deltalake(str(tmp_path), rows, partition_by=["p"])
    log = tmp_path / "_delta_log/00000000000000000000.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "metaData" in action:
            schema = json.loads(action["metaData"]["schemaString"])
            for field in schema["fields"]:
                field["metadata"] |= {NOTE: {"p": "char(3)", "c": "char(5)"}.get(field["name"], "")}
                field["metadata"] = {k: v for k, v in field["metadata"].items() if v}
            action["metaData"]["schemaString"] = json.dumps(schema)
    log.write_text("\n".join(map(json.dumps, actions)))
    monkeypatch.setattr(collected, "frame_of", lambda _, table: table)
    found = (
        cast(Any, _by_the_package(cast(Any, None), DeltaPlace(*split_bucket(str(tmp_path)), {}), 0))
        .sort_by("n")
        .to_pylist()
    )
    assert found == [{"p": "k  ", "c": "ab   ", "n": 1}, {"p": "kk ", "c": None, "n": 2}]
