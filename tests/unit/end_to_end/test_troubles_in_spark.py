"""Failures of sources that Spark reads.

The message names the file, even if Spark does not, and the other sources continue.
"""

from tussock.jobs.trouble.guilty import first_failing
from tussock.statestore.errors import InputError, TussockError


def test_halving_finds_an_item_that_fails_alone_and_reads_each_about_twice() -> None:
    names = [str(n) for n in range(100)]
    for bad in ({"0"}, {"99"}, {"17"}, {"3", "50"}, set(names)):
        read = list[str]()

        def fails(some: list[str], bad: set[str] = bad, read: list[str] = read) -> TussockError | None:
            read += some
            return InputError("x") if bad & set(some) else None

        assert first_failing(names, fails, InputError("all"))[0] in bad  # type: ignore[arg-type]
        assert len(read) <= 2 * len(names) + 7  # halves are rounded
    assert first_failing(names, lambda some: None, InputError("together"))[0] == ""
