"""Upper and lower case, and reversal, of text beyond ASCII, a whole column at a time.

DuckDB and Arrow map code points one to one; Spark maps texts (ß to SS, a final Σ to ς), as Python does. One Python call maps a whole
column: its texts joined by a control character that none of them holds and that ends words.
"""

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from jobs.kernels.functions import declare

_SEPARATORS = "\n\x1e\x1f\x1d\x1c\x01\x02\x03"


def _mapped(texts: pa.Array | pa.ChunkedArray, mapping: Callable[[str], str]) -> pa.Array:
    column = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    whole = column.drop_null()
    if len(whole) == 0:
        return column
    separator = next(s for s in _SEPARATORS if not pc.any(pc.match_substring(whole, s)).as_py())
    joined = pc.binary_join(pa.ListArray.from_arrays([0, len(whole)], whole), separator)[0].as_py()
    return pc.replace_with_mask(column, pc.is_valid(column), pa.array(mapping(joined).split(separator), pa.string()))


def upper_function() -> str:
    """The name of full upper-casing, to be called in a query."""
    return declare("full_upper", ("string",), "string", lambda texts: _mapped(texts, str.upper))


def lower_function() -> str:
    """The name of full lower-casing, to be called in a query."""
    return declare("full_lower", ("string",), "string", lambda texts: _mapped(texts, str.lower))


def reverse_function() -> str:
    """The name of reversal by code points; DuckDB keeps combined characters together."""
    return declare("reverse_code_points", ("string",), "string", lambda texts: pc.utf8_reverse(texts))
