"""The demo: run days of real flights through the Airflow DAG and compare every view with Spark.

    make demo            three days
    python scripts/demo.py --days 5
    python scripts/demo.py --days 5 --compare     only step 5, for epochs that ran elsewhere; the store may be in S3

1. Writes the flights of 2013 as Parquet files, one per day.
2. Applies pipelines/flights: sources, tables, views.
3. Runs the DAG `epoch_flights` once per day, with that day as its interval.
4. Prints each epoch's rows and time, and the views.
5. Recomputes every view with Spark from the same files, and compares the result with the store and the Delta tables.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from pipelines.flights import load  # noqa: E402
from tussock.jobs.facts.epochs import list_epochs as newest_epochs  # noqa: E402
from tussock.jobs.facts.moment import epoch_moment  # noqa: E402
from tussock.jobs.logical.script import split_script  # noqa: E402
from tussock.jobs.session import Session  # noqa: E402
from tussock.jobs.settings.pipeline import Pipeline, find_pipeline  # noqa: E402
from tussock.jobs.settings.process import open_meta  # noqa: E402
from tussock.jobs.texts.table import text_table  # noqa: E402
from tussock.statestore.types import arrow_type, type_name  # noqa: E402

LOGS = ROOT / ".airflow" / "demo"
VIEW = re.compile(r"CREATE\s+MATERIALIZED\s+VIEW\s+IF\s+NOT\s+EXISTS\s+(\w+)\s+AS\s+(.*)", re.DOTALL | re.IGNORECASE)
FLOAT_TOLERANCE = 1e-9
ROWS_SHOWN = 10


class DemoError(Exception):
    """A step failed; the message names the step and its log."""


@dataclass(frozen=True, slots=True)
class EpochRow:
    """One epoch of the demo, as a row of the table."""

    day: date
    epoch: int
    rows_in: int  # changes of sources and tables
    rows_out: int  # changes of all views
    seconds: float  # the whole DAG run, including JVM starts


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Run days of real flights through Airflow and compare every view with Spark."
    )
    parser.add_argument("--days", type=int, default=3, help="how many days to run (default: %(default)s)")
    parser.add_argument(
        "--compare",
        action="store_true",
        help="run nothing; compare the views with Spark over the files of these days",
    )
    given = parser.parse_args()
    days = [load.FIRST_DAY + timedelta(days=n) for n in range(given.days)]
    os.environ.setdefault(
        "SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1"
    )  # short jobs end sooner without an optimizing JVM
    started = time.monotonic()
    if given.compare:
        equal = compare_views(find_pipeline("flights", ROOT / "pipelines"), days)
        print(f"\n{verdict_of(equal)} {time.monotonic() - started:.0f} seconds in all.")
        return 0 if equal else 1
    try:
        pipeline = fresh_pipeline()
        say(f"1. Writing the flights of 2013 to {shown(pipeline.data)}")
        for name, rows in load.load(Path(str(pipeline.data))).items():
            print(f"   {name:<9}{rows:>8,} rows")
        say(f"2. Applying pipelines/flights to the store {shown(pipeline.store)}")
        run("apply", [sys.executable, "-m", "tussock.jobs.cli", "apply", "flights"])
        say(f"3. Running the Airflow DAG epoch_flights over {given.days} days")
        epochs = [run_day(pipeline, day) for day in days]
        say("4. The epochs and the published views")
        print(epoch_table(epochs))
        equal = compare_views(pipeline, days)
    except DemoError as err:
        print(f"\ndemo: {err}", file=sys.stderr)
        return 1
    print(f"\n{verdict_of(equal)} {time.monotonic() - started:.0f} seconds in all.")
    print(where_to_look(pipeline))
    return 0 if equal else 1


def verdict_of(equal: bool) -> str:
    """The first sentence of the last line."""
    return "Every view is equal to Spark." if equal else "NOT every view is equal to Spark; see the differences above."


def fresh_pipeline() -> Pipeline:
    """The flights pipeline with an empty store. Removes the store only if a demo created it here."""
    pipeline = find_pipeline("flights", ROOT / "pipelines")
    store = Path(pipeline.store)
    if "://" in pipeline.store or (store.exists() and ROOT / ".tussock" not in store.parents):
        raise DemoError(
            f"The demo did not create the store {pipeline.store}. Unset FLIGHTS_STORE, or set it to a new folder."
        )
    shutil.rmtree(store, ignore_errors=True)
    if (tables := tables_of(pipeline)) is not None:
        shutil.rmtree(tables, ignore_errors=True)
    return pipeline


def tables_of(pipeline: Pipeline) -> Path | None:
    """The folder of the views' Delta tables; None if the demo did not create them."""
    if not pipeline.publish or ROOT / ".tussock" not in Path(pipeline.publish[0].to).parents:
        return None
    return Path(pipeline.publish[0].to)


def run_day(pipeline: Pipeline, day: date) -> EpochRow:
    """Run the DAG once for one day."""
    interval = {"start": f"{day}T00:00:00Z", "end": f"{day + timedelta(days=1)}T00:00:00Z"}
    started = time.monotonic()
    run(
        f"day-{day}",
        [str(ROOT / "scripts/airflow.sh"), "dags", "test", "epoch_flights", "--conf", json.dumps(interval)],
    )
    seconds = time.monotonic() - started
    meta = open_meta(pipeline.store)
    version = meta.read_latest()
    if version.published != version.epoch:
        raise DemoError(
            f"The run of {day} ended, but epoch {version.epoch} is not published. See {LOGS / f'day-{day}.log'}."
        )
    (done,) = newest_epochs(meta, 1)
    row = EpochRow(day, done.epoch, done.rows_in, done.rows_out, seconds)
    print(
        f"   {day}: epoch {row.epoch}, {row.rows_in:,} rows in, {row.rows_out:,} view changes, {seconds:.0f} s",
        flush=True,
    )
    return row


def epoch_table(epochs: Sequence[EpochRow]) -> str:
    """The epochs as an aligned text table."""
    columns = {
        "day": [str(e.day) for e in epochs],
        "epoch": [e.epoch for e in epochs],
        "committed (UTC)": [epoch_moment(e.epoch).strftime("%H:%M:%S") for e in epochs],
        "rows in": [e.rows_in for e in epochs],
        "view changes out": [e.rows_out for e in epochs],
        "DAG run, s": [round(e.seconds, 1) for e in epochs],
    }
    return text_table(pa.table(columns))


def compare_views(pipeline: Pipeline, days: Sequence[date]) -> bool:
    """Print every view and compare it with plain Spark over the same files. True: all are equal."""
    all_equal = True
    with Session(pipeline.store, create=False) as session:
        spark = session.spark.newSession()
        for name in ("flights", "weather"):
            spark.read.parquet(*(f"{pipeline.data}/{name}/{day}.parquet" for day in days)).createOrReplaceTempView(name)
        for name in ("airlines", "airports", "planes"):
            spark.createDataFrame(load.read_table(name)).createOrReplaceTempView(name)
        for path, script in pipeline.read_scripts():
            for statement in split_script(script) if path.name == "views.sql" else ():
                if (found := VIEW.search(statement.text)) is None:
                    continue
                view, select = found[1], found[2]
                spark.sql(select).createOrReplaceTempView(view)
                truth = spark.table(view).toArrow()
                order = re.search(
                    r"ORDER BY (.*?) LIMIT", " ".join(select.split())
                )  # show the rows of a top-n view in its order
                ours = session.query(f"SELECT * FROM {view}" + (f" ORDER BY {order[1]}" if order else ""))
                differences = [difference_of(rows, truth) for rows in (ours, *delta_rows(pipeline, view))]
                difference = next(filter(None, differences), None)
                all_equal &= difference is None
                print(
                    f"\n{view}: {ours.num_rows} rows, "
                    f"{'equal to Spark' if difference is None else f'NOT EQUAL: {difference}'}"
                )
                print(text_table((ours if order else in_order(ours)).slice(0, ROWS_SHOWN)))
                if ours.num_rows > ROWS_SHOWN:
                    print(f"… {ours.num_rows - ROWS_SHOWN} more")
    return all_equal


def delta_rows(pipeline: Pipeline, view: str) -> list[pa.Table]:
    """The rows of the view's Delta table, or an empty list if it has none."""
    if (tables := tables_of(pipeline)) is None:
        return []
    table = DeltaTable(tables / view)
    rows = pa.table(QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all())
    rows = rows.cast(pa.schema(table.schema().to_arrow()))
    return [rows.cast(pa.schema([(field.name, arrow_type(type_name(field.type))) for field in rows.schema]))]


def difference_of(ours: pa.Table, truth: pa.Table) -> str | None:
    """The first difference of two tables as multisets of rows, or None.

    Floats may differ by FLOAT_TOLERANCE (relative).
    """
    if ours.schema.names != truth.schema.names:
        return f"columns {ours.schema.names} instead of {truth.schema.names}"
    if [str(field.type) for field in ours.schema] != [str(field.type) for field in truth.schema]:
        return f"types {ours.schema.types} instead of {truth.schema.types}"
    if ours.num_rows != truth.num_rows:
        return f"{ours.num_rows} rows instead of {truth.num_rows}"
    left, right = in_order(ours), in_order(truth)
    for name in ours.schema.names:
        one, other = left[name].combine_chunks(), right[name].combine_chunks()
        same = pc.equal(one, other)
        if pa.types.is_floating(one.type):
            close = pc.less_equal(
                pc.abs(pc.subtract(one, other)),
                pc.multiply(FLOAT_TOLERANCE, pc.max_element_wise(pc.abs(one), pc.abs(other))),
            )
            same = pc.or_kleene(same, close)
        same = pc.or_kleene(same.fill_null(False), pc.and_(one.is_null(), other.is_null()))
        if pc.all(same).as_py() is False:
            row = pc.index(same, False).as_py()
            return f"column {name}: {one[row]} instead of {other[row]}"
    return None


def in_order(rows: pa.Table) -> pa.Table:
    """Rows sorted by their non-float columns, which are keys in all views of the pipeline, and then by the floats."""
    names = [f.name for f in rows.schema if not pa.types.is_floating(f.type)] + [
        f.name for f in rows.schema if pa.types.is_floating(f.type)
    ]
    return rows.sort_by([(name, "ascending") for name in names])


def run(step: str, command: Sequence[str]) -> None:
    """Run a step with its output in a log, and show the end of the log if it fails."""
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"{step}.log"
    with log.open("w") as out:
        # Do not add our runs to another Airflow home.
        code = subprocess.run(
            command, cwd=ROOT, env=os.environ | {"AIRFLOW_HOME": str(ROOT)}, stdout=out, stderr=subprocess.STDOUT
        ).returncode
    if code:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-25:])
        raise DemoError(f"Step {step} failed (exit code {code}). The end of {log}:\n{tail}")


def where_to_look(pipeline: Pipeline) -> str:
    """A list of places to explore next."""
    docs = pipeline.quality.docs / "index.html" if pipeline.quality is not None else None
    return "\n".join(
        [
            "",
            "Next steps",
            f"  quality reports   {docs}",
            f"  logs of the runs  {LOGS}",
            f"  the store         {pipeline.store}",
            f"  Delta tables      {tables_of(pipeline) or 'none'}",
            "  plans of views    .venv/bin/tussock explain --pipeline flights",
            '  query a view      .venv/bin/tussock query --pipeline flights "SELECT * FROM worst_routes"',
            "  Airflow's UI      make up   (http://localhost:8080; unpause epoch_flights to run the next days)",
        ]
    )


def shown(place: str | None) -> str:
    """A path, relative to the checkout if it is inside."""
    return str(place).removeprefix(f"{ROOT}/")


def say(text: str) -> None:
    """Print a heading."""
    print(f"\n{text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
