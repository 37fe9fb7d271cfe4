"""Translate Java's regular expressions to RE2, for the part of the language that means the same in both.

Java's `.` stops at more line terminators than RE2's, and its `$` also matches before a final line terminator. Both are
expanded. Look-around, back references, possessive and lazy quantifiers, flags and nested classes are refused. So are
the uses of `$` and of repeated groups in which the two still differ.
"""

import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.kernels.duck import constant_value
from tussock.jobs.kernels.registry import constant_args
from tussock.jobs.logical.nodes import Call

_DOT = r"[^\n\r\x{85}\x{2028}\x{2029}]"
_END = r"(?:\r\n|[\n\r\x{85}\x{2028}\x{2029}])?\z"
_TOKEN = re.compile(
    r"""(?P<escape>\\[dDwW.\\+*?()\[\]{}|^$/\-])
      | (?P<class>\[\^?(?:\\[dDwW.\\+*?()\[\]{}|^$/\-]|[^\[\]\\&^])+\])
      | (?P<group>\((?:\?:)?(?!\?)|\))
      | (?P<count>[*+?](?![*+?])|\{\d{1,3}(?:,\d{0,3})?\}(?![*+?]))
      | (?P<dot>\.) | (?P<start>\^) | (?P<end>\$) | (?P<or>\|)
      | (?P<literal>[^\\\[\](){}*+?.^$|])""",
    re.VERBOSE,
)


def regex_of(pattern: str) -> str:
    """The pattern for RE2. Requires: `refuse_regex` accepts it."""
    return "".join(_rewrite_match(match) for match in _TOKEN.finditer(pattern))


def _rewrite_match(match: re.Match[str]) -> str:
    match match.lastgroup:
        case "dot":
            return _DOT
        case "end":
            return _END
        case "start":
            return r"\A"
        case _:
            return match[0]


def refuse_regex(call: Call) -> str | None:
    """The reason why the call's pattern is not supported, or None."""
    if (reason := constant_args(1)(call)) is not None:
        return reason
    pattern = constant_value(call.args[1])
    return pattern_objection(pattern) if isinstance(pattern, str) else None


def pattern_objection(pattern: str) -> str | None:
    """The reason why a pattern of Java is not supported, or None."""
    at = 0
    while at < len(pattern):
        if (match := _TOKEN.match(pattern, at)) is None:
            return f"has a pattern with {pattern[at : at + 4]!r}, which is not among the supported elements of patterns"
        at = match.end()
    try:
        re.compile(pattern)
    except re.error as err:
        return f"has an invalid pattern: {err}"
    try:
        pc.match_substring_regex(pa.array([""]), regex_of(pattern))  # RE2 bounds the size of a pattern
    except pa.ArrowInvalid as err:
        return f"has a pattern that is supported only by Java: {err}"
    return _ending_objection([*_TOKEN.finditer(pattern)])


def _ending_objection(tokens: Sequence[re.Match[str]]) -> str | None:
    """The reason why a `$` of a pattern is not supported, or None.

    Java's `$` is a position, and never lies between \\r and \\n. RE2 has no such position, so `_END` takes the line
    terminator. Nothing may match that terminator after it, nor only the \\r before it.
    """
    for place, token in enumerate(tokens):
        if token.lastgroup != "end":
            continue
        if _is_continued(tokens[place + 1 :]):
            return "is supported only with a pattern whose $ is at its end"
        if any(_takes_only_return(tokens, i) for i in _atoms_before(tokens, place)):
            return r"is supported only with a pattern whose $ does not follow a single character that may be \r"
    return None


def _is_continued(tokens: Sequence[re.Match[str]]) -> bool:
    """Whether a match may go on with these tokens, or repeat a group that they end."""
    depth, skips = 0, False  # within groups that begin here; to the end of a group, for its other alternatives
    for token in tokens:
        if token.lastgroup == "or" and depth == 0:
            skips = True
        elif token.lastgroup == "group":
            depth += -1 if token[0] == ")" else 1
            if depth < 0:  # the group of `$` ends
                depth, skips = 0, False
            elif depth and not skips:
                return True
        elif not skips and token[0] != "?":
            return True
    return False


def _atoms_before(tokens: Sequence[re.Match[str]], place: int) -> Sequence[int]:
    """The places of the characters and classes that may match the last character before a place, or near it."""
    atoms, last = list[int](), place - 1
    while last >= 0:
        if tokens[last].lastgroup == "or":  # the other alternatives do not come before this one
            last = _opening_of(tokens, last)
        elif tokens[last].lastgroup == "group" and tokens[last][0] != ")":
            last -= 1
        else:
            counted = last - 1 if tokens[last].lastgroup == "count" else last
            first = _opening_of(tokens, counted) if tokens[counted][0] == ")" else counted
            atoms += [i for i in range(first, counted + 1) if tokens[i].lastgroup in ("escape", "class", "literal")]
            if re.fullmatch(tokens[0].string[tokens[first].start() : tokens[last].end()], "") is None:
                break
            last = first - 1
    return atoms


def _opening_of(tokens: Sequence[re.Match[str]], place: int) -> int:
    """The place of the parenthesis that opens the group around or closed by a token; -1 if there is none."""
    depth = 1
    while depth and place > 0:
        place -= 1
        depth += 0 if tokens[place].lastgroup != "group" else 1 if tokens[place][0] == ")" else -1
    return -1 if depth else place


def _takes_only_return(tokens: Sequence[re.Match[str]], place: int) -> bool:
    """Whether a character or class may match \\r, and not also the \\n after it."""
    if re.fullmatch(tokens[place][0], "\r") is None:
        return False
    count = tokens[place + 1][0] if place + 1 < len(tokens) else ""
    return re.fullmatch(tokens[place][0], "\n") is None or not count.endswith(("*", "+", ",}"))


def refuse_search(call: Call) -> str | None:
    """The reason why a pattern cannot be replaced or extracted, or None.

    Besides the reasons of `refuse_regex`, neither it nor a repeated group in it may match an empty text: Java and RE2
    go on differently after such a match.
    """
    if (reason := refuse_regex(call)) is not None:
        return reason
    pattern = constant_value(call.args[1])
    if not isinstance(pattern, str) or "$" in pattern or re.search(pattern, "") is not None:
        return "is supported only with a constant pattern without $ that never matches an empty text"
    if any(re.fullmatch(body, "") is not None for body in _repeated_groups(pattern)):
        return "is supported only with a constant pattern without repeated groups that may match an empty text"
    return None


def _repeated_groups(pattern: str) -> Sequence[str]:
    """The patterns within the groups of a pattern that may match more than once in a row."""
    opened, bodies = list[int](), list[str]()
    for token in _TOKEN.finditer(pattern):
        if token[0] == ")":
            begin = opened.pop()
            if pattern[token.end() : token.end() + 1] in ("*", "+", "{"):
                bodies.append(pattern[begin : token.start()])
        elif token.lastgroup == "group":
            opened.append(token.end())
    return bodies


def group_count(pattern: str) -> int:
    """The number of capturing groups in a pattern. Requires: `refuse_regex` accepts it."""
    return re.compile(pattern).groups


def is_plain_text(pattern: str) -> bool:
    """Whether a pattern matches only itself."""
    return all(match.lastgroup == "literal" for match in _TOKEN.finditer(pattern))
