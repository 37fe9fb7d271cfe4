"""The footer of a Parquet file: read once per process, it shows whether Spark must read the file.

Spark reads files that only its own reader turns into Spark's rows:

    shredded variants    parts of a variant have columns of their own
    legacy calendar      Spark before 3.0, and later releases in LEGACY modes, wrote old dates and times in it
    optional map keys    Parquet's specification requires keys; Arrow rejects the whole file

A footer does not show times in INT96 of far years: the engine meets them when it reads the file (parquet.py).
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from tussock.jobs.logical.nodes import Field
from tussock.jobs.sources.pins import PinnedFile, open_pinned
from tussock.statestore.errors import TussockError
from tussock.statestore.forks import new_lock
from tussock.statestore.objectstore.range_file import RangeFile

#: Spark's names of options, compared without case.
OPTIONS = {"datetimerebasemode": "datetimeRebaseMode", "int96rebasemode": "int96RebaseMode"}
MODES = ("CORRECTED", "LEGACY")
ZONE_KEY = b"org.apache.spark.timeZone"
_VERSION_KEY = b"org.apache.spark.version"
_OPTIONAL_KEYS = "Map keys must be annotated as required"
_TYPED = "typed_value"  # the column of a shredded part
_1900_S = -2_208_988_800  # from this second on, both calendars have the same times in all zones
_MOST_BYTES = 32 << 20  # of the remembered footers, in memory
_IN_MEMORY = 10  # bytes per stored byte: Arrow's objects of 2, 20 and 200 columns took 11, 8 and 8

_Key = tuple[str, int, str, str]


class _Footers:
    """The footers that this process read last, up to _MOST_BYTES. Safe for threads."""

    def __init__(self) -> None:
        self._footers, self._nbytes, self._lock = OrderedDict[_Key, pq.FileMetaData](), 0, new_lock()
        self._used = set[_Key]()  # since the last `forget_unused`

    def find_footer(self, key: _Key) -> pq.FileMetaData | None:
        """Return a footer, which then counts as the one read last; None if it is not remembered."""
        with self._lock:
            if (footer := self._footers.get(key)) is not None:
                self._footers.move_to_end(key)
                self._used.add(key)
            return footer

    def add_footer(self, key: _Key, footer: pq.FileMetaData) -> None:
        """Remember a footer, and forget those not used for longest."""
        with self._lock:
            self._forget_footer(key)
            self._footers[key] = footer
            self._nbytes += _size_of(footer)
            self._used.add(key)
            while self._nbytes > _MOST_BYTES and len(self._footers) > 1:
                self._forget_footer(next(iter(self._footers)))

    def forget_unused(self) -> None:
        """Forget the footers that were not used since the last call."""
        with self._lock:
            for key in self._footers.keys() - self._used:
                self._forget_footer(key)
            self._used.clear()

    def _forget_footer(self, key: _Key) -> None:
        if (footer := self._footers.pop(key, None)) is not None:
            self._nbytes -= _size_of(footer)
            self._used.discard(key)


def _size_of(footer: pq.FileMetaData) -> int:
    """Return the bytes that a footer takes in memory, about."""
    return _IN_MEMORY * int(footer.serialized_size)


_footers = _Footers()


def footer_of(file: PinnedFile, options: Mapping[str, str]) -> pq.FileMetaData:
    """Return the footer of a pinned file.

    Args:
        options: of the source; they locate an object.

    Raises: pa.ArrowException, OSError, errors of the object store. Cost: one read of the last 64 KB, unless this
        process has read the footer recently.
    """
    key = file.path, file.size, file.etag, file.store and file.kept
    if (footer := _footers.find_footer(key)) is None:
        with opened_bytes(file, options) as source:
            footer = pq.read_metadata(source)
        _footers.add_footer(key, footer)
    return footer


def forget_old_footers() -> None:
    """Forget the footers that no run has used since the last call: their files are taken, and not read again."""
    _footers.forget_unused()


def opened_bytes(file: PinnedFile, options: Mapping[str, str]) -> pa.NativeFile:
    """Open the bytes of a pinned file for Arrow."""
    if local := file.local_path:
        return pa.OSFile(local)
    store, name = open_pinned(file, options)
    return pa.PythonFile(RangeFile(store, name, file.size), mode="r")


def reason_of_file(file: PinnedFile, fields: Sequence[Field], options: Mapping[str, str]) -> str | None:
    """Return why Spark reads a file; None if the engine does. An error of the file is met again by its reader.

    Arguments and cost: as `footer_of` and `reason_for_spark`.
    """
    try:
        return reason_for_spark(footer_of(file, options), fields, options)
    except pa.ArrowInvalid as err:
        return "the keys of a map are optional" if is_of_optional_keys(err) else None
    except (pa.ArrowException, OSError, TussockError):
        return None


def is_of_optional_keys(error: Exception) -> bool:
    """Return whether Arrow rejects a file, even its footer, for a map whose keys may be NULL."""
    return _OPTIONAL_KEYS in str(error)


def reason_for_spark(footer: pq.FileMetaData, fields: Sequence[Field], options: Mapping[str, str]) -> str | None:
    """Return why Spark reads a file that Arrow can open; None if the engine does.

    Args:
        fields: the declared columns that the source reads from the file, by their names in it.
        options: of the source.
    """
    variants = {field.name.lower() for field in fields if "variant" in field.type}
    if any(_TYPED in parts and parts[0].lower() in variants for parts in _paths(footer)):
        return "its variants are shredded"
    if any(_legacy_columns(footer, fields, options)):
        return "its dates or times are in Spark's legacy calendar"
    return None


def needs_zone(file: PinnedFile, fields: Sequence[Field], options: Mapping[str, str]) -> bool:
    """Return whether a file has legacy times and does not name their zone. Spark then uses the zone of its Java.

    False if Arrow cannot open the file. Arguments: as `reason_of_file`.
    """
    try:
        footer = footer_of(file, options)
    except pa.ArrowInvalid:
        return False
    if ZONE_KEY in (footer.metadata or {}):
        return False
    return any(kind != "DATE" for kind in _legacy_columns(footer, fields, options))


def _legacy_columns(footer: pq.FileMetaData, fields: Sequence[Field], options: Mapping[str, str]) -> Iterator[str]:
    """Yield the types of declared columns with values that Spark moves between the calendars.

    By the rule of Spark's DataSourceUtils: a file below version 3.0.0 (INT96: 3.1.0) is legacy, and so is one with
    the key `org.apache.spark.legacyDateTime` (INT96: `legacyINT96`). Without a version, the source's option decides.
    """
    keys = footer.metadata or {}
    option_values = {name.lower(): value.upper() for name, value in options.items()}

    def is_legacy(first_version: str, key: bytes, option: str) -> bool:
        if (version := keys.get(_VERSION_KEY)) is None:
            return option_values.get(option) == "LEGACY"
        return version.decode() < first_version or key in keys

    of_times = is_legacy("3.0.0", b"org.apache.spark.legacyDateTime", "datetimerebasemode")
    of_int96 = is_legacy("3.1.0", b"org.apache.spark.legacyINT96", "int96rebasemode")
    if not (of_times or of_int96):
        return
    declared = {field.name.lower() for field in fields}
    for place, (name, *_) in enumerate(_paths(footer)):
        column = footer.schema.column(place)
        kind = column.converted_type
        if name.lower() not in declared:
            continue
        if column.physical_type == "INT96" and of_int96:
            yield "INT96"
        elif of_times and kind in _PER_SECOND and not _is_recent(footer, place, _PER_SECOND[kind]):
            yield str(kind)


#: Values per second of Spark's types that it moves; local times have no converted type, and stay.
_PER_SECOND = {"DATE": 1 / 86_400, "TIMESTAMP_MILLIS": 1_000, "TIMESTAMP_MICROS": 1_000_000}


def _is_recent(footer: pq.FileMetaData, place: int, per_second: float) -> bool:
    """Return whether statistics prove that all values of a column are of 1900 or later."""
    for group in range(footer.num_row_groups):
        chunk = footer.row_group(group).column(place)
        statistics = chunk.statistics
        if statistics is None or not (statistics.has_min_max or statistics.null_count == chunk.num_values):
            return False
        if statistics.has_min_max and statistics.min_raw < _1900_S * per_second:
            return False
    return True


def _paths(footer: pq.FileMetaData) -> Iterator[list[str]]:
    """Yield the path of each leaf column."""
    for place in range(footer.num_columns):
        yield footer.schema.column(place).path.split(".")
