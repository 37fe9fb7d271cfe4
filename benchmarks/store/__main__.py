"""`python -m benchmarks store`: compare the state store with RocksDB and SlateDB.

Prints a table, writes JSON to benchmarks/results/.

    python -m benchmarks store                                  the design's sizes: 10 M rows, under 10 minutes on a
                                                                quiet machine
    python -m benchmarks store --rows 100000 --runs 1           a smoke test
    python -m benchmarks store --parts warm scan --scratch DIR  only some parts; the data stays in DIR for the next run
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.report import figures_of, table_of, write_json
from benchmarks.store.compare import PARTS, compare_stores
from benchmarks.store.workload import Size

RESULTS = Path(__file__).parents[1] / "results"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks store", description="Compare with RocksDB and SlateDB, and measure over slow S3."
    )
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of the state; all other sizes scale with it")
    parser.add_argument("--runs", type=int, default=3, help="processes per engine and part")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="parts to run (default: all)")
    parser.add_argument("--scratch", type=Path, help="folder of data and stores, kept; default: a temporary folder")
    parser.add_argument("--out", type=Path, help="the JSON file; default: benchmarks/results/store-<time>.json")
    options = parser.parse_args(arguments)

    size = Size(options.rows, options.rows // 10, options.rows // 100, options.rows // 1000)
    load_before = os.getloadavg()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="tussock-bench-") as temporary:
        compared, figures = compare_stores(
            (options.scratch or Path(temporary)).absolute(), size, options.runs, options.parts, _progress
        )
    out = options.out or RESULTS / f"store-{time.strftime('%Y%m%dT%H%M%S')}.json"
    settings = {
        "rows": options.rows,
        "runs": options.runs,
        "parts": list(options.parts),
        "load": [load_before, os.getloadavg()],
    }
    write_json(out, compared, settings, figures)
    print(table_of(compared))
    print(figures_of(figures))
    print(
        f"{time.perf_counter() - began:.0f} s; load {load_before[0]:.1f} before, {os.getloadavg()[0]:.1f} "
        f"after; wrote {out}"
    )
    return 0


def _progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
