"""Parts of verification that need no query: files that an earlier release read in UTC, and Delta tables read by the
package.
"""

import json
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tussock.jobs.lake.delta_columns import NOTE
from tussock.jobs.lake.delta_log import DeltaPlace
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.plan import source_zone
from tussock.jobs.sources.delta_by_spark import _by_the_package
from tussock.jobs.sources.listing import split_bucket
from tussock.jobs.sources.pins import PinnedFile
from tussock.jobs.spark import collected
from tussock.jobs.texts.verification import verification_text
from tussock.jobs.verify.record import Verdict, Verification, ViewCheck

ZONE = "Europe/Berlin"


@pytest.mark.parametrize(
    ("format", "options", "marks", "zone", "found"),
    [
        ("csv", {}, {}, "UTC", False),
        ("csv", {}, {}, ZONE, True),  # no epoch of this release has run yet
        ("json", {}, {"zoned_from": 1}, ZONE, True),
        ("xml", {}, {"zoned_from": 0}, ZONE, False),
        ("csv", {"TIMEZONE": "UTC"}, {}, ZONE, False),
        ("parquet", {}, {}, ZONE, False),
    ],
)
def test_a_source_with_files_read_in_utc_is_known(
    monkeypatch: pytest.MonkeyPatch, format: str, options: dict[str, str], marks: dict[str, int], zone: str, found: bool
) -> None:
    source = CreateSource("s", format, (Field("k", "int"),), {"path": "/x", **options}, **marks)
    rows, without = PinnedFile("/x/0", 1, "e", 0, rows=1), PinnedFile("/x/0", 1, "e", 0, rows=0)
    for taken, expected in (((rows,), found), ((without,), False)):
        monkeypatch.setattr(source_zone, "taken_files", lambda _, taken=taken: taken)
        assert source_zone.holds_files_in_utc(source, zone, cast(Any, None)) is expected


def test_the_command_to_run_before_a_repair_is_named() -> None:
    found = Verification((ViewCheck("v", Verdict.DIFFERENT, missing=1, read_in_utc=("s",)),))
    assert "`tussock restate s --time-zone --store /x`" in verification_text(found, "--store /x")


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
