"""The user's Python functions: loaded from the text in the catalog, called over whole columns.

A function receives Arrow arrays, or pandas Series if its first parameter is annotated as `pd.Series`. It returns one
such column of equal length. A batch has at most 2,048 rows, and contains only the rows that reach the call. Series have
pandas' nullable types (Int64, boolean, Float64), so that the value of a row does not depend on other rows. In a result,
NaN in a plain float column is NULL.

Each version of a module is loaded under its own name, which contains the digest. One process can thus run two versions
of a function.
"""

import builtins
import inspect
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from types import ModuleType
from typing import Any

import pyarrow as pa

from tussock.jobs.kernels.duck import type_in_duckdb
from tussock.jobs.kernels.functions import declare_function
from tussock.jobs.kernels.registry import renders_any
from tussock.jobs.logical.nodes import PYTHON, Call
from tussock.jobs.logical.statements import CreateFunction
from tussock.statestore.decimals import as_decimals
from tussock.statestore.errors import InputError
from tussock.statestore.forks import new_rlock
from tussock.statestore.months import given_array, given_type, kept_array
from tussock.statestore.nested import is_nested, rebuild_leaves, relabel_column
from tussock.statestore.types import arrow_type

FOLDER = "functions"  # in a pipeline's folder
_SERIES = frozenset({"Series", "pd.Series", "pandas.Series"})


class FunctionInput(Enum):
    """The type of a function's columns."""

    ARROW = "Arrow arrays"
    PANDAS = "pandas Series"


class FunctionCodeError(InputError):
    """A function's code cannot be loaded, or does not match its declaration."""

    function: str
    file: str
    reason: str

    def __str__(self) -> str:
        return f"function {self.function!r}, {self.file}: {self.reason}. Nothing was changed."


class FunctionResultError(InputError):
    """A function did not return one value of its type per row. Its code is wrong, not the rows."""

    function: str
    file: str
    finding: str
    expected: str

    def __str__(self) -> str:
        return (
            f"function {self.function!r} ({self.file}) gave {self.finding}, expected {self.expected}. "
            "Pause the views that call it, correct it, and run CREATE OR REPLACE FUNCTION, which rebuilds the views."
        )


class _RaisedError(Exception):
    """A function's exception as one line, to be passed through DuckDB."""


@dataclass(frozen=True, slots=True)
class LoadedFunction:
    """A function that is ready to be called."""

    declared: CreateFunction
    call: Callable[..., Any]
    over: FunctionInput


_installed: dict[str, CreateFunction] = {}  # by digest
_loading = new_rlock()  # while another thread runs a module for the first time, `sys.modules` has an incomplete module


class _Faults(threading.local):
    """The cause of a DuckDB error that no row caused. A kernel calls functions in the thread of its query."""

    last: InputError | None = None


_faults = _Faults()


def install_functions(functions: Iterable[CreateFunction]) -> None:
    """Register functions in this process by their digests. Their code is loaded at the first call."""
    for function in functions:
        if (digest := function.digest) not in _installed:
            _installed[digest] = function


def taken_fault() -> InputError | None:
    """Return and clear the function error that ended the last query. None if there was none, or if a row caused it."""
    fault, _faults.last = _faults.last, None
    return fault


def load_function(function: CreateFunction) -> LoadedFunction:
    """Load a function's code, which runs the top level of its module. Raises FunctionCodeError."""
    file = f"{FOLDER}/{function.module}.py"
    try:
        with _loading:
            code = getattr(_Modules(function).load_module(function.module), function.function, None)
    except Exception as err:  # the user's module may raise any exception
        raise FunctionCodeError(function.name, file, f"it cannot be imported: {_describe_exception(err)}") from err
    if not callable(code):
        there = (
            "has no function of this name" if code is None else f"has {function.function!r}, which is not a function"
        )
        raise FunctionCodeError(function.name, file, f"the file {there} ({function.function!r})")
    try:
        parameters = list(inspect.signature(code).parameters.values())
        inspect.signature(code).bind(*function.fields)
    except (TypeError, ValueError) as err:
        declared = ", ".join(f"{f.name} {f.type}" for f in function.fields)
        raise FunctionCodeError(
            function.name, file, f"{function.function!r} does not take the declared ({declared}): {err}"
        ) from err
    return LoadedFunction(function, code, _input_kind(parameters[0].annotation))


def _input_kind(annotation: Any) -> FunctionInput:
    if isinstance(annotation, str):
        return FunctionInput.PANDAS if annotation.strip("'\" ") in _SERIES else FunctionInput.ARROW
    name = f"{getattr(annotation, '__module__', '')}.{getattr(annotation, '__name__', '')}"
    return FunctionInput.PANDAS if name.startswith("pandas.") and name.endswith(".Series") else FunctionInput.ARROW


def call_function(declared: CreateFunction, columns: Sequence[pa.Array]) -> pa.Array:
    """Call a function over columns from Spark. The result has the declared type.

    Raises FunctionCodeError, FunctionResultError, and the exceptions of the function.
    """
    install_functions([declared])
    function = _load_installed(declared.digest)
    arguments = [
        _to_argument(column, arrow_type(f.type), function.over)
        for column, f in zip(columns, declared.fields, strict=True)
    ]
    result = _to_result(function, function.call(*arguments), len(columns[0]))
    return relabel_column(pa.chunked_array([result]), arrow_type(declared.returns)).combine_chunks()


class _Modules:
    """The modules of one function. They import each other by their names in the folder. Other imports work as usual."""

    def __init__(self, function: CreateFunction) -> None:
        self._prefix = f"tussock_function_{function.digest[:16]}"
        self._sources = {m.name: m.source for m in function.code}
        self._builtins: Mapping[str, Any] = {**vars(builtins), "__import__": self._import_module}

    def load_module(self, name: str) -> ModuleType:
        full = f"{self._prefix}.{name}"
        if (known := sys.modules.get(full)) is not None:
            return known
        module = ModuleType(full)
        vars(module)["__builtins__"] = self._builtins
        code = compile(self._sources[name], f"{FOLDER}/{name}.py", "exec", dont_inherit=True)
        sys.modules[full] = module  # before it runs, because dataclasses and circular imports look it up
        try:
            exec(code, vars(module))
        except BaseException:
            del sys.modules[full]
            raise
        return module

    def _import_module(
        self, name: str, globals: Any = None, locals: Any = None, fromlist: Sequence[str] = (), level: int = 0
    ) -> ModuleType:
        if level == 0 and name in self._sources:
            return self.load_module(name)
        return builtins.__import__(name, globals, locals, fromlist, level)


# --- calls ----------------------------------------------------------------------------------------


@renders_any(PYTHON, params=("name", "digest"))
def _python_function(call: Call, args: Sequence[str]) -> str:
    name, digest = dict(call.params)["name"], dict(call.params)["digest"]
    parameters = tuple(a.type for a in call.args)
    function = declare_function(f"python_{digest}", parameters, call.type, _make_caller(name, digest, len(parameters)))
    return f"{function}({', '.join(args)})"


def _make_caller(name: str, digest: str, parameters: int) -> Callable[..., pa.Array]:
    """The function that DuckDB calls. DuckDB inspects its signature to count the parameters."""

    def call(*columns: pa.Array | pa.ChunkedArray) -> pa.Array:
        return _call_from_duckdb(name, digest, *columns)

    places = [inspect.Parameter(f"a{i}", inspect.Parameter.POSITIONAL_ONLY) for i in range(parameters)]
    call.__signature__ = inspect.Signature(places)  # type: ignore[attr-defined]
    return call


@lru_cache(maxsize=256)
def _load_installed(digest: str) -> LoadedFunction:
    return load_function(_installed[digest])


def _call_from_duckdb(name: str, digest: str, *columns: pa.Array | pa.ChunkedArray) -> pa.Array:
    try:
        function = _load_installed(digest)
        types = [arrow_type(f.type) for f in function.declared.fields]
        arguments = [_to_argument(c, kind, function.over) for c, kind in zip(columns, types, strict=True)]
        try:
            result = function.call(*arguments)
        except Exception as err:
            raise _RaisedError(f"function {name!r} raised {_describe_exception(err)}") from None
        return _to_result(function, result, len(columns[0]))
    except InputError as err:
        _faults.last = err
        raise


def _to_argument(column: pa.Array | pa.ChunkedArray, kind: pa.DataType, over: FunctionInput) -> Any:
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if is_nested(kind) or type_in_duckdb(kind) != kind:
        whole = relabel_column(pa.chunked_array([whole]), kind).combine_chunks()
    elif whole.type != kind:
        whole = whole.cast(kind)
    whole = given_array(whole)
    return whole if over is FunctionInput.ARROW else whole.to_pandas(types_mapper=_pandas_types().get)


@lru_cache(maxsize=1)
def _pandas_types() -> dict[pa.DataType, Any]:
    import pandas as pd  # type: ignore[import-untyped]

    return {
        pa.int8(): pd.Int8Dtype(),
        pa.int16(): pd.Int16Dtype(),
        pa.int32(): pd.Int32Dtype(),
        pa.int64(): pd.Int64Dtype(),
        pa.float32(): pd.Float32Dtype(),
        pa.float64(): pd.Float64Dtype(),
        pa.bool_(): pd.BooleanDtype(),
    }


def _to_result(function: LoadedFunction, result: Any, rows: int) -> pa.Array:
    """Convert a function's result to one array of exactly its type. Raises FunctionResultError."""
    declared = function.declared
    result_type = arrow_type(declared.returns)
    kind = given_type(result_type)

    def wrong_result(finding: str, expected: str) -> FunctionResultError:
        return FunctionResultError(declared.name, f"{FOLDER}/{declared.module}.py", finding, expected)

    if isinstance(result, pa.ChunkedArray):
        result = result.combine_chunks()
    if not isinstance(result, pa.Array):
        if function.over is FunctionInput.ARROW or not hasattr(result, "to_numpy"):
            expected = "a pyarrow Array" if function.over is FunctionInput.ARROW else "a pandas Series"
            raise wrong_result(
                f"a {type(result).__module__}.{type(result).__name__}", f"{expected} with one value for each row"
            )
        try:
            result = pa.Array.from_pandas(result, type=kind)
        except (pa.ArrowException, TypeError, ValueError) as err:
            raise wrong_result(
                f"a Series that cannot become {declared.returns} ({_describe_exception(err)})",
                "values of the declared type",
            ) from err
    if len(result) != rows:
        raise wrong_result(f"{len(result)} values for {rows} rows", "one value for each row")
    if result.type != kind:
        if not _keeps_meaning(result.type, kind):
            raise wrong_result(f"values of type {result.type}", f"{kind}, for the declared type {declared.returns}")
        try:
            result = rebuild_leaves(result, _with_decimals(result.type, kind), _to_decimals).cast(kind)
        except pa.ArrowException as err:
            raise wrong_result(
                f"{result.type} values that do not fit ({_describe_exception(err)})",
                f"values of type {declared.returns}",
            ) from err
    try:
        result = kept_array(result, result_type)
    except pa.ArrowInvalid as err:
        raise wrong_result(str(err), f"values of type {declared.returns}") from err
    return (
        relabel_column(pa.chunked_array([result]), type_in_duckdb(result_type)).combine_chunks()
        if is_nested(result_type) or type_in_duckdb(result_type) != result_type
        else result
    )


def _keeps_meaning(result_type: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a cast between two types keeps the meaning of values. Values that do not fit raise.

    Parts of arrays, maps and structs follow the same rules. Arrow's cast matches struct fields by name.
    """
    families = (
        (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal),
        (pa.types.is_string, pa.types.is_large_string),
        (pa.types.is_binary, pa.types.is_large_binary),
        (pa.types.is_date,),
        (pa.types.is_timestamp,),
    )
    if pa.types.is_null(result_type) or result_type == wanted:
        return True
    if pa.types.is_list(wanted):
        return _is_any_list(result_type) and _keeps_meaning(result_type.value_type, wanted.value_type)
    if pa.types.is_map(wanted):
        same = pa.types.is_map(result_type)
        return (
            same
            and _keeps_meaning(result_type.key_type, wanted.key_type)
            and _keeps_meaning(result_type.item_type, wanted.item_type)
        )
    if pa.types.is_struct(wanted):
        if not pa.types.is_struct(result_type) or sorted(result_type.names) != sorted(wanted.names):
            return False
        return all(_keeps_meaning(result_type.field(f.name).type, f.type) for f in wanted)
    if pa.types.is_timestamp(result_type) and pa.types.is_timestamp(wanted):
        return (result_type.tz is None) == (wanted.tz is None)
    return any(any(f(result_type) for f in family) and any(f(wanted) for f in family) for family in families)


def _is_any_list(kind: pa.DataType) -> bool:
    return any(of(kind) for of in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list))


def _with_decimals(result_type: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    """The type of a result, with the decimals of the wanted type. Requires: `_keeps_meaning`."""
    if _is_any_list(result_type):
        return pa.list_(_with_decimals(result_type.value_type, wanted.value_type))
    if pa.types.is_map(result_type):
        return pa.map_(
            *(_with_decimals(getattr(result_type, p), getattr(wanted, p)) for p in ("key_type", "item_type"))
        )
    if pa.types.is_struct(result_type):
        return pa.struct([f.with_type(_with_decimals(f.type, wanted.field(f.name).type)) for f in result_type])
    return wanted if pa.types.is_decimal(result_type) and pa.types.is_decimal(wanted) else result_type


def _to_decimals(leaf: pa.Array, kind: pa.DataType) -> pa.Array:
    return leaf if leaf.type == kind else as_decimals(leaf, kind)


def _describe_exception(error: BaseException) -> str:
    """An exception in one line, with the line of the user's code that raised it."""
    text = " ".join(str(error).split())
    where, trace = "", error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if file.startswith(f"{FOLDER}/"):
            where = f" (line {trace.tb_lineno} of {file})"
        trace = trace.tb_next
    return f"{type(error).__name__}{f': {text}' if text else ''}{where}"
