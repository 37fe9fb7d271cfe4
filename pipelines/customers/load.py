"""Write nights of a dump of customers, and of a feed of operations on orders.

    python pipelines/customers/load.py --out .tussock/customers/data --nights 3

writes
    <out>/customers/2026-01-01/part-0.json …, and _SUCCESS at last     all customers of the night
    <out>/orders/2026-01-01.json …                                     the operations since the night before

Customers move, leave and return. Orders are inserted, updated and deleted; one in twenty operations arrives a night
late. The rows of a night depend on its number alone, and existing nights stay unchanged.
"""

import argparse
import json
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

FIRST_NIGHT = datetime(2026, 1, 1)
COUNTRIES, SEGMENTS = ("CH", "DE", "FR", "IT", "JP"), ("private", "business")
PARTS = 2  # files of a dump
Row = Mapping[str, object]


@dataclass
class Shop:
    """The customers and orders of a shop, night by night."""

    customers: dict[int, Row] = field(default_factory=dict)
    orders: dict[int, Row] = field(default_factory=dict)
    next_order: int = 0
    late: list[Row] = field(default_factory=list)  # operations that arrive with the next night

    def pass_night(self, number: int, size: int) -> list[Row]:
        """Change customers and orders. Returns the operations that arrive in this night."""
        chance = random.Random(number)
        for key in chance.sample(sorted(self.customers), len(self.customers) // 20):
            if chance.random() < 0.2:
                del self.customers[key]
            else:
                self.customers[key] = {**self.customers[key], "country": chance.choice(COUNTRIES)}
        first = 0 if number == 0 else size + (number - 1) * size // 10
        for key in range(first, size + number * size // 10):
            self.customers[key] = {
                "id": key,
                "name": f"Customer {key}",
                "country": chance.choice(COUNTRIES),
                "segment": chance.choice(SEGMENTS),
            }
        arrived, self.late = self.late, []
        for place in range(size):
            row = self._next_operation(chance, FIRST_NIGHT + timedelta(days=number, seconds=place))
            (self.late if chance.random() < 0.05 else arrived).append(row)
        return arrived

    def _next_operation(self, chance: random.Random, at: datetime) -> Row:
        choice, op, status = chance.random(), "I", "open"
        if choice < 0.5 or not self.orders:
            self.next_order += 1
            key, customer = self.next_order, chance.choice(sorted(self.customers))
            row: Row = {"id": key, "customer": customer, "amount": f"{chance.randrange(1, 999)}.50"}
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


def write_lines(path: Path, rows: Iterable[Row]) -> None:
    """Write rows as JSON lines under a hidden name, then rename the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{path.name}")
    hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
    hidden.rename(path)


def write_nights(out: Path, nights: int, size: int) -> None:
    """Write the nights that do not exist yet."""
    shop = Shop()
    for number in range(nights):
        operations, night = shop.pass_night(number, size), f"{FIRST_NIGHT + timedelta(days=number):%Y-%m-%d}"
        dump, customers = out / "customers" / night, list(shop.customers.values())
        if (dump / "_SUCCESS").exists():
            continue
        write_lines(out / "orders" / f"{night}.json", operations)
        for part in range(PARTS):
            write_lines(dump / f"part-{part}.json", customers[part::PARTS])
        (dump / "_SUCCESS").touch()


def main() -> None:
    """Write the nights of the command line."""
    parser = argparse.ArgumentParser(description="Write nights of customers and orders.")
    parser.add_argument("--out", type=Path, default=Path(".tussock/customers/data"), help="folder of the feeds")
    parser.add_argument("--nights", type=int, default=3, help="number of nights, from 2026-01-01")
    parser.add_argument(
        "--size", type=int, default=1_000, help="customers of the first night, and operations per night"
    )
    options = parser.parse_args()
    write_nights(options.out, options.nights, options.size)


if __name__ == "__main__":
    main()
