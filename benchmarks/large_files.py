"""`python -m benchmarks large-files`: memory of epochs over one file with many decoded bytes, in each format.

Each file has a pipeline with one source, and a view that groups its rows. `tussock epoch` takes the file with the
settings of a new pipeline, which divide it over several epochs. The private memory (RssAnon) of the command and of all
its processes is sampled; a JVM, which Spark starts for some formats, counts alone. The view must have each row once.

Texts of 1,000 equal characters are 100 times smaller in the file, or more. `rows.csv` and `rows.parquet` have rows of
about 10 bytes. Linux only.
"""

import argparse
import bz2
import gzip
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pyspark

from benchmarks.cpu import tree_usage
from benchmarks.memory import rss_anon
from tests.support.jobs.sources.avro_files import write_avro
from tussock.jobs.session import Session

TEXT = "x" * 1_000
_BATCH = 10_000
_LOOK_S = 0.05
_PIPELINE = """name = "large"
store = "{0}/store"
sql = ["all.sql"]
[epoch]
units = 2
{1}"""
_SQL = """CREATE SOURCE s ({columns}) USING {format} OPTIONS (path '{folder}/in'{options});
CREATE MATERIALIZED VIEW groups AS SELECT {key} AS g, count(*) AS n FROM s GROUP BY {key};
"""


def write_text(record: bytes, pack: Callable[..., object], path: Path, rows: int) -> None:
    """Write equal records, compressed by a module's `open`."""
    with pack(path, "wb") as file:  # type: ignore[attr-defined]
        for count in _batches(rows):
            file.write(record * count)


def write_xml(path: Path, rows: int) -> None:
    """Write one document."""
    with gzip.open(path, "wb") as file:
        file.write(b"<rows>\n")
        for count in _batches(rows):
            file.write(_XML * count)
        file.write(b"</rows>\n")


def write_numbers(path: Path, rows: int) -> None:
    """Write lines of about 10 bytes."""
    with path.open("wb") as file:
        for start in range(0, rows, 100 * _BATCH):
            numbers = range(start, min(start + 100 * _BATCH, rows))
            file.write("".join([f"{n % 7},{n}\n" for n in numbers]).encode())


def write_parquet(path: Path, rows: int) -> None:
    """Write one row group, whose texts share a dictionary."""
    pq.write_table(pa.table({"k": pa.repeat(1, rows), "v": pa.repeat(TEXT, rows).dictionary_encode()}), path)


def write_parquet_numbers(path: Path, rows: int) -> None:
    """Write one row group of two numbers per row."""
    numbers = pa.array(range(rows), pa.int64())
    pq.write_table(pa.table({"k": pa.array([n % 7 for n in range(rows)], pa.int64()), "v": numbers}), path)


def write_orc(path: Path, rows: int) -> None:
    """Write stripes of equal rows."""
    with orc.ORCWriter(path, compression="zlib") as writer:
        for count in _batches(rows):
            writer.write(pa.table({"k": pa.repeat(1, count), "v": pa.repeat(TEXT, count)}))


def _batches(rows: int) -> Iterator[int]:
    return (min(_BATCH, rows - start) for start in range(0, rows, _BATCH))


@dataclass(frozen=True, slots=True)
class Input:
    """A kind of file.

    Args:
        key: the expression by which the view groups.
        options: of the source, after a comma.
        settings: more of pipeline.toml.
    """

    format: str
    write: Callable[[Path, int], None]
    columns: str = "k bigint, v string"
    key: str = "length(v)"
    options: str = ""
    settings: str = ""


_AVRO = f'[spark]\n"spark.jars.packages" = "org.apache.spark:spark-avro_2.13:{pyspark.__version__}"\n'
_CSV, _JSON, _XML = f"1,{TEXT}\n".encode(), f'{{"k":1,"v":"{TEXT}"}}\n'.encode(), f"<r><v>{TEXT}</v></r>\n".encode()
BOMBS = {
    "a.csv.gz": Input("csv", partial(write_text, _CSV, gzip.open)),
    "a.csv.bz2": Input("csv", partial(write_text, _CSV, bz2.open)),
    "a.json.gz": Input("json", partial(write_text, _JSON, gzip.open)),
    "a.parquet": Input("parquet", write_parquet),
    "a.txt.gz": Input("text", partial(write_text, _CSV, gzip.open), "value string", "length(value)"),
    "a.xml.gz": Input("xml", write_xml, "v string", options=", rowTag 'r'"),
    "a.orc": Input("orc", write_orc),
    "a.avro": Input("avro", partial(write_avro, value=TEXT), "v string", settings=_AVRO),
}
NARROW = {
    "rows.csv": Input("csv", write_numbers, "k bigint, v bigint", "k"),
    "rows.parquet": Input("parquet", write_parquet_numbers, "k bigint, v bigint", "k"),
}


@dataclass(frozen=True, slots=True)
class Measured:
    """Figures of one file. Peaks are the largest sums over all processes at one moment, in bytes."""

    stored: int
    python_peak: int
    java_peak: int
    seconds: float
    epochs: int
    right: bool


def measure(of: Input, name: str, rows: int, folder: Path) -> Measured:
    """Write a file, and take it with `tussock epoch`. Raises RuntimeError if a command fails."""
    pipeline = folder / "pipelines/large"
    pipeline.mkdir(parents=True)
    (folder / "in").mkdir()
    (pipeline / "pipeline.toml").write_text(_PIPELINE.format(folder, of.settings))
    sql = _SQL.format(columns=of.columns, format=of.format, folder=folder, options=of.options, key=of.key)
    (pipeline / "all.sql").write_text(sql)
    _watch(("apply", "large"), folder)
    file = folder / "in" / name
    of.write(file, rows)
    started = time.perf_counter()
    python_peak, java_peak = _watch(("epoch", "--pipeline", "large"), folder)
    with Session(str(folder / "store"), create=False, runner="local", workers=1) as session:
        counted = sum(session.read("groups")["n"].to_pylist())
        epochs = sum(1 for _ in (folder / "store/meta/manifest").rglob("*.json"))
    return Measured(file.stat().st_size, python_peak, java_peak, time.perf_counter() - started, epochs, counted == rows)


def _watch(command: Sequence[str], folder: Path) -> tuple[int, int]:
    """Run a command of the pipeline. Returns the peaks of its Python processes and of its JVM."""
    peaks = [0, 0]
    with tempfile.TemporaryFile("w+") as printed:
        process = subprocess.Popen(
            [sys.executable, "-m", "tussock.jobs.cli", *command], stdout=printed, stderr=printed, cwd=folder
        )
        while process.poll() is None:
            sums = [0, 0]
            for pid in tree_usage(process.pid):
                sums[_is_java(pid)] += rss_anon(pid)
            peaks = [max(pair) for pair in zip(peaks, sums, strict=True)]
            time.sleep(_LOOK_S)
        printed.seek(0)
        if process.returncode:
            raise RuntimeError(
                f"{' '.join(command)} ended with exit code {process.returncode}: {printed.read()[-3000:]}"
            )
    return peaks[0], peaks[1]


def _is_java(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() == "java"
    except OSError:  # it has just ended
        return False


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks large-files", description="Measure the memory of epochs over large files."
    )
    parser.add_argument("--mb", type=int, default=2_000, help="decoded MB of each file of texts (default 2,000)")
    parser.add_argument("--rows", type=int, default=30_000_000, help="rows of 10 bytes (default 30 M)")
    parser.add_argument("--files", nargs="*", choices=[*BOMBS, *NARROW], default=[*BOMBS, *NARROW])
    parser.add_argument("--scratch", type=Path, help="folder of files and stores; default: a temporary folder")
    chosen = parser.parse_args(arguments)
    all_right = True
    for name in chosen.files:
        rows = chosen.mb * 1_000 if name in BOMBS else chosen.rows
        with tempfile.TemporaryDirectory(prefix="tussock-large-", dir=chosen.scratch) as folder:
            found = measure({**BOMBS, **NARROW}[name], name, rows, Path(folder))
        all_right &= found.right
        print(
            f"{name:<13} {found.stored / 1e6:>7.1f} MB, {rows:>10,} rows: Python {found.python_peak / 1e6:>6,.0f} MB, "
            f"JVM {found.java_peak / 1e6:>6,.0f} MB, {found.epochs} epochs, {found.seconds:.0f} s"
            f"{'' if found.right else ', WRONG ROWS'}",
            flush=True,
        )
    return 0 if all_right else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
