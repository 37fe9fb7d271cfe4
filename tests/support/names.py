"""Names that a parser could misread; tests draw names from them."""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

#: A slow machine is no fault.
QUICK = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])

#: Pieces of names with a meaning in a URL, a glob, SQL, a shell, a log or a file system.
PIECES = [
    " ",
    "%",
    "%20",
    "%25",
    "%2F",
    "%3A",
    "%41",
    "#",
    "?",
    "&",
    "=",
    "+",
    ";",
    ":",
    "'",
    '"',
    "`",
    "\\",
    "[",
    "]",
    "{",
    "}",
    "*",
    "\t",
]
PIECES += [
    "\n",
    "é",
    "e\u0301",
    "ß",
    "\U0001f600",
    ".",
    "..",
    "__",
    "A",
    "a",
    "$",
    "~",
    "!",
    "|",
    "^",
    "<",
    ">",
    ",",
    "select",
    "?region=x",
]

#: Pairs of names: one is the other, decoded once more or once less.
TWINS = [
    "per cent",
    "per%20cent",
    "per%2520cent",
    "ts=2026-01-01 00%3A00%3A00",
    "ts=2026-01-01 00:00:00",
    "ha#sh",
    "ha",
    "pl+us",
    "pl us",
]
TWINS += ["tab\tname", "tabname", "a&b=c", "Twin", "twin", "é", "e\u0301", "100%", "%41", "A"]


def names(without: str = "") -> st.SearchStrategy[str]:
    """Names of folders, files and parts of keys, without some characters; not hidden, and shorter than 255 bytes."""
    pieces = [piece for piece in PIECES if not {*piece} & {*without}]
    drawn = st.lists(st.sampled_from(pieces), min_size=1, max_size=6).map("".join)
    return drawn.filter(lambda name: name.strip(".") != "" and not name.startswith((".", "_")))
