"""Spark's answers, recorded per minor version: `tests/spark_truth/<4.2>/<name>.arrow`.

A test in tests/unit compares the engine with the record, so it runs all its cases at every commit and needs no JVM. A
test in tests/spark compares the record with the installed Spark: a few cases at every commit, and all in the deep run.
`make truth` asks the installed Spark what the record does not have; `make truth ANEW=--anew` asks everything.

A record belongs to its questions: the SQL texts, the rows and the settings. An answer to other questions is an error.
"""

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pyarrow as pa

from tests.support.release import installed

FOLDER = Path(__file__).parents[1] / "spark_truth"


def recorded_versions() -> list[str]:
    """The minor versions of Spark with a record, oldest first."""
    return sorted((folder.name for folder in FOLDER.iterdir()), key=lambda name: tuple(map(int, name.split("."))))


def version_to_compare() -> str:
    """The version whose record the unit tests use: the installed one, or the newest before it."""
    release = installed()
    versions = recorded_versions()
    earlier = [name for name in versions if not release or tuple(map(int, name.split("."))) <= release]
    return (earlier or versions)[-1]


@cache
def known_answers(name: str) -> dict[str, bytes]:
    """The answers of a file that are recorded for the installed version; none without the file."""
    version = ".".join(map(str, installed()))
    return read_answers(name, version) if (FOLDER / version / f"{name}.arrow").exists() else {}


def read_answers(name: str, version: str) -> dict[str, bytes]:
    """The recorded answers of a file, by question."""
    table = pa.ipc.open_file(pa.memory_map(str(FOLDER / version / f"{name}.arrow"))).read_all()
    return dict(zip(table["question"].to_pylist(), table["answer"].to_pylist(), strict=True))


def write_answers(name: str, answers: Mapping[str, bytes]) -> None:
    """Write a file of the installed version, compressed."""
    path = FOLDER / ".".join(map(str, installed())) / f"{name}.arrow"
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = {"question": pa.array([*answers], pa.string()), "answer": pa.array([*answers.values()], pa.binary())}
    options = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", 19))
    table = pa.table(columns)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema, options=options) as writer:
        writer.write_table(table)


def digest_of(text: str) -> str:
    """A short digest of rows as text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
