"""Write TPC-H's tables as Parquet files, in parts. Each further part is input for one more epoch.

    python pipelines/tpch/load.py --out .tussock/tpch/data --scale 0.1 --parts 4

writes
    <out>/lineitem/lineitem.1.parquet …   <out>/orders/orders.1.parquet …   and so on, one folder per table

The program `tpcgen-cli` makes the rows (scale 1: 6 million line items, 1 GB). `make setup` installs it. `--only 1 2`
writes only these parts, so that the others can follow later.
"""

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

TABLES = ("region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem")
WHOLE = ("region", "nation")  # too small for parts: written with the first one


def load(out: Path, scale: str = "0.01", parts: int = 1, only: Sequence[int] | None = None) -> dict[str, int]:
    """Write parts of the tables. Return the number of files per table."""
    program = Path(sys.executable).with_name("tpcgen-cli")
    if not program.exists():
        raise SystemExit("the program tpcgen-cli is not installed; run `make setup`")
    for part in only or range(1, parts + 1):
        if not 1 <= part <= parts:
            raise SystemExit(f"part {part} of {parts}: expected parts from 1 to {parts}")
        tables = [t for t in TABLES if part == 1 or t not in WHOLE]
        for group, of_parts in ((WHOLE, 1), (tuple(t for t in tables if t not in WHOLE), parts)):
            wanted = [t for t in tables if t in group]
            if wanted:
                command = [str(program), "tpch", "parquet", "-s", scale, "--quiet", "--output-dir", str(out)]
                command += ["--tables", ",".join(wanted), "--parts", str(of_parts), "--part", str(part)]
                subprocess.run(command, check=True)
    return {table: len(list((out / table).glob("*.parquet"))) for table in TABLES}


def main() -> None:
    parser = argparse.ArgumentParser(description="Write TPC-H's tables as Parquet files, in parts.")
    parser.add_argument(
        "--out", type=Path, default=Path(".tussock/tpch/data"), help="folder to write to (default: %(default)s)"
    )
    parser.add_argument("--scale", default="0.01", help="1 is 6 million line items (default: %(default)s)")
    parser.add_argument("--parts", type=int, default=1, help="number of parts (default: %(default)s)")
    parser.add_argument("--only", type=int, nargs="+", help="write only these parts, counted from 1 (default: all)")
    given = parser.parse_args()
    for name, files in load(given.out, given.scale, given.parts, given.only).items():
        print(f"{name:>9}: {files:>4} files")


if __name__ == "__main__":
    main()
