"""Make docs/nexmark.md from a record of the Nexmark benchmark.

    python -m benchmarks nexmark --out nexmark.json
    python -m benchmarks.nexmark.page nexmark.json

copies the record to docs/nexmark.json, and makes the page. Measure on a quiet machine. Without a file, only the page
is made.
"""

import argparse
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.nexmark.figures import BASE, COLD_EPOCHS, Cost, Mean, Part, Record, read_record
from scripts.page_lines import wrapped

DOCS = Path(__file__).resolve().parents[2] / "docs"


def page_of(record: Record) -> str:
    """The text of the page. Raises ValueError for a record with a wrong result."""
    if wrong := [one.text for one in record.results if one.wrong]:
        raise ValueError(f"expected only right results, found {'; '.join(wrong)}")
    return "\n".join([*_introduction(record), *_means(record), *_queries(record), *_refusals(record), ""])


def _introduction(record: Record) -> Iterator[str]:
    sizes, cores = record.sizes, record.machine.get("cores")
    yield "# Compare Tussock on Nexmark"
    yield ""
    yield from wrapped(
        "[Nexmark](https://github.com/nexmark/nexmark) is a benchmark for streams: persons, auctions and bids of an "
        f"online auction. Here {sizes.events:,} events arrive in {sizes.epochs} epochs. Each query is one view, "
        f"measured alone. The machine has {cores} cores, and all sides ran on it in turns, {_runs(sizes.runs)}. The "
        "rows of each side were equal to the rows of Spark's own SELECT at the end."
    )
    if (day := record.machine.get("date")) is not None:  # records of earlier runs lack it
        yield ""
        yield from wrapped(_circumstances(record.machine, str(day)))
    yield ""
    yield "```bash"
    yield "python -m benchmarks nexmark --help"
    yield "```"
    yield ""
    yield from wrapped(
        "The queries are in [views.sql](../pipelines/nexmark/views.sql), and the sides in "
        "[peers.py](../benchmarks/nexmark/peers.py):"
    )
    yield ""
    for peer, title in record.peers.items():
        yield f"- `{peer}`: {title}"
    yield ""
    yield from wrapped(
        "[Compared with other engines](performance.md#compared-with-other-engines) has the figures of DBSP and Flink. "
        "Their programs are not part of the repository."
    )
    yield ""
    yield "## How to read the tables"
    yield ""
    readings = (
        "**Events per second and core** are events per CPU second. CPU seconds are those of the driver, the JVM and "
        "all workers. More is better.",
        f"**Ratios** compare events per second and core with the events of `{BASE}`. Each ratio of a "
        "mean covers the queries that both sides can express.",
        "**Start-up** of the session, the JVM and Spark's workers is not included, and each side had run each query "
        "over few events before. Worker processes of the local runner start in the first epoch, which takes a second. "
        "The definition of a view is part of its first epoch too.",
        f"**Warm epochs** are all epochs but the first {COLD_EPOCHS}.",
        f"**A small epoch** takes {sizes.small_events:,} events, after all others. The table shows the median of "
        f"{sizes.small_epochs * sizes.runs}.",
        "**Recomputing** runs the query over all files so far after each epoch, and writes the rows as Parquet.",
        "**Structured Streaming** keeps its state in RocksDB, and writes the changes of each micro-batch as Parquet.",
    )
    for reading in readings:
        yield from wrapped(reading, "- ", "  ")


def _circumstances(machine: Mapping[str, str | int | None], day: str) -> str:
    memory = int(machine["memory"] or 0) / (1 << 30)
    return (
        f"Measured on {day} with Spark {machine['pyspark']} and DuckDB {machine['duckdb']}. The machine has "
        f"{memory:.0f} GiB of memory, and Spark's driver {machine['driver_memory']}."
    )


def _runs(runs: int) -> str:
    return "once each" if runs == 1 else f"{runs} times each; the tables show medians"


def _means(record: Record) -> Iterator[str]:
    yield from ("", "## Geometric means", "")
    yield "| side | queries | events/s/core | ratio | ratio, warm | small epoch, ms | CPU ms |"
    yield _rule(6)
    for peer in record.peers:
        whole, warm, small = (record.mean(peer, part) for part in Part)
        cells = [
            f"{whole.queries}" if whole else "",
            f"{whole.cost.rate:,.0f}" if whole else "",
            _ratio(whole),
            _ratio(warm),
            f"{small.cost.wall * 1000:,.0f}" if small else "",
            f"{small.cost.cpu * 1000:,.0f}" if small else "",
        ]
        yield _row(peer, cells)


def _queries(record: Record) -> Iterator[str]:
    def ratio(query: str, peer: str) -> str:
        found = record.ratio(query, peer, Part.WARM)
        return "" if found is None else f"{found:.2f}"

    def costs(part: Part, text: Callable[[Cost], str]) -> Callable[[str, str], str]:
        return lambda query, peer: "" if (cost := record.cost(query, peer, part)) is None else text(cost)

    tables = (
        ("Events per second and core, whole run", costs(Part.WHOLE, lambda cost: f"{cost.rate:,.0f}")),
        ("Events per second and core, warm epochs", costs(Part.WARM, lambda cost: f"{cost.rate:,.0f}")),
        ("Ratio, warm epochs", ratio),
        ("Wall and CPU seconds, whole run", costs(Part.WHOLE, lambda cost: f"{cost.wall:.2f} / {cost.cpu:.2f}")),
        ("Wall and CPU seconds, warm epochs", costs(Part.WARM, lambda cost: f"{cost.wall:.2f} / {cost.cpu:.2f}")),
        (
            "Wall and CPU milliseconds of a small epoch",
            costs(Part.SMALL, lambda cost: f"{cost.wall * 1000:,.0f} / {cost.cpu * 1000:,.0f}"),
        ),
    )
    for title, cell in tables:
        yield from ("", f"## {title}", "")
        yield _row("query", record.peers)
        yield _rule(len(record.peers))
        for query in record.queries:
            yield _row(query, [cell(query, peer) for peer in record.peers])


def _refusals(record: Record) -> Iterator[str]:
    refused = [one for one in record.results if one.refused]
    if refused:
        yield from ("", "## Queries that a side cannot express", "")
        for one in refused:
            yield from wrapped(f"{one.query}, `{one.peer}`. {one.refused}", "- ", "  ")


def _ratio(mean: Mean | None) -> str:
    return "" if mean is None or mean.ratio is None else f"{mean.ratio:.2f}"


def _rule(numbers: int) -> str:
    return "|---" + "|---:" * numbers + "|"


def _row(first: str, cells: Iterable[str]) -> str:
    return f"| {' | '.join([first, *cells])} |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Copy the record, and write the page."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.nexmark.page", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("record", nargs="?", type=Path, help="a file that `python -m benchmarks nexmark` wrote")
    parser.add_argument("--docs", type=Path, default=DOCS, help="folder of the page and its record (default: docs)")
    chosen = parser.parse_args(arguments)
    kept = chosen.docs / "nexmark.json"
    if chosen.record:
        shutil.copyfile(chosen.record, kept)
    (chosen.docs / "nexmark.md").write_text(page_of(read_record(kept)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
