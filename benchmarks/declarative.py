"""Benchmark: a declarative pipeline run by `spark-pipelines`, and imported, after a change of 1 % of its input.

    python -m benchmarks declarative --orders 100000

Both run the bakery of the examples: first all rows, then 1 % more of them. `spark-pipelines run` computes each
materialized view in full; an epoch processes the change. The rows of each view are compared after both runs. The
project's files are the same ones, and each command is a process of its own, so its start counts for both.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.dataset as ds

from benchmarks.cpu import Spent, spent
from tussock.jobs.reading.stored_rows import StoredRows
from tussock.jobs.settings.process import open_meta

BAKERY = Path(__file__).resolve().parent.parent / "examples" / "bakery_sdp"
VIEWS = ("order_totals", "returned_orders", "daily_sales", "best_products", "customer_totals")
_PATIENCE_S = 1200.0
_SKUS = ("BRE-1", "BRE-2", "BRE-3", "PAS-1", "PAS-2", "DRI-1", "DRI-2")


@dataclass(frozen=True, slots=True)
class Bakery:
    """A copy of the project, with the folder in which both tools work."""

    folder: Path

    @property
    def project(self) -> Path:
        return self.folder / "bakery"

    def run_by_spark(self) -> Spent:
        """Run the project by `spark-pipelines`, from nothing: the tables of a run are only in its process' catalog."""
        for folder in (self._warehouse, self.folder / "checkpoints"):
            shutil.rmtree(folder, ignore_errors=True)
        return self._run(self.project, "spark-pipelines", "run", "--conf", "spark.driver.memory=1g")

    def import_project(self) -> None:
        """Import the project, and deploy it."""
        self._run(self.folder, "tussock", "import", "sdp", "bakery/spark-pipeline.yml", "--name", "bakery")
        self._run(self.folder, "tussock", "apply", "bakery")

    def run_epoch(self) -> Spent:
        """Run an epoch of the imported pipeline."""
        return self._run(self.folder, "tussock", "epoch", "--pipeline", "bakery")

    def different_views(self, views: Sequence[str] = VIEWS) -> list[str]:
        """The views whose rows differ between the two."""
        stored = StoredRows(open_meta(str(self.folder / ".tussock" / "bakery" / "store")))
        return [
            name
            for name in views
            if rows_of(stored.read(name)) != rows_of(ds.dataset(self._warehouse / name, format="parquet").to_table())
        ]

    @property
    def _warehouse(self) -> Path:
        return self.project / "spark-warehouse"

    def _run(self, folder: Path, *command: str) -> Spent:
        place = Path(sys.executable).parent
        environment = os.environ | {
            "PYSPARK_PYTHON": sys.executable,
            "PATH": f"{place}{os.pathsep}{os.environ['PATH']}",
            "TUSSOCK_PIPELINES": str(self.folder / "pipelines"),
        }
        cost = spent(command, environment, folder, _PATIENCE_S)
        if cost.code:
            raise RuntimeError(f"{' '.join(command)} failed:\n{cost.output[-3000:]}")
        return cost


def copied_bakery(folder: Path) -> Bakery:
    """A copy of the project of the examples."""
    shutil.copytree(BAKERY, folder / "bakery")
    spec = folder / "bakery" / "spark-pipeline.yml"
    spec.write_text(spec.read_text().replace("/tmp/bakery/checkpoints", str(folder / "checkpoints")))
    (folder / "pipelines").mkdir()
    return Bakery(folder)


def deliver_orders(bakery: Bakery, name: str, first: int, count: int) -> None:
    """Write files with further orders and their lines."""
    random = Random(first)
    data = bakery.project / "data"
    files = (data / "orders" / f"{name}.csv", data / "order_lines" / f"{name}.csv")
    with files[0].open("w") as orders, files[1].open("w") as lines:
        orders.write("id,shop_id,customer_id,ordered_at,status\n")
        lines.write("id,order_id,sku,quantity\n")
        for order in range(first, first + count):
            day, second = random.randrange(365), random.randrange(86_400)
            at = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(1_735_689_600 + 86_400 * day + second))
            status = random.choice(("paid", "paid", "paid", "returned"))
            orders.write(f"{order},{random.randrange(1, 4)},{random.randrange(1, 13)},{at},{status}\n")
            for line in range(random.randrange(1, 4)):
                lines.write(f"{order * 4 + line},{order},{random.choice(_SKUS)},{random.randrange(1, 5)}\n")


def rows_of(table: pa.Table) -> Counter[str]:
    """The rows as texts, with columns in alphabetical order and without the time zones of moments."""
    names = sorted(table.column_names)
    return Counter(repr(tuple(_value_of(row[name]) for name in names)) for row in table.to_pylist())


def _value_of(value: object) -> object:
    """A value without its time zone, which the two libraries write differently."""
    return value.isoformat()[:26].replace("+00:00", "") if hasattr(value, "isoformat") else value


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark. Returns 1 if a view differs."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks declarative", description=__doc__)
    parser.add_argument("--orders", type=int, default=100_000, help="orders of the first run (default 100,000)")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="tussock-declarative-") as folder:
        bakery = copied_bakery(Path(folder))
        costs: dict[str, Mapping[str, Spent]] = {}
        different = list[str]()
        bakery.import_project()
        for run, first, count in (("first run", 1_000, chosen.orders), ("1 % more", 10**9, chosen.orders // 100)):
            deliver_orders(bakery, run.replace(" ", "-").replace("%", ""), first, count)
            costs[run] = {"spark-pipelines run": bakery.run_by_spark(), "tussock epoch": bakery.run_epoch()}
            different += bakery.different_views()
        print(f"{chosen.orders:,} orders")
        for run, by_tool in costs.items():
            for tool, cost in by_tool.items():
                print(f"{run:10} {tool:20} {cost.seconds:7.1f} s {cost.cpu_s:7.1f} CPU s")
        after = costs["1 % more"]
        factor = after["spark-pipelines run"].cpu_s / after["tussock epoch"].cpu_s
        print(f"factor {factor:.1f} in CPU; views that differ: {', '.join(different) or 'none'}")
    return 1 if different else 0
