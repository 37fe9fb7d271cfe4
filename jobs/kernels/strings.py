"""Functions of text. Positions and lengths count code points; texts are compared as bytes."""

import re
from collections.abc import Callable, Sequence

from tussock.jobs.kernels.case_mapping import lower_function, reverse_function, title_function, upper_function
from tussock.jobs.kernels.duck import constant_value, quote_string, strict_cast
from tussock.jobs.kernels.patterns import group_count, is_plain_text, refuse_regex, refuse_search, regex_of
from tussock.jobs.kernels.registry import constant_args, renders
from tussock.jobs.logical.nodes import Call, Literal

_TEXT = [(("string",), "string")]
_TEXTS = [(("string", "string"), "boolean")]
_MAX_INT = 2147483647


def _is_ascii(sql: str) -> str:
    return f"strlen({sql}) = length({sql})"


@renders("Upper", _TEXT)
def render_upper(call: Call, args: Sequence[str]) -> str:
    """Full case mapping: ß becomes SS. DuckDB maps single characters, which gives the same result for ASCII."""
    return f"CASE WHEN {_is_ascii(args[0])} THEN upper({args[0]}) ELSE {upper_function()}({args[0]}) END"


@renders("Lower", _TEXT)
def render_lower(call: Call, args: Sequence[str]) -> str:
    return f"CASE WHEN {_is_ascii(args[0])} THEN lower({args[0]}) ELSE {lower_function()}({args[0]}) END"


@renders("InitCap", _TEXT)
def render_initcap(call: Call, args: Sequence[str]) -> str:
    """The first character of each word in title case, the others in lower case. Only a space ends a word."""
    return f"{title_function()}({args[0]})"


@renders("Length", [(("string",), "int"), (("binary",), "int")])
def render_length(call: Call, args: Sequence[str]) -> str:
    return strict_cast(f"{'length' if call.args[0].type == 'string' else 'octet_length'}({args[0]})", "int")


@renders("OctetLength", [(("string",), "int")])
def octet_length(call: Call, args: Sequence[str]) -> str:
    return strict_cast(f"strlen({args[0]})", "int")


@renders("Substring", [(("string", "int", "int"), "string")])
def render_substring(call: Call, args: Sequence[str]) -> str:
    """Positions start at 1; 0 means 1; a negative position counts from the end.

    Characters before the start of the text count toward the length.
    """
    text, position, count = args
    if isinstance(call.args[1], Literal) and isinstance(call.args[2], Literal):
        start, wanted = call.args[1].value, call.args[2].value
        if isinstance(start, int) and isinstance(wanted, int) and start >= 0:
            return f"substring({text}, {max(start, 1)}, {min(max(wanted, 0), _MAX_INT)})"
    first = (
        f"(CASE WHEN {position} > 0 THEN {position}::BIGINT - 1 "
        f"WHEN {position} < 0 THEN length({text}) + {position} ELSE 0 END)"
    )
    end = f"({first} + {count})"
    taken = f"substring({text}, greatest({first}, 0) + 1, {end} - greatest({first}, 0))"
    empty = f"{end} <= greatest({first}, 0)"
    return (
        f"CASE WHEN {position} IS NULL OR {count} IS NULL THEN NULL WHEN {empty} THEN left({text}, 0) ELSE {taken} END"
    )


@renders("Concat", _TEXT)
def render_concat(call: Call, args: Sequence[str]) -> str:
    return " || ".join(args) if args else "''"


@renders("ConcatWs", _TEXT, strict=False)
def concat_ws(call: Call, args: Sequence[str]) -> str:
    if len(args) == 1:
        return f"left({args[0]}, 0)"
    return f"concat_ws({', '.join(args)})"  # skips NULL arguments; a NULL separator gives NULL


def _register_trim(node: str, function: str) -> None:
    @renders(node, [(("string",), "string"), (("string", "string"), "string")])
    def render_trim(call: Call, args: Sequence[str]) -> str:
        return f"{function}({args[0]}, {args[1] if len(args) == 2 else quote_string(' ')})"


for _node, _function in (("StringTrim", "trim"), ("StringTrimLeft", "ltrim"), ("StringTrimRight", "rtrim")):
    _register_trim(_node, _function)


def _refuse_pad(call: Call) -> str | None:
    return constant_args(1, 2)(call)


def _register_pad(node: str, function: str) -> None:
    @renders(node, [(("string", "int", "string"), "string")], refuse=_refuse_pad)
    def render_pad(call: Call, args: Sequence[str]) -> str:
        width, filling = constant_value(call.args[1]), constant_value(call.args[2])
        if not isinstance(width, int) or filling is None:
            return "CAST(NULL AS VARCHAR)"
        if width <= 0 or filling == "":
            return f"left({args[0]}, {max(width, 0)})"
        return f"{function}({args[0]}, {width}, {args[2]})"


_register_pad("StringLPad", "lpad")
_register_pad("StringRPad", "rpad")


@renders("StringRepeat", [(("string", "int"), "string")])
def render_repeat(call: Call, args: Sequence[str]) -> str:
    return f"repeat({args[0]}, greatest({args[1]}, 0))" if isinstance(call.args[1], Literal) else _repeat_by(args)


def _repeat_by(args: Sequence[str]) -> str:
    return f"CASE WHEN {args[1]} IS NOT NULL THEN repeat({args[0]}, greatest({args[1]}, 0)) END"


@renders("Reverse", _TEXT)
def render_reverse(call: Call, args: Sequence[str]) -> str:
    return f"{reverse_function()}({args[0]})"


@renders("StringReplace", [(("string", "string", "string"), "string")])
def render_replace(call: Call, args: Sequence[str]) -> str:
    return f"replace({', '.join(args)})"


@renders("StringTranslate", [(("string", "string", "string"), "string")], refuse=constant_args(1, 2))
def render_translate(call: Call, args: Sequence[str]) -> str:
    return f"translate({', '.join(args)})"


@renders("StringInstr", [(("string", "string"), "int")])
def render_instr(call: Call, args: Sequence[str]) -> str:
    return strict_cast(f"strpos({args[0]}, {args[1]})", "int")


@renders("StringLocate", [(("string", "string", "int"), "int")], refuse=constant_args(2), strict=False)
def render_locate(call: Call, args: Sequence[str]) -> str:
    start = constant_value(call.args[2])
    if not isinstance(start, int) or start < 1:
        return (
            f"CASE WHEN {args[0]} IS NOT NULL AND {args[1]} IS NOT NULL THEN 0 END" if isinstance(start, int) else "0"
        )
    if start == 1:
        return strict_cast(f"strpos({args[1]}, {args[0]})", "int")
    place = f"strpos(substring({args[1]}, {start}), {args[0]})"
    empty = f"WHEN {args[1]} IS NULL THEN NULL WHEN {args[0]} = '' THEN 1"
    return strict_cast(f"CASE {empty} WHEN {place} = 0 THEN 0 ELSE {place} + {start - 1} END", "int")


@renders("Ascii", [(("string",), "int")])
def render_ascii(call: Call, args: Sequence[str]) -> str:
    return f"CASE WHEN {args[0]} = '' THEN 0 ELSE {strict_cast(f'unicode({args[0]})', 'int')} END"


def _register_test(node: str, function: str) -> None:
    @renders(node, _TEXTS)
    def render_test(call: Call, args: Sequence[str]) -> str:
        return f"{function}({args[0]}, {args[1]})"


for _node, _function in (("StartsWith", "starts_with"), ("EndsWith", "ends_with"), ("Contains", "contains")):
    _register_test(_node, _function)


# Parts of text ------------------------------------------------------------------------------------


def _literal_text_at(*places: int) -> Callable[[Call], str | None]:
    def refuse(call: Call) -> str | None:
        if all(isinstance(call.args[i], Literal) and constant_value(call.args[i]) not in (None, "") for i in places):
            return None
        return (
            "is supported only with a constant, neither empty nor NULL, as argument "
            f"{' and '.join(str(i + 1) for i in places)}"
        )

    return refuse


@renders("StringSplitSQL", [(("string", "string"), "array")], refuse=_literal_text_at(1))
def render_split(call: Call, args: Sequence[str]) -> str:
    return f"string_split({args[0]}, {args[1]})"


def _refuse_regex_split(call: Call) -> str | None:
    if not (isinstance(call.args[2], Literal) and isinstance(limit := call.args[2].value, int) and limit <= 0):
        return "is supported only without a limit"
    return refuse_search(call)


@renders("StringSplit", [(("string", "string", "int"), "array")], refuse=_refuse_regex_split)
def split_by_regex(call: Call, args: Sequence[str]) -> str:
    """Empty parts count, also at both ends."""
    pattern = str(constant_value(call.args[1]))
    if is_plain_text(pattern):
        return f"string_split({args[0]}, {quote_string(pattern)})"
    return f"string_split_regex({args[0]}, {quote_string(regex_of(pattern))})"


def _refuse_substring_index(call: Call) -> str | None:
    """Refuse a delimiter that may overlap itself: Spark's search for the next one begins within the last one."""
    if (reason := _literal_text_at(1)(call) or constant_args(2)(call)) is not None:
        return reason
    delimiter = str(constant_value(call.args[1]))
    overlaps = any(delimiter.startswith(delimiter[place:]) for place in range(1, len(delimiter)))
    return "is supported only with a delimiter that cannot overlap itself" if overlaps else None


@renders("SubstringIndex", [(("string", "string", "int"), "string")], refuse=_refuse_substring_index)
def substring_index(call: Call, args: Sequence[str]) -> str:
    """The text before the n-th delimiter; for a negative n, the text after the n-th delimiter from the end."""
    count = constant_value(call.args[2])
    if not isinstance(count, int):
        return "CAST(NULL AS VARCHAR)"
    if count == 0:
        return f"left({args[0]}, 0)"
    part = f"[1:{count}]" if count > 0 else f"[{count}:]"
    return (
        f"CASE WHEN {args[0]} = '' THEN '' ELSE array_to_string(string_split({args[0]}, {args[1]}){part}, "
        f"{args[1]}) END"
    )


# Patterns -----------------------------------------------------------------------------------------


def _refuse_like(call: Call) -> str | None:
    if (reason := constant_args(1)(call)) is not None:
        return reason
    pattern, escape = constant_value(call.args[1]), dict(call.params).get("escapeChar", "\\")
    if isinstance(pattern, str) and escape in pattern:
        return "is supported only without an escape character in its pattern"
    return None


@renders("Like", _TEXTS, refuse=_refuse_like, params=("escapeChar",))
def render_like(call: Call, args: Sequence[str]) -> str:
    return f"{args[0]} LIKE {args[1]}"


@renders("RLike", _TEXTS, refuse=refuse_regex)
def render_rlike(call: Call, args: Sequence[str]) -> str:
    pattern = constant_value(call.args[1])
    if pattern is None:
        return "CAST(NULL AS BOOLEAN)"
    return f"regexp_matches({args[0]}, {quote_string(regex_of(str(pattern)))})"


_GROUP = re.compile(r"\$([0-9])(?![0-9])")  # of two digits, Java takes both only if there are so many groups


def _refuse_replace(call: Call) -> str | None:
    replacement = constant_value(call.args[2]) if isinstance(call.args[2], Literal) else None
    if not isinstance(replacement, str) or set(_GROUP.sub("", replacement)) & {"$", "\\"}:
        return "is supported only with a constant replacement without \\, and without $ except in $0 to $9"
    if not (isinstance(call.args[3], Literal) and call.args[3].value == 1):
        return "is supported only from position 1"
    if (reason := refuse_search(call)) is not None:
        return reason
    known = group_count(str(constant_value(call.args[1])))
    beyond = [group for group in _GROUP.findall(replacement) if int(group) > known]
    return f"requests group {beyond[0]}, but the pattern has {known}" if beyond else None


@renders("RegExpReplace", [(("string", "string", "string", "int"), "string")], refuse=_refuse_replace)
def regexp_replace(call: Call, args: Sequence[str]) -> str:
    pattern, replacement = (str(constant_value(call.args[i])) for i in (1, 2))
    groups_by_backslash = _GROUP.sub(r"\\\1", replacement)
    return f"regexp_replace({args[0]}, {quote_string(regex_of(pattern))}, {quote_string(groups_by_backslash)}, 'g')"


def _refuse_extract(call: Call) -> str | None:
    groups = call.args[2]
    if not (isinstance(groups, Literal) and isinstance(groups.value, int) and groups.value >= 0):
        return "is supported only with a constant group number"
    if (reason := refuse_search(call)) is not None:
        return reason
    known = group_count(str(constant_value(call.args[1])))
    return None if groups.value <= known else f"requests group {groups.value}, but the pattern has {known}"


@renders("RegExpExtract", [(("string", "string", "int"), "string")], refuse=_refuse_extract)
def regexp_extract(call: Call, args: Sequence[str]) -> str:
    return f"regexp_extract({args[0]}, {quote_string(regex_of(str(constant_value(call.args[1]))))}, {args[2]})"


# Digests ------------------------------------------------------------------------------------------


@renders("Hex", [(("binary",), "string"), (("string",), "string"), (("bigint",), "string")])
def render_hex(call: Call, args: Sequence[str]) -> str:
    return f"hex({args[0]})"


@renders("Md5", [(("binary",), "string")])
def render_md5(call: Call, args: Sequence[str]) -> str:
    return f"md5({args[0]})"


@renders("Sha1", [(("binary",), "string")])
def render_sha1(call: Call, args: Sequence[str]) -> str:
    return f"sha1({args[0]})"


def _refuse_sha2(call: Call) -> str | None:
    is_256 = isinstance(call.args[1], Literal) and call.args[1].value in (0, 256)
    return None if is_256 else "is supported only with 256 bits"


@renders("Sha2", [(("binary", "int"), "string")], refuse=_refuse_sha2)
def render_sha2(call: Call, args: Sequence[str]) -> str:
    return f"sha256({args[0]})"
