"""The code of a Python function, read from a pipeline's folder `functions/` when the function is created."""

import ast
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tussock.jobs.kernels.python_function import FOLDER, FunctionCodeError, loaded
from tussock.jobs.logical.statements import CreateFunction, FunctionModule
from tussock.statestore.types import UnsupportedTypeError, arrow_type

_MOST_BYTES = 1_000_000  # the catalog carries it, and every epoch's tasks


def with_code(function: CreateFunction, base: Path) -> CreateFunction:
    """The function with its module and what that imports of the folder, directly or not; loaded once, to see that it can be.

    Args:
        base: the folder in which `functions/` is.

    Raises: FunctionCodeError naming the file and what is wrong with it.
    """
    folder = base / FOLDER
    sources: dict[str, str] = {}
    pending = [function.module]
    while pending:
        name = pending.pop()
        if name not in sources:
            sources[name] = _read(function, folder, name)
            pending += sorted(n for n in _imported(function, name, sources[name]) if (folder / f"{n}.py").exists())
    if (size := sum(len(s.encode()) for s in sources.values())) > _MOST_BYTES:
        reason = f"it and what it imports are {size:,} bytes; at most {_MOST_BYTES:,} are kept in the catalog"
        raise FunctionCodeError(function.name, f"{FOLDER}/{function.module}.py", reason)
    whole = msgspec.structs.replace(function, code=tuple(FunctionModule(n, sources[n]) for n in sorted(sources)))
    for field in (*((f.name, f.type) for f in function.fields), ("what it returns", function.returns)):
        try:
            arrow_type(field[1])
        except UnsupportedTypeError as err:
            raise FunctionCodeError(function.name, f"{FOLDER}/{function.module}.py", f"{field[0]}: {err}") from err
    loaded(whole)
    return whole


def _read(function: CreateFunction, folder: Path, name: str) -> str:
    path = folder / f"{name}.py"
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as err:
        there = ", ".join(sorted(p.name for p in folder.glob("*.py"))) or "none"
        raise FunctionCodeError(
            function.name, str(path), f"there is no such file; Python files there: {there}"
        ) from err
    except (OSError, UnicodeDecodeError) as err:
        raise FunctionCodeError(function.name, str(path), f"it can't be read as UTF-8 text ({err})") from err


def _imported(function: CreateFunction, name: str, source: str) -> Iterator[str]:
    """The first names of all modules that a module imports anywhere."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as err:
        raise FunctionCodeError(function.name, f"{FOLDER}/{name}.py", f"it can't be read as Python: {err}") from err
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                reason = f"line {node.lineno}: a relative import; modules of the folder import each other by their plain names"
                raise FunctionCodeError(function.name, f"{FOLDER}/{name}.py", reason)
            yield (node.module or "").split(".")[0]
