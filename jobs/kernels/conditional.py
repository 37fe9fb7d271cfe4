"""Boolean logic and conditionals. An argument that may raise is evaluated only on the rows on which Spark evaluates it.

DuckDB's CASE and COALESCE evaluate a branch only on the rows that reach it. Its AND and OR evaluate both sides on all
rows, so a right side that may raise is put into a CASE.
"""

from collections.abc import Sequence

from tussock.jobs.kernels.registry import ANY, FLOATS, TYPES, may_raise, renders
from tussock.jobs.logical.nodes import Call

_BOTH = [(("boolean", "boolean"), "boolean")]


@renders("And", _BOTH, strict=False)
def render_and(call: Call, args: Sequence[str]) -> str:
    left, right = args
    if may_raise(call.args[1]):
        # A NULL on the left still evaluates the right side, as in Spark.
        return f"CASE WHEN NOT {left} THEN FALSE ELSE {left} AND {right} END"
    return f"{left} AND {right}"


@renders("Or", _BOTH, strict=False)
def render_or(call: Call, args: Sequence[str]) -> str:
    left, right = args
    if may_raise(call.args[1]):
        return f"CASE WHEN {left} THEN TRUE ELSE {left} OR {right} END"
    return f"{left} OR {right}"


@renders("Not", [(("boolean",), "boolean")])
def render_not(call: Call, args: Sequence[str]) -> str:
    return f"NOT {args[0]}"


@renders("If", [(("boolean", t, t), t) for t in ANY], strict=False)
def render_if(call: Call, args: Sequence[str]) -> str:
    return f"CASE WHEN {args[0]} THEN {args[1]} ELSE {args[2]} END"


@renders("CaseWhen", [(("boolean", t), t) if t != "boolean" else (("boolean",), "boolean") for t in ANY], strict=False)
def case_when(call: Call, args: Sequence[str]) -> str:
    """Arguments: condition, value, condition, value, …, and an ELSE value if their number is odd."""
    branches = [f"WHEN {args[i]} THEN {args[i + 1]}" for i in range(0, len(args) - 1, 2)]
    otherwise = f"ELSE {args[-1]}" if len(args) % 2 else ""
    return f"CASE {' '.join(branches)} {otherwise} END"


@renders("Coalesce", [((t,), t) for t in ANY], strict=False)
def render_coalesce(call: Call, args: Sequence[str]) -> str:
    return f"coalesce({', '.join(args)})"


def _render_extreme(call: Call, function: str, args: Sequence[str]) -> str:
    """NULLs are skipped. DuckDB loses the sign of a zero; Spark returns the first argument that equals the result."""
    extreme = f"{function}({', '.join(args)})"
    if call.type not in FLOATS:
        return extreme
    return f"coalesce({', '.join(f'CASE WHEN {arg} = {extreme} THEN {arg} END' for arg in args)})"


@renders("Greatest", [((t,), t) for t in TYPES], strict=False)
def render_greatest(call: Call, args: Sequence[str]) -> str:
    return _render_extreme(call, "greatest", args)


@renders("Least", [((t,), t) for t in TYPES], strict=False)
def render_least(call: Call, args: Sequence[str]) -> str:
    return _render_extreme(call, "least", args)


@renders("NaNvl", [((t, t), t) for t in FLOATS], strict=False)
def render_nanvl(call: Call, args: Sequence[str]) -> str:
    return f"CASE WHEN isnan({args[0]}) THEN {args[1]} ELSE {args[0]} END"
