"""Upper case, lower case, title case and reversal of non-ASCII text, for a whole column at once.

DuckDB and Arrow map single code points. Spark and Python map texts (ß to SS, a final Σ to ς). One Python call maps a
whole column: its texts are joined by a character that none of them contains, that has no case, and that ends words.
Python has an older Unicode version than Spark. Texts with one of the few letters that differ raise.
"""

import re
import unicodedata
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.kernels.functions import declare_function

_SPACE = " "
_NONCHARACTERS = "".join(
    map(chr, [*range(0xFDD0, 0xFDF0), *range(0x1FFFE, 0x110000, 0x10000), *range(0x1FFFF, 0x110000, 0x10000)])
)
_SEPARATORS = "\x1e\n" + _NONCHARACTERS


# Letters whose case mapping is newer than Python 3.11's Unicode version. Spark maps them.
_NEWER_UPPER = re.compile(
    "[\u019b\u0264\u1c8a\ua7cd\ua7cf\ua7d3\ua7d5\ua7db\U00010d70-\U00010d85\U00016ebb-\U00016ed3]"
)
_NEWER_LOWER = re.compile(
    "[\u1c89\ua7cb\ua7cc\ua7ce\ua7d2\ua7d4\ua7da\ua7dc\U00010d50-\U00010d65\U00016ea0-\U00016eb8]"
)
_SIGMA = "\u03a3"  # its lower case depends on its neighbours, even on characters that Python does not know


def _to_upper(whole: pa.Array, joined: str, separator: str) -> str:
    if _NEWER_UPPER.search(joined) is not None:
        raise ValueError("upper case of letters newer than Unicode 14 is not supported")
    return joined.upper()


def _to_lower(whole: pa.Array, joined: str, separator: str) -> str:
    if _NEWER_LOWER.search(joined) is not None or (_SIGMA in joined and any(map(_is_newer, _beside_sigma(whole)))):
        raise ValueError("lower case of letters newer than Unicode 14 is not supported")
    return joined.lower()


def _to_title(whole: pa.Array, joined: str, separator: str) -> str:
    """Capitalise the words between spaces; the separator becomes a word of its own."""
    if _NEWER_UPPER.search(joined) is not None:
        raise ValueError("title case of letters newer than Unicode 14 is not supported")
    _to_lower(whole, joined, separator)  # raises for the others
    apart = f"{_SPACE}{separator}{_SPACE}"
    words = joined.replace(separator, apart).split(_SPACE)
    return _SPACE.join(map(str.capitalize, words)).replace(apart, separator)


def _beside_sigma(whole: pa.Array) -> set[str]:
    """The characters of the texts that contain a sigma."""
    texts = whole.filter(pc.match_substring(whole, _SIGMA))
    return set(pc.binary_join(pa.ListArray.from_arrays([0, len(texts)], texts), "")[0].as_py())


def _is_newer(character: str) -> bool:
    return character == "\u0295" or unicodedata.category(character) == "Cn"


def _map_texts(texts: pa.Array | pa.ChunkedArray, mapping: Callable[[pa.Array, str, str], str]) -> pa.Array:
    column = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    whole = column.drop_null()
    if len(whole) == 0:
        return column
    separator = next((s for s in _SEPARATORS if not pc.any(pc.match_substring(whole, s)).as_py()), None)
    if separator is None:
        raise ValueError("texts that contain every noncharacter of Unicode are not supported")
    joined = pc.binary_join(pa.ListArray.from_arrays([0, len(whole)], whole), separator)[0].as_py()
    return pc.replace_with_mask(
        column, pc.is_valid(column), pa.array(mapping(whole, joined, separator).split(separator), pa.string())
    )


def upper_function() -> str:
    """Declare the function for upper case with full case mapping and return its name."""
    return declare_function("full_upper", ("string",), "string", lambda texts: _map_texts(texts, _to_upper))


def lower_function() -> str:
    """Declare the function for lower case with full case mapping and return its name."""
    return declare_function("full_lower", ("string",), "string", lambda texts: _map_texts(texts, _to_lower))


def title_function() -> str:
    """Declare the function for words that begin with a letter in title case and return its name."""
    return declare_function("title_words", ("string",), "string", lambda texts: _map_texts(texts, _to_title))


def reverse_function() -> str:
    """Declare the function that reverses code points and return its name.

    DuckDB's keeps combined characters together.
    """
    return declare_function("reverse_code_points", ("string",), "string", lambda texts: pc.utf8_reverse(texts))
