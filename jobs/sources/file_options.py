"""The options of file sources that are Tussock's own, and their check."""

from collections.abc import Collection
from enum import StrEnum

from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.errors import BadOptionError
from tussock.jobs.sources.listing import RECURSIVE, STORE_OPTIONS
from tussock.jobs.sources.rejects import FAIL, ON_ERROR, QUARANTINE, rejects_name

MAY_BE_MISSING = "may_be_missing"  # 'true': the files may appear after the source is created, and disappear
MISSING = "missing"  # if a file lacks a declared column: 'error' or 'null'
RETAIN = "retain"  # 'files' keeps the bytes of taken files; 'none': files never change
ON_CHANGE = "on_change"  # the reaction to a changed taken file: 'error', 'restate' or 'ignore'
COLUMNS = "columns"  # the effect of a new column of a file: one of NewColumns
OWN_OPTIONS = (
    "path",
    RECURSIVE,
    MAY_BE_MISSING,
    MISSING,
    RETAIN,
    ON_CHANGE,
    ON_ERROR,
    COLUMNS,
    *STORE_OPTIONS,
)  # none of these is an option of Spark

AT_ONCE = ("path", RECURSIVE, MAY_BE_MISSING, ON_CHANGE, COLUMNS, *STORE_OPTIONS)
_WITH_NAMES = ("csv", "avro", "json", "orc", "parquet")
_REACTIONS = ("error", "restate", "ignore")


def spark_options(source: CreateSource) -> dict[str, str]:
    """Return the options of a source of files that are options of Spark or of Hadoop."""
    return {name: value for name, value in source.options.items() if name not in OWN_OPTIONS}


def retains_files(source: CreateSource) -> bool:
    """Return whether the bytes of taken files stay reachable, so that their rows can be taken back."""
    return source.options.get(RETAIN) == "files"


class NewColumns(StrEnum):
    """The values of the option `columns`: what a new column of a file causes."""

    IGNORE = "ignore"
    HOLD = "hold"
    EVOLVE = "evolve"


def may_be_missing(source: CreateSource) -> bool:
    """Return whether the files may appear after the source is created, and disappear."""
    return source.options.get(MAY_BE_MISSING) == "true"


def check_options(source: CreateSource, missing_columns: Collection[str], why_missing: str) -> None:
    """Reject values that an option does not have, or that contradict another one. Raises BadOptionError.

    Args:
        missing_columns, why_missing: as of FileSource.
    """
    if (flag := source.options.get(MAY_BE_MISSING, "true")) not in ("true", "false"):
        raise BadOptionError(
            source.name,
            MAY_BE_MISSING,
            flag,
            "expected 'true' (the files may appear after the source is created) or 'false'",
        )
    missing = source.options.get(MISSING)
    if missing is not None and missing not in missing_columns:
        raise BadOptionError(source.name, MISSING, missing, why_missing)
    if (on_error := source.options.get(ON_ERROR, FAIL)) not in (FAIL, QUARANTINE):
        reason = (
            f"expected '{FAIL}' (hold a file with an unreadable record) or '{QUARANTINE}' (store such records in "
            f"{rejects_name(source.name)}, and read the rest of the file)"
        )
        raise BadOptionError(source.name, ON_ERROR, on_error, reason)
    if (retain := source.options.get(RETAIN, "none")) not in ("files", "none"):
        reason = "expected 'files' (taken content can be read again after a change) or 'none' (files never change)"
        raise BadOptionError(source.name, RETAIN, retain, reason)
    _check_columns_option(source)
    if (on_change := source.options.get(ON_CHANGE, "error")) not in _REACTIONS:
        raise BadOptionError(source.name, ON_CHANGE, on_change, f"expected {' or '.join(map(repr, _REACTIONS))}")
    if on_change == "restate" and not retains_files(source):
        raise BadOptionError(
            source.name, ON_CHANGE, on_change, "rows can only be taken back if files are kept: set retain 'files'"
        )


def _check_columns_option(source: CreateSource) -> None:
    """Require a valid option `columns`, and files whose columns have names. Raises BadOptionError."""
    if (columns := source.options.get(COLUMNS, NewColumns.IGNORE)) not in tuple(NewColumns):
        expected = " or ".join(f"'{kind}'" for kind in NewColumns)
        raise BadOptionError(source.name, COLUMNS, columns, f"expected {expected}")
    if columns == NewColumns.IGNORE:
        return
    headless = source.format == "csv" and source.options.get("header", "").lower() != "true"
    if source.format not in _WITH_NAMES or headless:
        formats = f"{', '.join(_WITH_NAMES[1:])}, and csv with header 'true'"
        raise BadOptionError(
            source.name, COLUMNS, columns, f"the columns of files are known without Spark in {formats}"
        )
