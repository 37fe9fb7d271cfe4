"""Write days of a feed of operations on orders.

    python pipelines/orders/load.py --out .tussock/orders/data --days 3

writes <out>/2026-01-01.json and so on. Orders are inserted, updated and deleted; one in twenty operations arrives a day
late. The rows of a day depend on its number alone, and existing days stay unchanged.
"""

import argparse
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

FIRST_DAY = datetime(2026, 1, 1)
Row = Mapping[str, object]


@dataclass
class Shop:
    """The orders of a shop, day by day."""

    orders: dict[int, Row] = field(default_factory=dict)
    next_order: int = 0
    late: list[Row] = field(default_factory=list)  # operations that arrive with the next day

    def pass_day(self, number: int, size: int) -> list[Row]:
        """Change the orders. Returns the operations that arrive on this day."""
        chance = random.Random(number)
        arrived, self.late = self.late, []
        for place in range(size):
            row = self._next_operation(chance, FIRST_DAY + timedelta(days=number, seconds=place))
            (self.late if chance.random() < 0.05 else arrived).append(row)
        return arrived

    def _next_operation(self, chance: random.Random, at: datetime) -> Row:
        choice, op, status = chance.random(), "I", "open"
        if choice < 0.5 or not self.orders:
            self.next_order += 1
            key = self.next_order
            row: Row = {"id": key, "customer": chance.randrange(500), "amount": f"{chance.randrange(1, 999)}.50"}
        else:
            key = chance.choice(sorted(self.orders))
            row, op = self.orders[key], "D" if choice > 0.95 else "U"
            status = chance.choice(["open", "paid", "sent"])
        row = {**row, "status": status, "changed_at": f"{at:%Y-%m-%d %H:%M:%S}", "op": op}
        if op == "D":
            del self.orders[key]
        else:
            self.orders[key] = row
        return row


def write_days(out: Path, days: int, size: int) -> None:
    """Write the days that do not exist yet."""
    out.mkdir(parents=True, exist_ok=True)
    shop = Shop()
    for number in range(days):
        rows, name = shop.pass_day(number, size), f"{FIRST_DAY + timedelta(days=number):%Y-%m-%d}.json"
        if (out / name).exists():
            continue
        hidden = out / f".{name}"
        hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
        hidden.rename(out / name)


def main() -> None:
    """Write the days of the command line."""
    parser = argparse.ArgumentParser(description="Write days of operations on orders.")
    parser.add_argument("--out", type=Path, default=Path(".tussock/orders/data"), help="folder of the feed")
    parser.add_argument("--days", type=int, default=3, help="number of days, from 2026-01-01")
    parser.add_argument("--size", type=int, default=1_000, help="operations per day")
    options = parser.parse_args()
    write_days(options.out, options.days, options.size)


if __name__ == "__main__":
    main()
