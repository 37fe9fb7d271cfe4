"""Translate Java's regular expressions to RE2, for the part of the language that means the same in both.

Java's `.` stops at more line terminators than RE2's, and its `$` also matches before a final line terminator. Both are
expanded. Look-around, back references, possessive and lazy quantifiers, flags and nested classes are refused.
"""

import re

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
    return None


def refuse_search(call: Call) -> str | None:
    """The reason why a pattern cannot be replaced or extracted, or None.

    Besides the reasons of `refuse_regex`, it must not match an empty text: Java and RE2 advance differently after such
    a match.
    """
    if (reason := refuse_regex(call)) is not None:
        return reason
    pattern = constant_value(call.args[1])
    if not isinstance(pattern, str) or "$" in pattern or re.search(pattern, "") is not None:
        return "is supported only with a constant pattern without $ that never matches an empty text"
    return None


def group_count(pattern: str) -> int:
    """The number of capturing groups in a pattern. Requires: `refuse_regex` accepts it."""
    return re.compile(pattern).groups


def is_plain_text(pattern: str) -> bool:
    """Whether a pattern matches only itself."""
    return all(match.lastgroup == "literal" for match in _TOKEN.finditer(pattern))
