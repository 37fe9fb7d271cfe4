"""Compare DuckDB's rules of time zones with the recorded ones, for queries in DuckDB's SQL.

DuckDB converts in casts and comparisons that nothing can replace, so a query is refused if the rules differ.
"""

from datetime import UTC, datetime
from functools import lru_cache

import duckdb
import numpy as np
import pyarrow as pa

from tussock.jobs.kernels.duck import quote_string
from tussock.statestore.errors import InputError
from tussock.statestore.zones import RuledZone, digest_of, is_utc, name_of, rules_of, table_of

_FIRST_S, _END_S = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in (1900, 2100))
_STEP_S = 5 * 86_400


class DuckZoneError(InputError):
    """DuckDB has other rules of a time zone than the store."""

    zone: str
    release: str
    since: str  # a day on which they differ; empty: DuckDB does not know the zone

    def __str__(self) -> str:
        rules = f"has other rules of the time zone {self.zone} than the store, for example on {self.since}"
        return (
            f"DuckDB {self.release} {rules if self.since else f'does not know the time zone {self.zone}'}, and this "
            "query may convert times. Run it by `tussock query` without --duckdb, which uses the store's rules."
        )


def require_same_rules(zone: RuledZone) -> None:
    """Raise DuckZoneError if DuckDB converts by other rules than recorded, from 1900 to 2100."""
    if not is_utc(zone) and digest_of(zone) and (since := _first_difference(zone)) is not None:
        raise DuckZoneError(name_of(zone), duckdb.__version__, since)


@lru_cache(maxsize=64)
def _first_difference(zone: RuledZone) -> str | None:
    """The first probed day on which the rules differ; None if there is none. Empty if DuckDB does not know the zone.

    Cost: about 40 ms. It compares the times around each recorded change, and every fifth day.
    """
    table = table_of(rules_of(zone))
    at = table.at[(table.at >= _FIRST_S) & (table.at < _END_S)]
    probes = np.unique(np.concatenate([at - 1, at, np.arange(_FIRST_S, _END_S, _STEP_S)]))
    with duckdb.connect(":memory:", config={"threads": 1}) as connection:
        connection.register("probes", pa.table({"second": probes}))
        there = f"timezone({quote_string(name_of(zone))}, make_timestamptz(second * 1000000))"
        try:
            rows = connection.sql(f"SELECT epoch_us({there}) // 1000000 - second AS o FROM probes").to_arrow_table()
        except duckdb.NotImplementedException:
            return ""
    (different,) = np.nonzero(rows["o"].to_numpy() != table.offsets_at(probes))
    return None if not different.size else f"{datetime.fromtimestamp(int(probes[different[0]]), UTC):%Y-%m-%d}"
