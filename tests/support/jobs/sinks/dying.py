"""A publisher that dies at a chosen request: nothing after it runs, and its connections end without a commit."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tussock.jobs.sinks import publication

Actions = tuple[tuple[Any, str], ...]


class KilledError(BaseException):
    """The process ends here."""


class Requests:
    """Counts the moments before and after each request. At one of them, others may look."""

    def __init__(self, dies_at: int, looks_at: int, look: Callable[[], None]) -> None:
        self.dies_at, self.count = dies_at, 0
        self._looks_at, self._look = looks_at, look

    def pass_moment(self) -> None:
        self.count += 1
        if self.count == self._looks_at:
            self._look()
        if self.count > self.dies_at:
            raise KilledError


@contextmanager
def dying(actions: Actions, at: int, looks_at: int = 0, look: Callable[[], None] = lambda: None) -> Iterator[Requests]:
    """Within the block, a publish dies at moment number `at`, and each later request too.

    Args:
        looks_at, look: the number of a moment, and a reader that runs at it.
    """
    requests = Requests(at, looks_at, look)

    def watched(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            requests.pass_moment()
            answer = function(*args, **named)
            requests.pass_moment()
            return answer

        return call

    with pytest.MonkeyPatch.context() as patch:
        for holder, name in (*actions, (publication, "write_manifest")):
            patch.setattr(holder, name, watched(getattr(holder, name)))
        yield requests
