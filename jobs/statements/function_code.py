"""The code of a Python function, read from a pipeline's folder `functions/` when the function is created."""

import ast
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tussock.jobs.kernels.python_function import FOLDER, FunctionCodeError, load_function
from tussock.jobs.logical.statements import CreateFunction, FunctionModule
from tussock.jobs.settings.user_files import ENCODING
from tussock.statestore.types import UnsupportedTypeError, arrow_type

_MOST_BYTES = 1_000_000  # the catalog and the tasks of every epoch contain the code


def with_code(function: CreateFunction, base: Path) -> CreateFunction:
    """The function with the code of its module and of that module's imports from the folder.

    Imports of imports are included. The code is loaded once as a check.

    Args:
        base: the folder that contains `functions/`.

    Raises: FunctionCodeError with the file and the reason.
    """
    folder = base / FOLDER
    sources: dict[str, str] = {}
    pending = [function.module]
    while pending:
        name = pending.pop()
        if name not in sources:
            sources[name] = _read_code(function, folder, name)
            pending += sorted(n for n in _list_imports(function, name, sources[name]) if (folder / f"{n}.py").exists())
    if (size := sum(len(s.encode()) for s in sources.values())) > _MOST_BYTES:
        reason = f"it and its imports are {size:,} bytes; the catalog accepts at most {_MOST_BYTES:,}"
        raise FunctionCodeError(function.name, f"{FOLDER}/{function.module}.py", reason)
    whole = msgspec.structs.replace(function, code=tuple(FunctionModule(n, sources[n]) for n in sorted(sources)))
    for field in (*((f.name, f.type) for f in function.fields), ("its return type", function.returns)):
        try:
            arrow_type(field[1])
        except UnsupportedTypeError as err:
            raise FunctionCodeError(function.name, f"{FOLDER}/{function.module}.py", f"{field[0]}: {err}") from err
    load_function(whole)
    return whole


def _read_code(function: CreateFunction, folder: Path, name: str) -> str:
    path = folder / f"{name}.py"
    try:
        return path.read_text(encoding=ENCODING)
    except FileNotFoundError as err:
        there = ", ".join(sorted(p.name for p in folder.glob("*.py"))) or "none"
        raise FunctionCodeError(
            function.name, str(path), f"there is no such file; Python files in the folder: {there}"
        ) from err
    except (OSError, UnicodeDecodeError) as err:
        raise FunctionCodeError(function.name, str(path), f"it cannot be read as UTF-8 text ({err})") from err


def _list_imports(function: CreateFunction, name: str, source: str) -> Iterator[str]:
    """The first part of every module name that a module imports."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as err:
        raise FunctionCodeError(function.name, f"{FOLDER}/{name}.py", f"it cannot be read as Python: {err}") from err
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                reason = f"line {node.lineno}: a relative import; modules of this folder must import each other by name"
                raise FunctionCodeError(function.name, f"{FOLDER}/{name}.py", reason)
            yield (node.module or "").split(".")[0]
