"""What most aggregate functions have in common: NULL arguments do not count, and there is nothing to add to their name."""

from jobs.executors.agg_call import Agg


class Plain:
    """Defaults of an entry."""

    def carrier(self, call: Agg) -> int | None:
        return 0

    def note(self, call: Agg) -> str:
        return ""
