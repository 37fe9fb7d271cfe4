"""The error text for each damage of a file or table, by format. `--update-cases` writes cases/damages.txt."""

import bz2
import gzip
import json
import os
import re
import textwrap
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from tests.support.with_packages import run_alone
from tests.unit.end_to_end.test_random_troubles import OF_DELTA, Input
from tussock.jobs.session import Session

TEXTS_OF_DAMAGES = Path(__file__).parent / "cases" / "damages.txt"
OPTIONS = {"xml": ", rowTag 'row'", "csv": ", header 'true'"}
Damage = Callable[[Path], object]

ROWS = pa.table({"a": pa.array([1, 2, 3], pa.int32()), "s": ["x", "y", "z"]})
TEXTS = {
    "csv": b"a,s\n1,x\n2,y\n",
    "json": b'{"a": 1, "s": "x"}\n{"a": 2, "s": "y"}\n',
    "xml": b"<r><row><a>1</a><s>x</s></row><row><a>2</a><s>y</s></row></r>",
    "text": b"x\ny\n",
}


def of(column: str, values: Any, kind: pa.DataType | None = None) -> pa.Table:
    other = "s" if column == "a" else "a"
    return pa.table({column: pa.array(values, kind), other: ROWS[other].slice(0, len(values))}).select(["a", "s"])


def parquet(table: pa.Table, **options: Any) -> Damage:
    return lambda folder: pq.write_table(table, folder / "b.parquet", **options)


def spoilt(change: Callable[[bytearray], bytes | bytearray]) -> Damage:
    def damage(folder: Path) -> None:
        name, data = whole_file(folder.name)
        (folder / name).write_bytes(change(bytearray(data)))

    return damage


def whole_file(format: str) -> tuple[str, bytes]:
    if format in TEXTS:
        return f"b.{format}", TEXTS[format]
    sink = pa.BufferOutputStream()
    pq.write_table(ROWS, sink) if format == "parquet" else orc.write_table(ROWS, sink)
    return f"b.{format}", sink.getvalue().to_pybytes()


def flipped(data: bytearray, at: int) -> bytearray:
    data[at] ^= 0xFF
    return data


def text(name: str, data: bytes) -> Damage:
    return lambda folder: (folder / name).write_bytes(data)


def late(data: bytes) -> bytearray:
    found = bytearray(data)
    found[-6] ^= 0x20
    return found


def spoilt_bytes() -> dict[str, Callable[[bytearray], bytes | bytearray]]:
    """Damages of a file's bytes, in any format."""
    return {
        "cut in the middle": lambda d: d[: len(d) // 2],
        "cut by one byte": lambda d: d[:-1],
        "only its first 3 bytes": lambda d: d[:3],
        "first byte flipped": lambda d: flipped(d, 0),
        "middle byte flipped": lambda d: flipped(d, len(d) // 2),
        "last bytes zero": lambda d: d[:-8] + b"\0" * 8,
        "HTML page": lambda d: b"<html><body>404 Not Found</body></html>",
    }


OF_BYTES: dict[str, Damage] = {
    **{what: spoilt(change) for what, change in spoilt_bytes().items()},
    "a name that is not UTF-8": lambda folder: (folder / os.fsdecode(b"caf\xe9.bin")).write_bytes(b"x"),
}
DAMAGES: dict[str, dict[str, Damage]] = {
    "parquet": {
        **OF_BYTES,
        "column a is a string": parquet(of("a", ["1", "2"])),
        "column a is a double": parquet(of("a", [1.0, 2.0])),
        "column a is wider": parquet(of("a", [1, 2], pa.int64())),
        "column a is a date": parquet(of("a", [1, 2], pa.date32())),
        "column a is missing": parquet(ROWS.select(["s"])),
        "column s is a list": parquet(of("s", [["x"], ["y"]])),
        "column s is not UTF-8": parquet(of("s", [b"x", b"\xff"], pa.binary())),
        "column a twice": parquet(pa.table([ROWS["a"], ROWS["a"], ROWS["s"]], names=["a", "A", "s"])),
    },
    "orc": {**OF_BYTES, "column a is a string": lambda f: orc.write_table(of("a", ["1", "2"]), f / "b.orc")},
    "csv": {
        "a word in an int": text("b.csv", b"a,s\n1,x\ntwo,y\n"),
        "a number beyond the type": text("b.csv", b"a,s\n3000000000,x\n"),
        "too few columns": text("b.csv", b"a,s\n1\n"),
        "too many columns": text("b.csv", b"a,s\n1,x,y\n"),
        "a header in another order": text("b.csv", b"s,a\nx,1\n"),
        "no header": text("b.csv", b"1,x\n2,y\n"),
        "Latin-1": text("b.csv", b"a,s\n1,caf\xe9\n"),
        "UTF-16": text("b.csv", "a,s\n1,x\n".encode("utf-16")),
        "gzip with a wrong checksum": text("b.csv.gz", late(gzip.compress(TEXTS["csv"] * 99))),
        "gzip cut short": text("b.csv.gz", gzip.compress(os.urandom(999).hex().encode())[:400]),
        "not gzip, with the suffix .gz": text("b.csv.gz", TEXTS["csv"]),
        "bzip2 damaged": text("b.csv.bz2", late(bz2.compress(TEXTS["csv"] * 99))),
        "a name that is not UTF-8": OF_BYTES["a name that is not UTF-8"],
    },
    "json": {
        "cut within a record": text("b.json", TEXTS["json"][:-6]),
        "a word in an int": text("b.json", b'{"a": "two", "s": "x"}\n'),
        "a number beyond the type": text("b.json", b'{"a": 3000000000, "s": "x"}\n'),
        "an object in an int": text("b.json", b'{"a": {"b": 1}, "s": "x"}\n'),
        "not JSON": text("b.json", b"a=1\n"),
        "Latin-1": text("b.json", b'{"a": 1, "s": "caf\xe9"}\n'),
        "gzip with a wrong checksum": text("b.json.gz", late(gzip.compress(TEXTS["json"] * 99))),
        "not gzip, with the suffix .gz": text("b.json.gz", TEXTS["json"]),
    },
    "xml": {
        "a word in an int": text("b.xml", b"<r><row><a>two</a></row></r>"),
        "a tag that is not closed": text("b.xml", b"<r><row><a>1</row></r>"),
        "gzip with a wrong checksum": text("b.xml.gz", late(gzip.compress(TEXTS["xml"] * 99))),
        "not gzip, with the suffix .gz": text("b.xml.gz", TEXTS["xml"]),
    },
    "text": {
        "not UTF-8": text("b.txt", b"caf\xe9\n"),
        "gzip with a wrong checksum": text("b.txt.gz", late(gzip.compress(TEXTS["text"] * 99))),
        "not gzip, with the suffix .gz": text("b.txt.gz", TEXTS["text"]),
    },
}


def folded(reason: str) -> str:
    return "\n".join(
        textwrap.fill(line, 94, break_long_words=False, break_on_hyphens=False) for line in reason.split("\n")
    )


def seen(session: Session, root: Path, name: str) -> str:
    """The hold that a run shows for a source, or `(taken)`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        held = session.flush().held
    reason = " | ".join(hold.reason for hold in held[name]) if name in held else "(taken)"
    reason = reason.replace(str(root), "…").replace("\0", "\\0")
    return re.sub(r"ETag [0-9-]+[#?]*\w*", "ETag …", re.sub(r"part-\S+?\.parquet", "part-….parquet", reason))


def damaged(spark: SparkSession, root: Path, format: str, what: str, damage: Damage) -> str:
    folder = root / format
    folder.mkdir(parents=True)
    columns = "(value string)" if format == "text" else "(a int, s string)"
    with Session(str(root / "store"), spark) as session:
        options = f"path '{folder}', may_be_missing 'true'{OPTIONS.get(format, '')}"
        session.execute(f"CREATE SOURCE s {columns} USING {format} OPTIONS ({options})")
        session.execute("CREATE MATERIALIZED VIEW v AS SELECT * FROM s")
        damage(folder)
        return seen(session, root, "s")


def damaged_table(root: Path, damage: Callable[[Input], object]) -> str:
    table = Input(root, 1)
    for number in range(3):
        write_deltalake(
            str(table.folder),
            pa.table({"id": pa.array([number], pa.int32()), "v": pa.array([1], pa.int32())}),
            mode="append",
        )
        if number == 0:
            session = Session(str(root / "store"), runner="local")
            session.execute(
                f"CREATE SOURCE s USING delta OPTIONS (path '{table.folder}'); "
                f"CREATE MATERIALIZED VIEW v AS SELECT * FROM s"
            )
            session.flush()
    damage(table)
    with session:
        return seen(session, root, "s")


@pytest.mark.deep
@pytest.mark.spark
def test_the_list_of_damages_has_the_users_messages(
    spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    lines = []
    for format, damages in DAMAGES.items():
        for number, (what, damage) in enumerate(damages.items()):
            lines.append((format, what, damaged(spark, tmp_path / f"{format}{number}", format, what, damage)))
    run_alone("tests.support.end_to_end.avro_damages_alone", tmp_path / "avro", "org.apache.spark#spark-avro")
    lines += [("avro", what, said) for what, said in json.loads((tmp_path / "avro" / "found.json").read_text()).items()]
    for number, (what, of_table) in enumerate(OF_DELTA.items()):
        lines.append(("delta", what, damaged_table(tmp_path / f"delta{number}", of_table)))
    for format, what, reason in lines:
        assert "java.base" not in reason, (format, what)
        assert "\tat " not in reason, (format, what)
        assert len(reason) < 1200, (format, what)
    assert len(lines) >= 60
    found = "".join(f"### {format}: {what}\n\n{folded(reason)}\n\n" for format, what, reason in lines)
    text = HEAD + found.rstrip() + "\n"
    if request.config.getoption("--update-cases"):
        TEXTS_OF_DAMAGES.write_text(text)
    assert json.dumps(TEXTS_OF_DAMAGES.read_text()) == json.dumps(text)


HEAD = """\
# The error text for each damage of a file or table, or "(taken)" if Spark can read the file all the same.
# The option --update-cases of test_damages.py writes this file.

"""
