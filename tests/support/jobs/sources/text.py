"""Rows and helpers of test_text.py, which is in several lanes."""

import pyarrow as pa


def _bad(*texts: bytes) -> pa.Array:
    return pa.array(texts, pa.binary()).view(pa.string())
