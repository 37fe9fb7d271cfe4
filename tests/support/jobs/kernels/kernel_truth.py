"""What Spark answers to the cases of kernels: bound expressions, types, values, and the rows that raise."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import msgspec
import pyarrow as pa

from tests.support.jobs.kernels.kernel_cases import Case
from tests.support.recorded_truth import digest_of, read_answers
from tussock.jobs.logical.nodes import Expr
from tussock.statestore.zones import ZoneRules, install_rules, rules_of


@dataclass(frozen=True, slots=True)
class Truth:
    """Per expression: the bound form, Spark's type, the value on every row (NULL if it raises), the rows that raise."""

    bound: list[Expr]
    types: list[str]
    values: pa.Table
    raising: list[frozenset[int]]


def question_of(case: Case, rows: pa.Table) -> str:
    """The key of a case in its record: it changes with the texts, the zone and the rows."""
    texts = "\n".join([str(case), case.zone, *case.exprs, *map(str, map(plain, rows.columns))])
    return f"{case} {digest_of(texts)}"


def read_truth(case: Case, rows: pa.Table, version: str) -> Truth:
    """The record of a case. Raises KeyError if the record has no answer to it in this form."""
    answers = _answers(case.file, version)
    question = question_of(case, rows)
    if question not in answers:
        raise KeyError(f"tests/spark_truth/{version} has no answer to {question}: run `make truth`")
    return decode_truth(answers[question])


@cache
def _answers(file: str, version: str) -> dict[str, bytes]:
    return read_answers(f"kernels/{file}", version)


class _Head(msgspec.Struct):
    bound: list[Expr]
    types: list[str]
    raising: list[list[int]]
    zones: list[ZoneRules]  # by which the bound expressions convert


#: A zone in a bound expression, with the digest of its rules.
_RULED = re.compile(r"\b\w+/\w+@[0-9a-f]+")


def encode_truth(truth: Truth) -> bytes:
    """The bytes of an answer: a head as JSON in the schema of the values."""
    zones = sorted(set(_RULED.findall(msgspec.json.encode(truth.bound).decode())))
    raising = [sorted(rows) for rows in truth.raising]
    head = msgspec.json.encode(_Head(truth.bound, truth.types, raising, [rules_of(zone) for zone in zones]))
    values = truth.values.replace_schema_metadata({"truth": head}).combine_chunks()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, values.schema) as writer:
        writer.write_table(values)
    answer: bytes = sink.getvalue().to_pybytes()
    return answer


def decode_truth(answer: bytes) -> Truth:
    """Inverse of `encode_truth`. Makes the rules of its zones known to this process."""
    values = pa.ipc.open_stream(answer).read_all()
    head = msgspec.json.decode(values.schema.metadata[b"truth"], type=_Head)
    install_rules(head.zones)
    return Truth(
        head.bound, head.types, values.replace_schema_metadata(None), [frozenset(rows) for rows in head.raising]
    )


def plain(column: pa.ChunkedArray) -> list[object]:
    """Values in a comparable form; dates and times as numbers, because Spark's range exceeds Python's years."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    elif pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    values: list[object] = column.to_pylist()
    return values


def truth_differences(case: Case, recorded: Truth, live: Truth) -> Iterator[str]:
    """The expressions of a case whose record differs from the installed Spark, or from the binder of today."""
    for i, text in enumerate(case.exprs):
        if without_rules(recorded.bound[i]) != without_rules(live.bound[i]):
            yield f"{text}: bound as {live.bound[i]}, recorded as {recorded.bound[i]}"
        if recorded.types[i] != live.types[i]:
            yield f"{text}: type {live.types[i]}, recorded {recorded.types[i]}"
        if recorded.raising[i] != live.raising[i]:
            yield f"{text}: raises on {sorted(live.raising[i])}, recorded {sorted(recorded.raising[i])}"
        was, now = plain(recorded.values[f"r{i}"]), plain(live.values[f"r{i}"])
        yield from _changed(text, was, now)


def without_rules(expr: Expr) -> str:
    """A bound expression as text, without the digests of zones' rules: releases of Java differ in them."""
    return _RULED.sub(lambda zone: zone[0].partition("@")[0], msgspec.json.encode(expr).decode())


def _changed(text: str, was: Sequence[object], now: Sequence[object]) -> Iterator[str]:
    rows = [row for row, (one, other) in enumerate(zip(was, now, strict=True)) if repr(one) != repr(other)]
    if rows:
        yield f"{text}: row {rows[0]} is {now[rows[0]]!r}, recorded {was[rows[0]]!r} ({len(rows)} rows differ)"
