"""Errors of metrics."""

from tussock.statestore.errors import InputError


class UnknownMetricError(InputError):
    """Great Expectations requested a metric that is not computed here: a list in jobs/quality is wrong."""

    metric: str
    column: object

    def __str__(self) -> str:
        return (
            f"metric {self.metric!r} of {self.column!r} is not among the measures of this view. Please report this "
            "error."
        )
