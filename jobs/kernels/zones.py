"""Instants and local times.

A TIMESTAMP is an instant; its fields are the fields of its local time in the pipeline's time zone.

`zone` is the bound node's `timeZoneId`: UTC, or a zone with the digest of its recorded rules. DuckDB's own database may
have other rules, so conversions are functions over the recorded ones. They also take half the time of DuckDB's.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.kernels.functions import declare_function
from tussock.jobs.logical.nodes import Call
from tussock.statestore.zones import NoRulesError, digest_of, instant_micros, is_utc, local_micros

_Micros = npt.NDArray[np.int64]


def zone_of(call: Call) -> str:
    """The time zone of a bound node."""
    return dict(call.params).get("timeZoneId", "UTC")


def local_of(instant: str, zone: str) -> str:
    """Convert TIMESTAMPTZ text to TIMESTAMP text: the local time in `zone`."""
    if is_utc(zone):
        return f"make_timestamp(epoch_us({instant}))"
    return f"make_timestamp({_declare_conversion('local_of', local_micros, zone)}(epoch_us({instant})))"


def instant_of(local: str, zone: str) -> str:
    """Convert TIMESTAMP text to TIMESTAMPTZ text: the first instant with this local time in `zone`."""
    if is_utc(zone):
        return f"make_timestamptz(epoch_us({local}))"
    return f"make_timestamptz({_declare_conversion('instant_of', instant_micros, zone)}(epoch_us({local})))"


def moved_instant(moved: str, instant: str, zone: str) -> str:
    """The instant with local time `moved`, which was computed from the local time of `instant`.

    In a repeated hour, it is the reading that keeps the offset of `instant`, as in Java's calendar arithmetic.
    """
    if is_utc(zone):
        return instant_of(moved, zone)
    kept_offset = f"make_timestamptz(epoch_us({moved}) - (epoch_us({local_of(instant, zone)}) - epoch_us({instant})))"
    return f"CASE WHEN {local_of(kept_offset, zone)} = {moved} THEN {kept_offset} ELSE {instant_of(moved, zone)} END"


def year_text(local: str) -> str:
    """The year of a date or local time in Spark's format: four digits, with a sign below 0 and above 9999."""
    year = f"year({local})"
    sign = f"CASE WHEN {year} < 0 THEN '-' WHEN {year} > 9999 THEN '+' ELSE '' END"
    digits = f"abs({year})::VARCHAR"
    return f"({sign} || CASE WHEN strlen({digits}) < 4 THEN lpad({digits}, 4, '0') ELSE {digits} END)"


def convert_micros(
    micros: pa.Array | pa.ChunkedArray, zone: str, convert: Callable[[_Micros, str], _Micros]
) -> pa.Array:
    """Convert a column of microseconds by the recorded rules of a zone. NULLs stay."""
    column = micros.combine_chunks() if isinstance(micros, pa.ChunkedArray) else micros
    values = (column.fill_null(0) if column.null_count else column).to_numpy(zero_copy_only=False)
    return pa.array(convert(values, zone), mask=pc.is_null(column).to_numpy(False) if column.null_count else None)


def _declare_conversion(name: str, convert: Callable[[_Micros, str], _Micros], zone: str) -> str:
    """Declare a conversion by a zone's rules, and return its name. Raises NoRulesError."""
    if not (digest := digest_of(zone)):
        raise NoRulesError(zone)
    return declare_function(
        f"{name}_{digest}", ("bigint",), "bigint", lambda micros: convert_micros(micros, zone, convert)
    )
