"""Ten public data sets in dated versions: each as a `snapshot` source over three versions, compared with Spark.

    python -m benchmarks public-dumps FOLDER

Versions of one package's data file are dated dumps. The script gets the packages that FOLDER lacks by `npm pack` and
`pip download`, writes each version as a delivery of two files with a marker, and creates two sources over them: with
and without a key. Each view must equal Spark's over the last version.
"""

import argparse
import csv
import io
import json
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from tests.support.runners import here
from tussock.jobs.session import Session

Row = Mapping[str, object]
_VIEWS = {
    "every_row": "SELECT * FROM {0}",
    "groups": "SELECT {2}, count(*) AS n, count(DISTINCT {1}) AS d, min({1}) AS a, max({1}) AS z FROM {0} GROUP BY {2}",
    "ranked": "SELECT {1}, {2}, row_number() OVER (PARTITION BY {2} ORDER BY {1}) AS n FROM {0}",
    "pairs": "SELECT a.{1}, b.n FROM {0} a JOIN (SELECT {2}, count(*) AS n FROM {0} GROUP BY {2}) b ON a.{2} <=> b.{2}",
}


@dataclass(frozen=True, slots=True)
class DataSet:
    """A data file of a package.

    Args:
        file: its name in the package.
        columns: of a row, in DDL.
        key: the columns of its key. The first one is compared in views.
        group: another column, to group by.
        rows: reads the file's text.
    """

    package: str
    versions: tuple[str, str, str]
    file: str
    columns: str
    key: tuple[str, ...]
    group: str
    rows: Callable[[str], Iterator[Row]]
    of_npm: bool = True


def _mime_types(text: str) -> Iterator[Row]:
    for name, of in json.loads(text).items():
        yield {"type": name, "source": of.get("source"), "compressible": of.get("compressible")}


def _countries(text: str) -> Iterator[Row]:
    for of in json.loads(text):
        name, area = of["name"]["common"], of["area"]
        yield {
            "code": of["cca3"],
            "name": name,
            "region": of["region"],
            "area": float(area),
            "landlocked": of["landlocked"],
        }


def _subtags(text: str) -> Iterator[Row]:
    for of in json.loads(text):
        if "Subtag" in of:
            prefixes = ",".join(of.get("Prefix", []))
            yield {"subtag": of["Subtag"], "type": of["Type"], "prefix": prefixes, "added": of["Added"]}


def _licenses(text: str) -> Iterator[Row]:
    for name, of in json.loads(text).items():
        yield {"id": name, "name": of["name"], "osi": of["osiApproved"]}


def _currencies(text: str) -> Iterator[Row]:
    for of in json.loads(text[text.index("[") : text.rindex("]") + 1]):
        yield {
            "code": of["code"],
            "currency": of["currency"],
            "digits": of["digits"],
            "countries": len(of["countries"]),
        }


def _web_features(text: str) -> Iterator[Row]:
    for name, of in json.loads(text)["data"].items():
        yield {"feature": name, "title": of["title"], "status": of["status"], "usage": float(of["usage_perc_y"])}


def _zones(text: str) -> Iterator[Row]:
    for line in csv.reader(io.StringIO(text), delimiter="\t"):
        if not line[0].startswith("#"):
            yield {"zone": line[2], "country": line[0], "place": line[1]}


def _certificates(text: str) -> Iterator[Row]:
    for serial, digest, body in re.findall(
        r"# Serial: (\d+)\n.*?# SHA256 Fingerprint: (\S+)\n(.*?)-----END", text, re.DOTALL
    ):
        yield {"fingerprint": digest, "serial": serial, "bytes": len(body)}


def _languages(text: str) -> Iterator[Row]:
    for of in json.loads(text)["639-3"]:
        yield {"code": of["alpha_3"], "name": of["name"], "scope": of["scope"], "type": of["type"]}


def _emojis(text: str) -> Iterator[Row]:
    for emoji, of in json.loads(text).items():
        yield {"emoji": emoji, "name": of["en"], "status": of["status"], "since": float(of["E"])}


DATA_SETS = (
    DataSet(
        *("mime-db", ("1.52.0", "1.53.0", "1.54.0"), "db.json"),
        *("type string, source string, compressible boolean", ("type",), "source", _mime_types),
    ),
    DataSet(
        *("world-countries", ("4.0.0", "5.0.0", "5.1.0"), "countries.json"),
        *("code string, name string, region string, area double, landlocked boolean", ("code",), "region", _countries),
    ),
    DataSet(
        *("language-subtag-registry", ("0.3.21", "0.3.22", "0.3.23"), "data/json/registry.json"),
        *("subtag string, type string, prefix string, added string", ("subtag", "type", "prefix"), "added", _subtags),
    ),
    DataSet(
        *("spdx-license-list", ("6.6.0", "6.8.0", "6.9.0"), "spdx.json"),
        *("id string, name string, osi boolean", ("id",), "osi", _licenses),
    ),
    DataSet(
        *("currency-codes", ("1.5.1", "2.1.0", "2.2.0"), "data.js"),
        *("code string, currency string, digits int, countries int", ("code",), "digits", _currencies),
    ),
    DataSet(
        *("caniuse-db", ("1.0.30001600", "1.0.30001650", "1.0.30001700"), "data.json"),
        *("feature string, title string, status string, usage double", ("feature",), "status", _web_features),
    ),
    DataSet(
        *("tzdata", ("2023.3", "2024.1", "2025.2"), "tzdata/zoneinfo/zone.tab"),
        *("zone string, country string, place string", ("zone",), "country", _zones, False),
    ),
    DataSet(
        *("certifi", ("2023.7.22", "2024.7.4", "2025.1.31"), "certifi/cacert.pem"),
        *("fingerprint string, serial string, bytes int", ("fingerprint",), "bytes", _certificates, False),
    ),
    DataSet(
        *("pycountry", ("22.3.5", "23.12.11", "24.6.1"), "pycountry/databases/iso639-3.json"),
        *("code string, name string, scope string, type string", ("code",), "scope", _languages, False),
    ),
    DataSet(
        *("emoji", ("2.13.0", "2.14.0", "2.14.1"), "emoji/unicode_codes/emoji.json"),
        *("emoji string, name string, status int, since double", ("emoji",), "since", _emojis, False),
    ),
)


def fetch_package(of: DataSet, version: str, folder: Path) -> Path:
    """Return the archive of a package, and get it first if the folder lacks it."""

    def archives() -> list[Path]:
        return sorted(p for p in folder.glob(f"{of.package}-{version}*") if p.suffix in (".tgz", ".whl", ".gz"))

    if not archives():
        npm = ["npm", "pack", "--silent", f"{of.package}@{version}"]
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", f"{of.package}=={version}"]
        subprocess.run(npm if of.of_npm else pip, cwd=folder, check=True)
    return archives()[0]


def text_in(archive: Path, file: str) -> str:
    """Return the text of a package's file."""
    if archive.suffix == ".whl":
        return zipfile.ZipFile(archive).read(file).decode()
    with tarfile.open(archive) as opened:
        member = next(m for m in opened.getmembers() if m.name.endswith(f"/{file}"))
        content = opened.extractfile(member)
        assert content is not None
        return content.read().decode()


def write_delivery(rows: list[Row], folder: Path) -> None:
    """Write the rows as two files of JSON lines, then the marker."""
    folder.mkdir(parents=True)
    half = len(rows) // 2
    for name, some in (("a", rows[:half]), ("b", rows[half:])):
        lines = (json.dumps({k: v for k, v in row.items() if v is not None}, ensure_ascii=False) + "\n" for row in some)
        (folder / f"{name}.json").write_text("".join(lines))
    (folder / "_SUCCESS").touch()


def check_data_set(spark: SparkSession, of: DataSet, packages: Path, work: Path) -> str:
    """Take three versions, and compare each view with Spark. Returns a line of figures; raises AssertionError."""
    started, sent = time.perf_counter(), list[int]()
    options = f"path '{work}/dumps/{{version}}', changes 'snapshot', snapshot_done '_SUCCESS', may_be_missing 'true'"
    with Session(str(work / "store"), spark, runner=here(spark)) as session:
        for name, key in (("keyed", f", PRIMARY KEY ({', '.join(of.key)})"), ("bag", "")):
            session.execute(f"CREATE SOURCE {name} ({of.columns}{key}) USING json OPTIONS ({options})")
            for view, select in _VIEWS.items():
                text = select.format(name, of.key[0], of.group)
                session.execute(f"CREATE MATERIALIZED VIEW {name}_{view} AS {text}")
        for version in of.versions:
            rows = list(of.rows(text_in(fetch_package(of, version, packages), of.file)))
            write_delivery(rows, work / "dumps" / version)
            summary = session.flush()
            assert not summary.held, summary.held
            counts = summary.rows.get("keyed_every_row")  # None: nothing changed
            sent.append(0 if counts is None else counts.rows_out)
        frame = spark.read.schema(of.columns).json(str(work / "dumps" / of.versions[-1]))
        for name in ("keyed", "bag"):
            frame.createOrReplaceTempView(name)
            for view, select in _VIEWS.items():
                expected = spark.sql(select.format(name, of.key[0], of.group)).toArrow().to_pylist()
                found = session.read(f"{name}_{view}").to_pylist()
                ordered = sorted(repr(tuple(row.values())) for row in found)
                assert ordered == sorted(repr(tuple(row.values())) for row in expected), f"{of.package}: {name}_{view}"
    took = time.perf_counter() - started
    return f"{of.package:26} {len(rows):6} rows, sent to a view per version: {sent}, 8 views equal, {took:.0f} s"


def main(arguments: list[str]) -> int:
    """Check all data sets."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks public-dumps", description=__doc__.splitlines()[0] if __doc__ else None
    )
    parser.add_argument("folder", type=Path, help="of the packages")
    parser.add_argument("--only", nargs="*", help="names of packages; default: all")
    options = parser.parse_args(arguments)
    packages = options.folder.absolute()
    packages.mkdir(parents=True, exist_ok=True)
    builder = (
        SparkSession.builder.master("local[2]").config("spark.driver.memory", "1g").config("spark.ui.enabled", "false")
    )
    spark = (
        builder.config("spark.sql.shuffle.partitions", "2").config("spark.sql.session.timeZone", "UTC").getOrCreate()
    )
    for of in (d for d in DATA_SETS if options.only is None or d.package in options.only):
        with tempfile.TemporaryDirectory() as work:
            print(check_data_set(spark, of, packages, Path(work)), flush=True)
    return 0
