"""The runs of each project line for n, 2n and 4n things. A line with quadratic growth walks over all things for each.

It counts runs of lines, not time, so the answer is the same on every machine. Loops inside libraries are invisible.
"""

import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).parents[2]
OURS = tuple(str(ROOT / "tussock" / room) for room in ("jobs", "statestore"))
MOST = 2.6  # times the growth for twice the things: 2 is a straight line, 4 a square
FEW = 12  # runs of a line per thing; up to this limit it is ignored

Line = tuple[CodeType, int]
Use = Callable[[], object]


class Lines:
    """How often each line of the project ran inside the context, in all threads that began there."""

    def __init__(self) -> None:
        self.counts: Counter[Line] = Counter()
        self._ours: dict[CodeType, bool] = {}

    def __enter__(self) -> "Lines":
        self._before = sys.gettrace()
        threading.settrace(self._call)
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)
        threading.settrace(self._before)  # type: ignore[arg-type]

    def _call(self, frame: FrameType, event: str, arg: Any) -> Any:
        code = frame.f_code
        if (ours := self._ours.get(code)) is None:
            ours = self._ours[code] = code.co_filename.startswith(OURS)
        return self._line if ours else None

    def _line(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "line":
            self.counts[frame.f_code, frame.f_lineno] += 1
        return self._line


def too_often(of: Callable[[int], Use], size: int) -> list[str]:
    """Lines whose runs grow faster than the number of things. `of(n)` prepares n things and returns the function."""
    of(2)()  # imports, caches
    counts = []
    for n in (size, 2 * size, 4 * size):
        use = of(n)
        with Lines() as lines:
            use()
        counts.append(lines.counts)
    found = []
    for code, number in counts[2]:
        small, middle, large = (c[code, number] for c in counts)
        if large > max(FEW * 4 * size, 1.5 * 4 * small) and large - middle > MOST * max(1, middle - small):
            found.append(
                f"{Path(code.co_filename).relative_to(ROOT)}:{number} {code.co_name}: {small}, {middle}, {large} times"
            )
    return sorted(found)
