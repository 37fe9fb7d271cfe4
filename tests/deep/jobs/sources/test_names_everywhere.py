"""Every place that a user can name, with names that parsers split or decode.

Each cell ends with the written rows, or with a refusal. With `-s` it prints the table of places and names.
"""

import io
import json
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import quote, unquote

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow import orc
from pyspark.sql import SparkSession

from tests.support.jobs.sinks.delta_readers import package_rows
from tests.support.jobs.sinks.publishing import publish
from tests.support.s3_servers import BUCKET, moto_process
from tussock.jobs.delta.location import location_of
from tussock.jobs.logical.quoting import quote_name, string_text
from tussock.jobs.session import Session
from tussock.jobs.settings.publishing import KINDS
from tussock.statestore.errors import InputError

NAMES = [
    "plain",
    "with space",
    "per%20cent",
    "per cent",
    "100%",
    "%25",
    "a%2Fb",
    "p%41",
    "ha#sh",
    "ha",
    "qu?estion",
    "a&b=c+d",
]
NAMES += [
    "semi;colon",
    "co:lon",
    "it's",
    'do"uble',
    "back`tick",
    "back\\slash",
    "[brackets]",
    "{braces}",
    "^|",
    "st*ar",
    "tab\tname",
]
NAMES += [
    "line\nname",
    "\xe9",
    "e\u0301",
    "\U0001f600",
    " lead",
    "trail ",
    "trail.",
    "a__b",
    "Twin",
    "twin",
    "select",
    "a=b",
    "x" * 200,
]

#: Cells that end with a refusal, by place.
REFUSED = {
    "published delta": {"per%20cent", "%25", "a%2Fb", "p%41", "back\\slash", "tab\tname"},
    "local published delta": {"[brackets]", "^|", "line\nname"},
    "bucket folder, delta": {"line\nname"},  # the test server does not support such a key
    # Next to a local file, Spark looks for its checksum `.co:lon.crc`, and parses that name as an address.
    **{f"local file, {form}": {"co:lon"} for form in ("csv", "json", "orc")},
}

Outcome = list[object] | str


def as_bytes(form: str, value: int) -> bytes:
    table, out = pa.table({"k": pa.array([value], pa.int64())}), io.BytesIO()
    match form:
        case "parquet":
            pq.write_table(table, out)
        case "orc":
            orc.write_table(table, out)
        case "csv":
            return f"{value}\n".encode()
        case _:
            return json.dumps({"k": value}).encode() + b"\n"
    return out.getvalue()


def twins(name: str) -> set[str]:
    """Names that a parser could produce from a name."""
    made = {
        unquote(name),
        quote(name),
        name.partition("#")[0],
        name.partition("?")[0],
        name.strip(),
        name.replace("\t", ""),
        name.casefold(),
    }
    return {twin for twin in made if twin and "/" not in twin and twin != name and len(twin.encode()) < 250} - {
        *NAMES,
        ".",
        "..",
    }


def outcomes(
    spark: SparkSession, folder: Path, sources: Mapping[str, tuple[str, Mapping[str, str]]]
) -> dict[str, Outcome]:
    """The rows of a source over each name. Two sessions take part: one commits, the other reads."""
    found: dict[str, Outcome] = {}
    by_spark = {form for form, _ in sources.values()} - {"parquet", "delta"}
    with Session(str(folder), spark, runner="spark" if by_spark else "local") as session:
        views = {}
        for n, (name, (form, options)) in enumerate(sources.items()):
            given = ", ".join(f"{option} {string_text(value)}" for option, value in options.items())
            try:
                session.execute(f"CREATE SOURCE s{n} (k bigint) USING {form} OPTIONS ({given})")
                session.execute(f"CREATE MATERIALIZED VIEW v{n} AS SELECT k FROM s{n}")
                views[f"s{n}"] = name
            except InputError as err:
                found[name] = f"refused, {type(err).__name__}: {err}"
        held = session.flush().held
        for source, name in views.items():
            if source in held:
                found[name] = f"held: {held[source][0].reason}"
            else:
                found[name] = session.read(source.replace("s", "v")).column("k").to_pylist()
    return found


def check(place: str, found: Mapping[str, Outcome]) -> None:
    """Print a row of the table. Raises AssertionError unless each cell has its number or the expected refusal."""
    wrong = {}
    for n, name in enumerate(NAMES):
        refused = any(name in names for word, names in REFUSED.items() if word in place)
        outcome = found.get(name, "no outcome")
        right = isinstance(outcome, str) and outcome.startswith(("refused", "held")) if refused else outcome == [n]
        wrong |= {} if right else {name: outcome}
    cells = " ".join("r" if isinstance(found.get(name), str) else "." for name in NAMES)
    print(
        f"{place:28} {cells}   {len(NAMES)} cells, "
        f"{sum(isinstance(found.get(n), list) for n in NAMES)} rows, {len(wrong)} wrong"
    )
    assert not wrong, place


@pytest.fixture(autouse=True)
def quiet() -> None:
    warnings.simplefilter("ignore")


@pytest.mark.spark
@pytest.mark.deep
@pytest.mark.parametrize("form", ["parquet", "csv", "json", "orc", "delta"])
@pytest.mark.parametrize("what", ["folder", "file"])
def test_local_places(spark: SparkSession, tmp_path: Path, form: str, what: str) -> None:
    if (form, what) == ("delta", "file"):
        pytest.skip("a Delta table is a folder")
    sources = {}
    for n, name in enumerate(NAMES):
        at = tmp_path / "lake"
        for twin, value in [(name, n), *((twin, 900) for twin in twins(name))]:
            if form == "delta":
                write_deltalake(str(tmp_path / "made" / str(value)), pa.table({"k": [value]}), mode="overwrite")
                (at / twin).parent.mkdir(parents=True, exist_ok=True)
                if not (at / twin).exists():
                    (tmp_path / "made" / str(value)).rename(at / twin)
            else:
                file = at / twin / "part" if what == "folder" else at / twin
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(as_bytes(form, value))
        sources[name] = (form, {"path": f"{at}/{name}"})
    check(f"local {what}, {form}", outcomes(spark, tmp_path / "store", sources))


@pytest.mark.spark
@pytest.mark.deep
def test_places_in_a_bucket(spark: SparkSession, tmp_path: Path) -> None:
    """Spark reads the other formats with a jar that tests do not have."""
    with moto_process() as endpoint:
        client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
        server = {"endpoint": endpoint, "path_style": "true", "region": "us-east-1"}
        names = [name for name in NAMES if "\n" not in name]  # the server does not support such a key
        write_deltalake(str(tmp_path / "t"), pa.table({"k": [0]}))
        for what in ("folder", "key"):
            for n, name in enumerate(NAMES):
                for twin, value in [(name, n), *((twin, 900) for twin in twins(name))] if name in names else []:
                    key = f"{what}/{twin}/part" if what == "folder" else f"{what}/{twin}"
                    client.put_object(Bucket=BUCKET, Key=key, Body=as_bytes("parquet", value))
            sources = {name: ("parquet", {"path": f"s3://{BUCKET}/{what}/{name}", **server}) for name in names}
            check(
                f"bucket {what}, parquet",
                {**{"line\nname": [NAMES.index("line\nname")]}, **outcomes(spark, tmp_path / what, sources)},
            )
        sources = {}
        for n, name in enumerate(NAMES):
            for twin, value in [(name, n), *((twin, 900) for twin in twins(name))] if name in names else []:
                made = tmp_path / "made" / f"{n} {value}"
                if not made.exists():
                    write_deltalake(str(made), pa.table({"k": [value]}))
                for file in made.rglob("*"):
                    if file.is_file():
                        client.put_object(
                            Bucket=BUCKET, Key=f"delta/{twin}/{file.relative_to(made)}", Body=file.read_bytes()
                        )
            sources[name] = ("delta", {"path": f"s3://{BUCKET}/delta/{name}", **server})
        check("bucket folder, delta", outcomes(spark, tmp_path / "delta", sources))


@pytest.mark.spark
@pytest.mark.deep
@pytest.mark.parametrize("bucket", [False, True], ids=["local", "bucket"])
def test_partition_values_of_delta(spark: SparkSession, tmp_path: Path, bucket: bool) -> None:
    """One table, partitioned by the names. The second version deletes a row and inserts one."""
    rows = pa.table({"p": NAMES, "k": list(range(len(NAMES)))})
    with moto_process() as endpoint:
        place = f"s3://{BUCKET}/t" if bucket else f"{tmp_path}/t"
        location = location_of(f"{place}?endpoint={endpoint}&path_style=true" if bucket else place)
        server = {"endpoint": endpoint, "path_style": "true"} if bucket else {}
        write_deltalake(place, rows, partition_by=["p"], storage_options=location.delta_options or None)
        with Session(str(tmp_path / "store"), spark, runner="local") as session:
            given = ", ".join(f"{option} {string_text(value)}" for option, value in {"path": place, **server}.items())
            session.execute(
                f"CREATE SOURCE s USING delta OPTIONS ({given}); CREATE MATERIALIZED VIEW v AS SELECT * FROM s"
            )
            assert not session.flush().held
            taken = {p: [k] for k, p in in_pairs(session.read("v"))}
            assert in_pairs(session.read("v")) == in_pairs(rows)
            DeltaTable(place, storage_options=location.delta_options or None).delete("k % 2 = 0")
            assert not session.flush().held
            found = session.read("v")
            assert in_pairs(found) == [(k, p) for k, p in in_pairs(rows) if k % 2]
            check(f"{'bucket' if bucket else 'local'} partition values", taken)


def in_pairs(table: pa.Table) -> list[tuple[int, str]]:
    return sorted(zip(table["k"].to_pylist(), table["p"].to_pylist(), strict=True))


@pytest.mark.spark
@pytest.mark.deep
def test_stores_and_published_tables(spark: SparkSession, tmp_path: Path) -> None:
    """A store below a folder or prefix of each name, and tables published to such a place and read by other
    libraries.
    """
    found: dict[str, dict[str, Outcome]] = {}

    def cell(place: str, name: str, run: Callable[[], Outcome]) -> None:
        try:
            found.setdefault(place, {})[name] = run()
        except InputError as err:
            found.setdefault(place, {})[name] = f"refused, {type(err).__name__}: {err}"

    with moto_process() as endpoint:
        server = f"?endpoint={endpoint}&path_style=true"
        for n, name in enumerate(NAMES):
            in_bucket = name.replace("\n", "n")
            for place, root in (("local", f"{tmp_path}/{name}"), ("bucket", f"s3://{BUCKET}/{quote(in_bucket)}")):
                query = server if place == "bucket" else ""

                def stored(store: str = f"{root}/store{query}", n: int = n) -> Outcome:
                    with Session(store, spark, runner="local") as session:
                        session.execute(f"CREATE TABLE v (k INT, PRIMARY KEY (k)); INSERT INTO v VALUES ({n})")
                        session.flush()
                    with Session(store, spark, runner="local", create=False) as session:
                        return session.read("v").column("k").to_pylist()

                cell(f"{place} store", name, stored)
                if not isinstance(found[f"{place} store"][name], list):
                    continue
                for kind in ("delta", "parquet"):  # the kinds that need no catalog and no server

                    def published(root: str = root, query: str = query, kind: str = kind) -> Outcome:
                        settings = KINDS[kind](f"{root}/{kind}{query}", ("v",))
                        publish(f"{root}/store{query}", settings)
                        location = location_of(settings.to)
                        if kind == "delta":
                            table = DeltaTable(location.delta_url("v"), storage_options=location.delta_options or None)
                            return package_rows(table)["k"].to_pylist()
                        (file,) = (info.name for info in location.objects.list("v/"))
                        return pq.read_table(io.BytesIO(location.objects.get(file)))["k"].to_pylist()

                    cell(f"{place} published {kind}", name, published)
    for place, cells in found.items():
        check(place, cells)


@pytest.mark.spark
@pytest.mark.deep
def test_columns(spark: SparkSession, tmp_path: Path) -> None:
    """One table with all names as columns (except names that differ only by case), a view over it, and a Parquet
    source.
    """
    names = [name for name in NAMES if name != "twin"]
    pq.write_table(pa.table({name: [NAMES.index(name)] for name in names}), tmp_path / "columns.parquet")
    declared = ", ".join(f"{quote_name(name)} BIGINT" for name in names)
    picked = ", ".join(map(quote_name, reversed(names)))
    with Session(str(tmp_path / "store"), spark, runner="local") as session:
        session.execute(f"CREATE TABLE t ({declared}, PRIMARY KEY ({quote_name('it' + chr(39) + 's')}))")
        session.execute(f"INSERT INTO t VALUES ({', '.join(str(NAMES.index(name)) for name in names)})")
        session.execute(f"CREATE SOURCE s USING parquet OPTIONS (path '{tmp_path}/columns.parquet')")
        for relation in ("t", "s"):
            session.execute(f"CREATE MATERIALIZED VIEW v{relation} AS SELECT {picked} FROM {relation}")
        session.flush()
        for relation in ("t", "vt", "vs"):
            (row,) = session.read(relation).to_pylist()
            check(f"columns of {relation}", {**{name: [row[name]] for name in names}, "twin": [NAMES.index("twin")]})
