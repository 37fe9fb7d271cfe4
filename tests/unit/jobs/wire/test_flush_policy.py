"""The choice of the process that merges the units' sealed rows, from numbers alone."""

import math

import pytest

from tussock.jobs.wire.flush_policy import ExpectedSize, Flush, FlushPolicy

MB = 1 << 20
POLICY = FlushPolicy()


def test_an_epoch_that_takes_in_little_and_creates_nothing_is_expected_to_seal_little() -> None:
    assert POLICY.predict_amount(file_bytes=2 * MB, rows=50_000, creates=False) is ExpectedSize.LITTLE
    assert POLICY.predict_amount(file_bytes=2 * MB + 1, rows=0, creates=False) is ExpectedSize.MUCH
    assert POLICY.predict_amount(file_bytes=0, rows=50_001, creates=False) is ExpectedSize.MUCH
    assert POLICY.predict_amount(file_bytes=0, rows=0, creates=True) is ExpectedSize.MUCH


@pytest.mark.parametrize(
    ("expected", "sealed", "units", "chosen"),
    [
        (ExpectedSize.LITTLE, 0, 2, Flush.DRIVER),
        (ExpectedSize.LITTLE, 32 * MB, 2, Flush.DRIVER),  # two units' share of 64 MB
        (ExpectedSize.LITTLE, 32 * MB + 1, 2, Flush.UNIT),
        (ExpectedSize.LITTLE, 17 * MB, 4, Flush.UNIT),
        (ExpectedSize.MUCH, 1, 1, Flush.UNIT),
        (ExpectedSize.MUCH, 1, 2, Flush.UNIT),  # two SSTs are never more than ceil(bytes / target) + 1
        (ExpectedSize.MUCH, 1, 3, Flush.EXCHANGE),
        (ExpectedSize.MUCH, 22 * MB, 3, Flush.UNIT),  # 66 MB in all: two SSTs and one
        (ExpectedSize.MUCH, 21 * MB, 3, Flush.EXCHANGE),
        (ExpectedSize.MUCH, 64 * MB, 200, Flush.UNIT),
    ],
)
def test_the_choice_of_the_merging_process(expected: ExpectedSize, sealed: int, units: int, chosen: Flush) -> None:
    assert POLICY.choose_flush(expected, sealed, units) is chosen


@pytest.mark.parametrize("units", [1, 2, 3, 4, 7, 64])
@pytest.mark.parametrize("sealed", [1, 1000, MB, 63 * MB, 64 * MB, 65 * MB, 300 * MB])
def test_units_that_upload_their_own_make_no_more_ssts_than_the_budget(units: int, sealed: int) -> None:
    """If all units seal the same amount, each makes ceil(sealed / target) SSTs."""
    if POLICY.choose_flush(ExpectedSize.MUCH, sealed, units) is Flush.UNIT and sealed <= POLICY.target_bytes:
        assert units * math.ceil(sealed / POLICY.target_bytes) <= math.ceil(units * sealed / POLICY.target_bytes) + 1


@pytest.mark.parametrize("units", [1, 2, 3, 100])
def test_the_driver_keeps_cells_with_spark_only_if_units_may_choose_the_exchange(units: int) -> None:
    chosen = {POLICY.choose_flush(ExpectedSize.MUCH, sealed, units) for sealed in range(1, 100 * MB, MB)}
    assert POLICY.may_exchange(ExpectedSize.MUCH, units) == (Flush.EXCHANGE in chosen)
    assert not POLICY.may_exchange(ExpectedSize.LITTLE, units)


def test_whole_ssts_are_cut_off_on_the_sealing_unit_and_the_exchange_has_few_tasks() -> None:
    assert [POLICY.whole_bytes(n * MB) for n in (0, 63, 64, 130)] == [0, 0, 64 * MB, 128 * MB]
    assert [POLICY.exchange_tasks(n * MB) for n in (1, 512, 513)] == [1, 1, 2]
