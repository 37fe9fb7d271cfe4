"""Compare files as plain files with Spark's reader: every CSV and JSON-lines file below some folders.

    python -m benchmarks plain-corpus FOLDER…

Each file is read twice: with types that fit its first records and `on_error 'quarantine'`, and with texts only. Of
the records that Spark reads, a plain file must have all, by their bits, in order, with their row ids, and Spark must
find no reject in it. Prints the number of files by outcome, the reasons, and each difference; exits with 1 if there is
one.
"""

import argparse
import csv
import gzip
import json
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from pyspark.sql import SparkSession

from tests.support.jobs.sources.pinned import pinned
from tests.support.jobs.sources.plain_texts import as_plain, as_spark, differences, source_of
from tussock.jobs.sources.pins import PinnedFile
from tussock.jobs.spark.session import build_spark, epoch_session

ENDINGS = {
    ".csv": "csv", ".csv.gz": "csv", ".tsv": "csv", ".tab": "csv", ".jsonl": "json", ".ndjson": "json", ".json": "json"
}  # fmt: skip
LARGEST_BYTES = 4_000_000
RECORDS = 200  # looked at for types
_FIELD = re.compile(r"[A-Za-z_]\w*", re.ASCII)  # a name of a struct's field that needs no quotes
_FORMS = (
    ("int", r"-?\d{1,9}"),
    ("bigint", r"-?\d{1,18}"),
    ("double", r"-?\d*\.?\d+([eE][-+]?\d+)?"),
    ("boolean", r"(?i:true|false)"),
    ("date", r"\d{4}-\d\d-\d\d"),
    ("timestamp", r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d\S*"),
)


@dataclass(slots=True)
class Outcomes:
    """The number of files by outcome, and the reasons for Spark."""

    files: Counter[tuple[str, str]] = field(default_factory=Counter)  # by format and outcome
    reasons: Counter[str] = field(default_factory=Counter)
    different: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Found:
    """A file of the corpus, with the columns and options to read it."""

    path: Path
    format: str
    columns: tuple[tuple[str, str], ...]
    options: Mapping[str, str]


def main(arguments: list[str]) -> int:
    """Run the comparison; 1 if a file differs."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks plain-corpus", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("folder", nargs="+", type=Path)
    chosen = parser.parse_args(arguments)
    spark = epoch_session(build_spark("tussock plain corpus"), "UTC")
    with tempfile.TemporaryDirectory() as folder:
        corpus = list(_corpus(chosen.folder, Path(folder)))
        print(f"{len(corpus)} files with different contents", flush=True)
        for name, outcomes in (("typed, quarantine", _typed(spark, corpus)), ("texts", _as_texts(spark, corpus))):
            _print(name, outcomes)
            if outcomes.different:
                return 1
    return 0


def _corpus(folders: Sequence[Path], copies: Path) -> Iterator[Found]:
    """The files, without files of equal content. They are copied, since an odd name is not what this is about."""
    seen = set[bytes]()
    for path in sorted(p for folder in folders for p in folder.rglob("*") if p.is_file()):
        ending = next((e for e in ENDINGS if path.name.lower().endswith(e)), None)
        if ending is None or not 0 < path.stat().st_size <= LARGEST_BYTES:
            continue
        if (digest := sha256(path.read_bytes()).digest()) in seen:
            continue
        seen.add(digest)
        copy = copies / f"{len(seen)}{ending}"
        shutil.copy(path, copy)
        if (found := _read_csv(copy) if ENDINGS[ending] == "csv" else _read_json(copy)) is not None:
            yield found


def _text(path: Path) -> str:
    content = path.read_bytes()
    if path.suffix == ".gz":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError):
            return ""
    return content.decode(errors="replace")


def _read_csv(path: Path) -> Found | None:
    """A file with a header, separated by the character that its first line has most often."""
    lines = _text(path).splitlines()[: RECORDS + 1]
    if not lines:
        return None
    separator = max(",;\t|", key=lines[0].count)
    try:
        header, *rows = csv.reader(lines, delimiter=separator)
    except (csv.Error, ValueError):
        return None
    kinds = [_kind([row[n] for row in rows if n < len(row)]) for n in range(len(header))]
    columns = tuple((f"c{n}", kind) for n, kind in enumerate(kinds))
    options = {"header": "true", "enforceSchema": "true", "sep": separator}
    return Found(path, "csv", columns, options) if columns else None


def _read_json(path: Path) -> Found | None:
    """A file whose lines are objects; the columns are the names of the first ones."""
    given: dict[str, list[object]] = {}
    for line in _text(path).splitlines()[:RECORDS]:
        try:
            record = json.loads(line)
        except ValueError:
            return None
        if not isinstance(record, dict):
            return None
        for name, value in record.items():
            given.setdefault(name, []).append(value)
    found: dict[str, tuple[str, str]] = {}
    for name, values in given.items():
        if name:
            found.setdefault(name.lower(), (name, _json_kind(values)))
    return Found(path, "json", tuple(found.values()), {}) if found else None


def _json_kind(values: Sequence[object]) -> str:
    """The type of values: with arrays and structs if all of them have one form, else string."""
    given = [value for value in values if value is not None]
    lists, structs = ([v for v in given if isinstance(v, kind)] for kind in (list, dict))
    if given and len(lists) == len(given):
        return f"array<{_json_kind([element for value in lists for element in value])}>"
    if given and len(structs) == len(given):
        names = {name: None for value in structs for name in value}
        if names and all(map(_FIELD.fullmatch, names)) and len({name.lower() for name in names}) == len(names):
            return f"struct<{','.join(f'{name}:{_json_kind([v.get(name) for v in structs])}' for name in names)}>"
        return "string"
    if all(isinstance(value, str) for value in given):
        kind = _kind([str(value) for value in given])
        return kind if kind in ("date", "timestamp") else "string"
    if any(isinstance(value, str | list | dict) for value in given):
        return "string"
    return _kind([json.dumps(value) for value in given])


def _kind(values: Sequence[str]) -> str:
    given = [value for value in values if value]
    return next((kind for kind, form in _FORMS if given and all(re.fullmatch(form, v) for v in given)), "string")


def _typed(spark: SparkSession, corpus: Sequence[Found]) -> Outcomes:
    """Each file with its types, one job of Spark per file that may be plain."""
    outcomes = Outcomes()
    for n, found in enumerate(corpus):
        _compare(spark, found.format, found.columns, found.options, [found.path], outcomes, quarantine=True)
        if n % 100 == 99:
            print(f"  {n + 1} files, {dict(outcomes.files)}", flush=True)
    return outcomes


def _as_texts(spark: SparkSession, corpus: Sequence[Found]) -> Outcomes:
    """All files with as many columns in one job of Spark, with doubled quotes in CSV."""
    outcomes, alike = Outcomes(), dict[tuple[int, str], list[Path]]()
    for found in corpus:
        if found.format == "csv":
            alike.setdefault((len(found.columns), found.options["sep"]), []).append(found.path)
    for (count, separator), paths in alike.items():
        columns = [(f"c{n}", "string") for n in range(count)]
        options = {"header": "true", "enforceSchema": "true", "sep": separator, "escape": '"'}
        _compare(spark, "csv", columns, options, paths, outcomes, quarantine=False)
    return outcomes


def _compare(
    spark: SparkSession,
    format: str,
    columns: Sequence[tuple[str, str]],
    options: Mapping[str, str],
    paths: Sequence[Path],
    outcomes: Outcomes,
    *,
    quarantine: bool,
) -> None:
    source = source_of(format, columns, options, quarantine)
    files: list[PinnedFile] = [pinned(path, n) for n, path in enumerate(paths)]
    plain = as_plain(source, files)
    rows = [file for file in files if not isinstance(plain[file.number], str)]
    different = differences(plain, as_spark(spark, source, rows)) if rows else {}
    for file in files:
        reason = plain[file.number]
        outcome = "Spark" if isinstance(reason, str) else "different" if file.number in different else "native"
        outcomes.files[format, outcome] += 1
        if isinstance(reason, str):
            shown = re.sub(r"'[^']*'|\(/[^)]*\)|\d+", "…", reason.rpartition(" is not plain: ")[2])
            outcomes.reasons[shown[:80]] += 1
        elif outcome == "different":
            outcomes.different.append(f"{file.path}: {different[file.number]}"[:2000])


def _print(name: str, outcomes: Outcomes) -> None:
    print(f"\n{name}")
    for format in sorted({format for format, _ in outcomes.files}):
        counts = {outcome: outcomes.files[format, outcome] for outcome in ("native", "Spark", "different")}
        print(f"  {format:5} " + "  ".join(f"{outcome} {count}" for outcome, count in counts.items()))
    for reason, count in outcomes.reasons.most_common(15):
        print(f"    {count:5}  {reason}")
    for text in outcomes.different:
        print(f"  DIFFERENT {text}", file=sys.stderr)
