"""Count the rows, blocks and bytes that this process reads from state stores.

Rows are the rows that the store returns to operators. Blocks are the blocks that it searches for them, whether they
are cached or not. Bytes come from the disk cache or the bucket. The counts do not depend on the machine.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any
from unittest import mock

from tussock.statestore.hummock.block_source import BlockSource
from tussock.statestore.hummock.range_reader import RangeReader
from tussock.statestore.hummock.store import HummockStore


@dataclass(slots=True)
class Reads:
    """Rows returned, blocks searched, and bytes fetched."""

    rows: int = 0
    blocks: int = 0
    bytes: int = 0


@contextmanager
def count_reads() -> Iterator[Reads]:
    """Count all reads of state stores inside the block."""
    reads = Reads()

    def add_rows(count: int) -> None:
        reads.rows += count

    def add_blocks(count: int) -> None:
        reads.blocks += count

    def add_bytes(count: int) -> None:
        reads.bytes += count

    inner = _Inner()
    observed: list[tuple[type, str, Any]] = [
        (HummockStore, "multi_get", inner.after(lambda result, _: add_rows(result[0].true_count))),
        (HummockStore, "scan_between", inner.after(lambda result, _: add_rows(len(result[0])))),
        (HummockStore, "iter_rows", inner.during(lambda part: add_rows(part.num_rows))),
        (HummockStore, "read_entries", inner.during(lambda part: add_rows(len(part[0])))),
        (BlockSource, "read_units", _after(lambda _, given: add_blocks(sum(len(r.blocks) for r in given[0])))),
        (BlockSource, "scan_blocks", _after(lambda _, given: add_blocks(given[2] - given[1]))),
        (RangeReader, "fetch_ranges", _after(lambda result, _: add_bytes(sum(len(d) for r in result for d in r)))),
    ]
    patches = [mock.patch.object(of, name, wrap(getattr(of, name))) for of, name, wrap in observed]
    for patch in patches:
        patch.start()
    try:
        yield reads
    finally:
        for patch in patches:
            patch.stop()


def _after(note: Callable[[Any, tuple[Any, ...]], None]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Wrap a method so that `note` gets its result and its arguments without `self`."""

    def wrap(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def observed(self: Any, *args: Any, **named: Any) -> Any:
            result = method(self, *args, **named)
            note(result, args)
            return result

        return observed

    return wrap


class _Inner:
    """Counts the rows of the outermost read alone: a scan of a long range reads through `iter_rows`."""

    def __init__(self) -> None:
        self._depth = 0

    def after(self, note: Callable[[Any, tuple[Any, ...]], None]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def wrap(method: Callable[..., Any]) -> Callable[..., Any]:
            @wraps(method)
            def observed(store: Any, *args: Any, **named: Any) -> Any:
                self._depth += 1
                try:
                    result = method(store, *args, **named)
                finally:
                    self._depth -= 1
                if not self._depth:
                    note(result, args)
                return result

            return observed

        return wrap

    def during(self, note: Callable[[Any], None]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def wrap(method: Callable[..., Any]) -> Callable[..., Any]:
            @wraps(method)
            def observed(store: Any, *args: Any, **named: Any) -> Iterator[Any]:
                for part in method(store, *args, **named):
                    if not self._depth:
                        note(part)
                    yield part

            return observed

        return wrap
