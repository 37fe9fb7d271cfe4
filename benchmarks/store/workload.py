"""The data and the keys for all engines: one table, written to a folder once, with the same bytes for every engine.

Rows are (g, i, n, total). Group g has 10 to 1,000 items (log-uniform) with even numbers i, so odd numbers are absent
keys between present ones. n and total follow from g and i, so that every result can be checked. The key is (g, i),
distributed by g; the stored value is (n, total). Files are uncompressed Arrow. Every process that reads them maps them
into memory.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

LEAST_ITEMS, MOST_ITEMS = 10, 1000
Ints = npt.NDArray[np.int64]


class Size(msgspec.Struct, frozen=True):
    """The sizes of a workload."""

    rows: int = 10_000_000  # of the state for reads
    batch: int = 1_000_000  # rows per ingest
    keys: int = 100_000  # per multi_get: this many present ones, and as many absent ones
    prefixes: int = 10_000
    seed: int = 1

    def tenth(self) -> "Size":
        """A tenth of every size."""
        return Size(self.rows // 10, self.batch // 10, self.keys // 10, self.prefixes // 10, self.seed)

    def __str__(self) -> str:
        return f"{self.keys:,} keys in {self.rows:,} rows"


@dataclass(frozen=True)
class Workload:
    """The files of one size in a folder, written by `make_workload`."""

    folder: Path
    size: Size

    @cached_property
    def rows(self) -> pa.Table:
        """(size.rows, 4): g, i, n, total; in random order."""
        return _read(self.folder / "rows.arrow")

    @cached_property
    def present(self) -> pa.Table:
        """(size.keys, 2): g, i of distinct rows, in random order."""
        return _read(self.folder / "present.arrow")

    @cached_property
    def absent(self) -> pa.Table:
        """(size.keys, 2): absent g, i between the present ones."""
        return _read(self.folder / "absent.arrow")

    @cached_property
    def prefixes(self) -> pa.Table:
        """(size.prefixes, 2): g, and its number of rows."""
        return _read(self.folder / "prefixes.arrow")

    def batches(self) -> list[pa.Table]:
        """The rows in batches of size.batch."""
        return [self.rows.slice(start, self.size.batch) for start in range(0, self.size.rows, self.size.batch)]

    def updates(self, epochs: int = 4) -> list[pa.Table]:
        """The batches of the compaction part: `epochs` random halves of the first size.batch rows, in random order.

        So a key is written twice on average, and one in 16 is never written.
        """
        random = np.random.default_rng(self.size.seed + 1)
        own = self.rows.slice(0, self.size.batch)
        return [own.take(pa.array(random.permutation(own.num_rows)[: own.num_rows // 2])) for _ in range(epochs)]


def values_of(g: Ints, i: Ints) -> dict[str, npt.NDArray[np.generic]]:
    """The columns n and total of rows."""
    mixed = (g * 1_000_003 + i) * np.int64(2_654_435_761) & 0x7FFFFFFF
    return {"n": mixed % 1000, "total": (mixed // 1000 % 1_000_000) / 100}


def make_workload(folder: Path, size: Size) -> Workload:
    """Write the files of a size, unless they exist. Memory: about 100 bytes per row."""
    made = Workload(folder, size)
    done = folder / "size.json"
    if done.exists() and msgspec.json.decode(done.read_bytes(), type=Size) == size:
        return made
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(size.seed)
    ratio = MOST_ITEMS / LEAST_ITEMS
    items: Ints = (LEAST_ITEMS * ratio ** random.random(size.rows // LEAST_ITEMS + 1)).astype(np.int64)
    items = items[: int(np.searchsorted(np.cumsum(items), size.rows)) + 1]
    items[-1] -= items.sum() - size.rows
    g = np.repeat(np.arange(len(items)), items)
    i = 2 * (np.arange(size.rows) - np.repeat(np.cumsum(items) - items, items))
    order = random.permutation(size.rows)
    g, i = g[order], i[order]
    _write(folder / "rows.arrow", pa.table({"g": g, "i": i, **values_of(g, i)}))
    for name, shift in (("present", 0), ("absent", 1)):
        some = random.choice(size.rows, min(size.keys, size.rows), replace=False)
        _write(folder / f"{name}.arrow", pa.table({"g": g[some], "i": i[some] + shift}))
    groups = random.permutation(len(items))[: size.prefixes]
    _write(folder / "prefixes.arrow", pa.table({"g": groups, "rows": items[groups]}))
    done.write_bytes(msgspec.json.encode(size))
    return made


def _write(path: Path, table: pa.Table) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def _read(path: Path) -> pa.Table:
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()
