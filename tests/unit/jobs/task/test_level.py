"""A level on one unit, without a store: the cells that it passes on, and the failures that stop it."""

import msgspec
import pyarrow as pa
import pytest

from tests.support.jobs.plan.catalogs import catalog_of, counted, scan, table, view
from tussock.jobs.chunks.failure import ActorError, encode_failure
from tussock.jobs.schedule.schedule import make_schedule
from tussock.jobs.task.level import level_function
from tussock.jobs.wire.cell import CELL_SCHEMA, Address, LeafInput, Mail, addresses_of, make_cells
from tussock.jobs.wire.epoch_task import EpochTask
from tussock.jobs.wire.flush_policy import ExpectedSize

PLAN = make_schedule(catalog_of(table("t"), view("v", counted(scan("t"), 1)), view("w", counted(scan("v", 2), 1))), 1)
FAILURE = encode_failure(ActorError("source s", "a bad row"), "s", 0)


def run(
    level: int, unit: int, *arriving: pa.RecordBatch, expected: ExpectedSize = ExpectedSize.LITTLE
) -> list[tuple[int, Address]]:
    """The cells in one unit's answer, of three units: slot and address.

    The store cannot be opened, so an actor that starts fails the test.
    """
    task = EpochTask("nowhere://", msgspec.json.encode(None), PLAN, 7, (0, 1, 2, 0), expected)
    function = level_function(lambda: task, level, lambda: unit)
    found = pa.Table.from_batches(list(function(iter(arriving))), CELL_SCHEMA).to_batches()
    return [both for batch in found for both in zip(batch.column(0).to_pylist(), addresses_of(batch), strict=True)]


@pytest.mark.parametrize("expected", list(ExpectedSize))
def test_a_failure_that_reached_one_unit_is_announced_to_all_and_no_actor_starts(expected: ExpectedSize) -> None:
    (leaf,) = [s.id for s in PLAN.all_fragments() if s.kind == "table"]
    entries = make_cells(1, Address.of_leaf(leaf, LeafInput.ENTRIES), [b"[]"])
    failure = make_cells(1, Address(Mail.FAILURE, LeafInput.ROWS), [FAILURE])
    assert run(0, 1, entries, failure, expected=expected) == [
        (unit, Address.of_answer(Mail.FAILURE)) for unit in range(3)
    ]


@pytest.mark.parametrize("level", range(len(PLAN.levels)))
@pytest.mark.parametrize("expected", list(ExpectedSize))
def test_a_unit_with_a_failure_passes_it_on_once_and_does_nothing_else(level: int, expected: ExpectedSize) -> None:
    origin = next((f for s in PLAN.levels[level] for f in s.origins if f.exchange is not None), None)
    address = (
        Address.of_leaf(0, LeafInput.ENTRIES)
        if origin is None
        else Address.of_exchange(origin.producer, origin.exchange or 0)
    )
    arriving = make_cells(2, address, [b"rows"]), make_cells(2, Address.of_answer(Mail.FAILURE), [FAILURE])
    assert run(level, 2, *arriving, expected=expected) == [(2, Address.of_answer(Mail.FAILURE))]


def test_seals_and_answers_of_earlier_levels_are_passed_on_to_the_driver() -> None:
    passing = (
        make_cells(0, Address.of_answer(Mail.REPORT), [b"{}"]),
        make_cells(0, Address.of_sealed(3), [b"rows"]),
        make_cells(0, Address.of_answer(Mail.SST), [b"[]"]),
    )
    assert run(len(PLAN.levels) - 1, 0, *passing) == [
        (0, a) for a in (Address.of_answer(Mail.REPORT), Address.of_sealed(3), Address.of_answer(Mail.SST))
    ]
