"""Run days of the pipeline `orders` in a temporary folder, and query its Iceberg and Delta tables after each.

    python scripts/lake_demo.py

Each day is one epoch. DuckDB reads both published tables, and Spark reads the Delta table on the last day. All answers
must be equal.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DAYS = 3


def run_python(*words: str) -> None:
    """Run a Python program of the repository, with its output."""
    print("$ python", *words, flush=True)
    subprocess.run([sys.executable, *words], check=True, cwd=ROOT)


def main() -> None:
    """Run the days."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {
            "ORDERS_STORE": f"{folder}/store",
            "ORDERS_DATA": f"{folder}/data",
            "ORDERS_TABLES": f"{folder}/tables",
        }
        for day in range(1, DAYS + 1):
            run_python("pipelines/orders/load.py", "--out", f"{folder}/data", "--days", str(day))
            if day == 1:
                run_python("-m", "tussock", "apply", "orders")
            run_python("-m", "tussock", "epoch", "--pipeline", "orders")
            spark = ["--spark"] if day == DAYS else []
            run_python("pipelines/orders/query.py", "--tables", f"{folder}/tables", *spark)


if __name__ == "__main__":
    main()
