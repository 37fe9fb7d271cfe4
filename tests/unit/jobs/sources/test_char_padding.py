"""Trailing spaces of char(n), compared with Spark's own reader."""

import pyarrow as pa
import pytest

from tussock.jobs.sources.char_padding import pad_column


@pytest.mark.parametrize("note", ["char(3", "struct<b:char(1)>", "array<char(1)", "char(3),"])
def test_a_note_that_does_not_fit_the_column_is_an_error(note: str) -> None:
    with pytest.raises(LookupError, match="contains the type"):
        pad_column(pa.chunked_array([pa.array([{"a": "x"}])]) if "struct" in note else pa.chunked_array([["x"]]), note)
