"""`tussock new` writes a pipeline that works unchanged, and never changes existing files."""

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from deltalake import DeltaTable

from tests.support.jobs.shell import new_pipeline as shared
from tests.support.jobs.sinks.delta_readers import package_rows
from tests.support.spark_types import SparkSession
from tests.support.without_jvm import JAVA
from tussock.jobs import cli
from tussock.jobs.reading.stored_rows import StoredRows
from tussock.jobs.settings.pipeline import load_pipeline
from tussock.jobs.settings.process import open_meta

elsewhere = shared.elsewhere


@pytest.mark.spark
def test_its_views_equal_pandas_over_its_files(tmp_path: Path, spark: SparkSession) -> None:
    for command in (["new", "shop"], ["apply", "shop"]):
        assert cli.main(command) == 0
    tables = _published_without_java(tmp_path)
    prices = {"apple": 0.40, "pear": 0.55, "bread": 2.80, "croissant": 1.30, "milk": 1.15, "cheese": 4.90}
    orders = pd.concat(
        [pd.read_csv(path, parse_dates=["at"]) for path in (tmp_path / "pipelines/shop/data/orders").iterdir()]
    )
    orders["revenue"] = orders["quantity"] * orders["product"].map(prices)
    rows = StoredRows(open_meta(load_pipeline(tmp_path / "pipelines/shop").store))
    by_day = orders.groupby(orders["at"].dt.date)["revenue"].agg(["size", "sum"])
    daily = {row["day"]: (row["orders"], float(row["revenue"])) for row in rows.read("daily_sales").to_pylist()}
    assert daily == {day: (int(n), pytest.approx(total)) for day, n, total in by_day.itertuples()}
    by_product = orders.groupby("product")["revenue"].sum().to_dict()
    products = {row["product"]: float(row["revenue"]) for row in rows.read("product_sales").to_pylist()}
    assert products == {name: pytest.approx(by_product.get(name, 0.0)) for name in prices}
    best = {row["category"]: row["product"] for row in rows.read("best_sellers").to_pylist()}
    kinds = {"fruit": ("apple", "pear"), "bakery": ("bread", "croissant"), "dairy": ("milk", "cheese")}
    assert best == {kind: max(names, key=lambda name: by_product.get(name, 0.0)) for kind, names in kinds.items()}
    delivered = package_rows(DeltaTable(tables / "daily_sales")).to_pylist()
    assert {row["day"]: (row["orders"], float(row["revenue"])) for row in delivered} == daily


def _published_without_java(folder: Path) -> Path:
    """Run the first epoch and publish its tables in a process that cannot start a JVM; the folder of the tables."""
    java = folder / "without_java/bin/java"
    java.parent.mkdir(parents=True)
    java.write_text(JAVA)
    java.chmod(0o755)
    environment = {**os.environ, "JAVA_HOME": str(java.parent.parent), "PATH": f"{java.parent}:{os.environ['PATH']}"}
    command = [sys.executable, "-m", "tussock.jobs.cli", "epoch", "--pipeline", "shop"]
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "committed version 1" in ran.stdout + ran.stderr
    return folder / ".tussock/shop/tables"
