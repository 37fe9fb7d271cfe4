"""The whole store compared with plain dicts over random steps (store_machine.py).

Some reads at a readable epoch must agree after every step. At the end of a run, all reads at all epochs must agree,
and no unreferenced object may be left.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.support.statestore.hummock.store_machine import StoreMachine
from tussock.statestore.hummock import compaction, disk_cache, merge, range_reader, sst_writer
from tussock.statestore.hummock.disk_cache import DiskCacheSettings

SHARES, STEPS_OF_A_SHARE = 8, 25_000  # 200,000 steps; each share runs alone, with its own seeds
RUNS, STEPS_OF_A_RUN = 20, 125  # between two lines of progress

#: The events that must occur in a few thousand steps, many times: a model without progress proves nothing.
EVENTS = (
    "epoch killed", "landed", "train moved", "train killed", "train overtaken", "read in flight", "move", "L0 merged",
    "compacted", "compactor killed", "vacuum", "pin", "unpin", "renew", "lapsed", "reopen", "table dropped",
    "disk hits", "disk damaged", "changed rows",
)  # fmt: skip
RARE = ("kept as it is", "closed by another", "vacuum killed")
_PHASES = (Phase.generate, Phase.shrink)


class _OneAfterTheOther:
    """A thread pool that runs everything in the calling thread."""

    def map(self, act: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        return map(act, items)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Use tiny blocks, windows and chunks, so that few rows fill many, and a disk cache that damage cannot disable.

    One thread only, so that equal steps have equal results.
    """
    for module, name in (
        (sst_writer, "ROWS_PER_BLOCK"),
        (compaction, "_CHUNK_ROWS"),
        (compaction, "WINDOW_BYTES"),
        (merge, "MERGE_BYTES"),
    ):
        monkeypatch.setattr(module, name, getattr(module, name))  # the machine draws them; here they are put back
    monkeypatch.setattr(merge, "_LEAST_SHARE", 1)
    monkeypatch.setattr(sst_writer, "BLOCKS_PER_PARTITION", 3)
    monkeypatch.setattr(sst_writer, "_WHOLE", 0)
    monkeypatch.setattr(range_reader, "_fetch_threads", _OneAfterTheOther)
    monkeypatch.setattr(
        disk_cache, "process_settings", lambda: DiskCacheSettings("off" if StoreMachine.disk is None else "on")
    )
    monkeypatch.setattr(disk_cache, "process_disk_cache", lambda: StoreMachine.disk)
    monkeypatch.setattr(StoreMachine, "folder", tmp_path, raising=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        yield


def _run(first_seed: int, runs: int, steps: int) -> None:
    """Runs of `steps` steps each; `StoreMachine.counts` counts their events."""
    run_state_machine_as_test(
        seed(first_seed)(StoreMachine),
        settings=settings(
            max_examples=runs,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            phases=_PHASES,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
        ),
    )


def test_a_thousand_steps_agree_with_the_state_at_each_epoch() -> None:
    StoreMachine.counts.clear()
    _run(first_seed=1, runs=12, steps=100)
    counts = StoreMachine.counts
    assert counts["steps"] >= 1_000, counts
    assert not [event for event in EVENTS if not counts[event]], counts


@pytest.mark.deep
@pytest.mark.timeout(3 * 3600)
@pytest.mark.parametrize("share", range(SHARES))
def test_two_hundred_thousand_steps_agree_with_the_state_at_each_epoch(share: int) -> None:
    StoreMachine.counts.clear()
    batch = 0
    while StoreMachine.counts["steps"] < STEPS_OF_A_SHARE:
        _run(share * 1_000_000 + batch, RUNS, STEPS_OF_A_RUN)
        batch += 1
        print(f"share {share}, batch {batch}: {dict(sorted(StoreMachine.counts.items()))}", flush=True)
    assert not [event for event in (*EVENTS, *RARE) if not StoreMachine.counts[event]], StoreMachine.counts
