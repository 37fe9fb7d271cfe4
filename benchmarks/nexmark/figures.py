"""The record of a run as JSON, and its figures: seconds, events per second and core, ratios, geometric means.

A figure is the median of the runs. Events per second and core are events per CPU second, which is
Nexmark's definition: events divided by wall seconds and by the used cores.
"""

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

import msgspec

from benchmarks.nexmark.workload import Sizes

BASE = "spark"  # the side that ratios refer to
COLD_EPOCHS = 2  # not among the warm epochs
_WIDTH = 38  # of a part's cells in the text table


class Part(StrEnum):
    """The measured parts of a run."""

    WHOLE = "whole run"  # all large epochs
    WARM = "warm epochs"  # all large epochs but the first two
    SMALL = "small epoch"  # one of them, as a median


@dataclass(frozen=True, slots=True)
class Run:
    """Seconds of each epoch."""

    wall: tuple[float, ...]
    cpu: tuple[float, ...]


@dataclass(slots=True)
class Measured:
    """The results of one query on one side."""

    query: str
    peer: str
    runs: list[Run] = field(default_factory=list)
    rows: int = 0
    wrong: str = ""  # the first difference from Spark's rows
    refused: str = ""  # the reason, if the side cannot express the query

    @property
    def counts(self) -> bool:
        """Whether the seconds belong to a right result."""
        return bool(self.runs) and not self.wrong

    @property
    def text(self) -> str:
        """One line of progress."""
        if self.refused:
            return f"{self.query} {self.peer}: cannot express: {self.refused}"
        wall, cpu = (statistics.median(sum(seconds(run)) for run in self.runs) for seconds in (_wall, _cpu))
        verdict = f"WRONG: {self.wrong}" if self.wrong else "equal to Spark's"
        return f"{self.query} {self.peer}: {wall:.2f} s, {cpu:.2f} s of CPU, {self.rows:,} rows, {verdict}"


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a part of a run."""

    events: int
    wall: float
    cpu: float

    @property
    def rate(self) -> float:
        """Events per second and core."""
        return self.events / self.cpu


@dataclass(frozen=True, slots=True)
class Mean:
    """The geometric means of one side and part."""

    queries: int  # with a right result
    cost: Cost
    ratio: float | None  # of the rate to the rate of BASE, over the queries of both; None without such queries


@dataclass(frozen=True, slots=True)
class Record:
    """The results of a run of the benchmark.

    `peers`: the titles of the sides, by name.
    """

    machine: Mapping[str, str | int | None]
    sizes: Sizes
    peers: Mapping[str, str]
    results: tuple[Measured, ...] = ()

    def plus(self, results: list[Measured]) -> "Record":
        """The record with the results of another query."""
        return replace(self, results=(*self.results, *results))

    @property
    def queries(self) -> list[str]:
        """The queries, in their order."""
        return list(dict.fromkeys(one.query for one in self.results))

    def of(self, query: str, peer: str) -> Measured:
        """The results of a query on a side."""
        return next(one for one in self.results if (one.query, one.peer) == (query, peer))

    def cost(self, query: str, peer: str, part: Part) -> Cost | None:
        """The cost of a part. None if the side has no right result, or the run has no such part."""
        one = self.of(query, peer) if peer in self.peers else None
        if one is None or not one.counts:
            return None
        match part:
            case Part.WHOLE:
                epochs = slice(self.sizes.epochs)
            case Part.WARM:
                epochs = slice(COLD_EPOCHS, self.sizes.epochs)
            case Part.SMALL:
                epochs = slice(self.sizes.epochs, None)
        events = self.sizes.per_epoch[epochs]
        if not events:
            return None
        if part is Part.SMALL:
            wall, cpu = ([s for run in one.runs for s in seconds(run)[epochs]] for seconds in (_wall, _cpu))
            return Cost(events[0], statistics.median(wall), statistics.median(cpu))
        wall, cpu = ([sum(seconds(run)[epochs]) for run in one.runs] for seconds in (_wall, _cpu))
        return Cost(sum(events), statistics.median(wall), statistics.median(cpu))

    def ratio(self, query: str, peer: str, part: Part) -> float | None:
        """The rate of a side divided by the rate of BASE. None if one of the two has none."""
        ours, base = self.cost(query, peer, part), self.cost(query, BASE, part)
        return None if ours is None or base is None else ours.rate / base.rate

    def mean(self, peer: str, part: Part) -> Mean | None:
        """The geometric means of a side. None if it has no right result."""
        costs = [cost for query in self.queries if (cost := self.cost(query, peer, part)) is not None]
        if not costs:
            return None
        ratios = [ratio for query in self.queries if (ratio := self.ratio(query, peer, part)) is not None]
        wall, cpu = (statistics.geometric_mean(s) for s in zip(*((c.wall, c.cpu) for c in costs), strict=True))
        return Mean(len(costs), Cost(costs[0].events, wall, cpu), statistics.geometric_mean(ratios) if ratios else None)


def _wall(run: Run) -> tuple[float, ...]:
    return run.wall


def _cpu(run: Run) -> tuple[float, ...]:
    return run.cpu


def table_of(record: Record) -> str:
    """The figures as a text table: a line per query and side, then the geometric means, then all refusals."""
    return "\n".join(_lines(record))


def _lines(record: Record) -> Iterator[str]:
    parts = [*((part, "s") for part in (Part.WHOLE, Part.WARM)), (Part.SMALL, "ms")]
    yield f"{'':36}" + "".join(f"{part:^{_WIDTH}}" for part, _ in parts)
    yield f"{'':36}" + "".join(
        f"{'events/s/core':>14}{'ratio':>7}{'wall ' + unit:>8}{'CPU ' + unit:>8} " for _, unit in parts
    )
    for query in record.queries:
        for peer, title in record.peers.items():
            one = record.of(query, peer)
            verdict = "cannot express" if one.refused else "WRONG" if one.wrong else ""
            cells = [_cells(record.cost(query, peer, part), record.ratio(query, peer, part), part) for part, _ in parts]
            yield f"{query:5}{title:31}{''.join(cells)}{verdict}".rstrip()
    for peer, title in record.peers.items():
        means = [(record.mean(peer, part), part) for part, _ in parts]
        cells = [_cells(mean.cost, mean.ratio, part) if mean else " " * _WIDTH for mean, part in means]
        count = means[0][0].queries if means[0][0] else 0
        yield f"{'mean':5}{title:31}{''.join(cells)}{count} queries".rstrip()
    for one in record.results:
        if not one.counts:
            yield one.text


def _cells(cost: Cost | None, ratio: float | None, part: Part) -> str:
    if cost is None:
        return " " * _WIDTH
    scale, digits = (1000, 0) if part is Part.SMALL else (1, 2)
    ratio_text = "" if ratio is None else f"{ratio:.2f}"
    return f"{cost.rate:>14,.0f}{ratio_text:>7}{cost.wall * scale:>8.{digits}f}{cost.cpu * scale:>8.{digits}f} "


def write_record(path: Path, record: Record) -> None:
    """Write the record as JSON, one line per result."""
    head = msgspec.json.encode(replace(record, results=())).removesuffix(b"]}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(head + b"\n" + b",\n".join(msgspec.json.encode(one) for one in record.results) + b"\n]}\n")


def read_record(path: Path) -> Record:
    """Read the record of a run."""
    return msgspec.json.decode(path.read_bytes(), type=Record)
