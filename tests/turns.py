"""Long lists that the quick tests take a part of, in turn: which part, the commit says, so a commit tests the same things on every run."""

import functools
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


@functools.cache
def _commit() -> int:
    asked = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False, cwd=Path(__file__).parent)
    return int(asked.stdout.strip() or "0", 16)


def turn(turns: int) -> int:
    """This commit's turn, below `turns`; TUSSOCK_TURN=n names another."""
    if (chosen := os.environ.get("TUSSOCK_TURN")) is not None:
        return int(chosen) % turns
    return _commit() % turns


def in_turn(items: Sequence[T], turns: int) -> list[T]:
    """Every `turns`-th item, from this commit's turn on; which one it is, is printed."""
    number = turn(turns)
    print(f"turn {number} of {turns}: TUSSOCK_TURN={number} takes the same {len(items[number::turns])} of {len(items)} again")
    return list(items[number::turns])
