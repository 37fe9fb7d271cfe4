"""Every case file: an executor's output, whose sum equals the batch query (in DuckDB) over the sum of its input."""

from collections import Counter

import duckdb
import pyarrow as pa
import pytest

from tests.support.jobs.executors.harness import (
    Bench,
    Case,
    Row,
    case_files,
    chunk_of,
    integrate,
    load_cases,
    pairs_of,
    parse_chunk,
    show_chunk,
)
from tussock.statestore.objectstore.base import ObjectStore

CASES = [case for file in case_files() for case in load_cases(file)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_executor_emits_the_expected_rows_and_their_sum_is_the_batch_answer(
    case: Case, objects: ObjectStore
) -> None:
    bench = Bench(case.node, objects)
    content: Counter[Row] = Counter()
    inputs: list[Counter[Row]] = [Counter() for _ in case.input_types]
    for texts, output, moment in case.steps:
        bench.at(moment)
        chunks = [parse_chunk(text, types) for text, types in zip(texts, case.input_types, strict=True)]
        inputs = [integrate(held, chunk) for held, chunk in zip(inputs, chunks, strict=True)]
        emitted = bench.apply(*chunks)
        assert show_chunk(emitted) == output
        content = integrate(content, emitted)
        assert content == batch_answer(case, inputs, moment)


def batch_answer(case: Case, inputs: list[Counter[Row]], moment: int) -> Counter[Row]:
    names = ("input",) if len(inputs) == 1 else ("left_input", "right_input")
    with duckdb.connect() as connection:
        for name, held, types in zip(names, inputs, case.input_types, strict=True):
            connection.register(name, chunk_of(types, ((row, 1) for row in held.elements())).drop_columns(["w"]))
        answer = connection.sql(case.sql.replace("$moment", str(moment))).to_arrow_table()
    weighted = answer.append_column("w", pa.array([1] * answer.num_rows, pa.int64()))
    return Counter(row for row, _ in pairs_of(weighted))
