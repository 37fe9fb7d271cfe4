"""The end of a wait. It is counted once, from the beginning of the wait, however many steps the wait has."""

from tussock.jobs.outside import world


class Deadline:
    """A moment by which something must have happened.

    One deadline bounds a whole handshake, or the time that a process may be silent: each step gets the rest of it.
    """

    def __init__(self, seconds: float) -> None:
        """`seconds`: from now on."""
        self.seconds = seconds
        self._ends_s = world.now_s() + seconds

    def __str__(self) -> str:
        return f"{self.seconds:g} s"

    @property
    def left_s(self) -> float:
        """The seconds that are left, at least 0."""
        return max(0.0, self._ends_s - world.now_s())

    @property
    def has_passed(self) -> bool:
        """Whether no time is left."""
        return world.now_s() >= self._ends_s

    def renew(self) -> None:
        """Count from now on again, after a sign of life."""
        self._ends_s = world.now_s() + self.seconds
