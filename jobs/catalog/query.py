"""A SELECT over what a version stores: Spark's own query, in which every relation is a frame over the state store."""

import warnings
from collections.abc import Collection

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from jobs.catalog.reader import NoStoredRowsError, relation_frame
from jobs.plan.definition import output_of
from statestore.errors import InputError
from statestore.meta.version import HummockVersion


class NotThereYetError(InputError):
    """A relation was read at an epoch that does not hold it yet. `since` is the epoch that does, None while none is committed."""

    def __init__(self, name: str, epoch: int, since: int | None = None) -> None:
        super().__init__(name, epoch, since)
        self.name, self.epoch, self.since = name, epoch, since

    def __str__(self) -> str:
        where = f"epoch {self.epoch}" if self.epoch else "any epoch"
        if self.since is not None:
            return f"{self.name!r} is not in {where} yet: it came with epoch {self.since}; read that one or a later one"
        return f"{self.name!r} is in the log, not yet in {where}; run an epoch (`tussock epoch`, Session.flush) and ask again"


class PausedViewWarning(UserWarning):
    """A query reads a view that is paused: its rows are older than the epoch that is read."""

    def __init__(self, name: str, epoch: int) -> None:
        super().__init__(name, epoch)
        self.name, self.epoch = name, epoch

    def __str__(self) -> str:
        return (
            f"view {self.name!r} is paused since epoch {self.epoch}: its rows are those of the epoch before. "
            "To go on with it, drop it and create it again."
        )


def query_frame(
    spark: SparkSession, store_uri: str, version: HummockVersion, epoch: int, sql: str, relations: Collection[str], time_zone: str
) -> DataFrame:
    """The query over the rows stored of `relations` at `epoch`, in a Spark session of its own: its views clash with nobody's.

    Args:
        version: any version that holds `epoch`.
        relations: what the query reads; more may be named than it does.
        time_zone: the store's.

    Requires: the version's SSTs stay until the last action on the frame is done, as for `relation_frame`.
    Warns: PausedViewWarning. Raises: NoStoredRowsError where the query reads a source; Spark's own errors.
    """
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", time_zone)
    session.conf.set("spark.sql.ansi.enabled", "true")
    named = [r for r in version.catalog.at(epoch) if r.name in relations]
    for relation in named:
        if relation.paused is not None and relation.paused_at(epoch):
            warnings.warn(PausedViewWarning(relation.name, relation.paused), stacklevel=2)
        if output_of(relation) is not None:
            relation_frame(session, store_uri, version, relation, epoch).createOrReplaceTempView(f"`{relation.name}`")
    try:
        return session.sql(sql)
    except AnalysisException as err:
        missing = (err.getMessageParameters() or {}).get("relationName", "").strip("`").lower()
        if err.getCondition() == "TABLE_OR_VIEW_NOT_FOUND" and missing in [r.name for r in named]:
            raise NoStoredRowsError(missing) from err
        raise
