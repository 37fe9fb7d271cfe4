"""Long lists of cases, and the fixed sample that the quick tests take. The deep run takes all.

The sample is the same for every commit, so a red quick run stays red until the code changes, and two runs of one commit
compare. A sample that moved with the commit would find more in the long term, but a failure would go away with the next
commit, unseen. The nightly deep run checks the other cases. `TUSSOCK_SAMPLE=2` shifts the sample by two, to check other
cases by hand.
"""

import os
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def in_sample(number: int, every: int) -> bool:
    """Whether the quick run takes case `number` of a list; it takes one in `every`."""
    return (number - int(os.environ.get("TUSSOCK_SAMPLE", "0"))) % every == 0


def sample(items: Sequence[T], every: int) -> list[T]:
    """One in `every` of the items, in their order."""
    return [item for number, item in enumerate(items) if in_sample(number, every)]
