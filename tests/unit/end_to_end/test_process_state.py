"""tests/support/process_state.yaml lists every object that the threads of a process share, with its guard."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import process_state

ROOT = Path(__file__).parents[3]
ROOMS = ("jobs", "statestore", "plugins")

_CHANGES = frozenset(
    [
        "add",
        "append",
        "appendleft",
        "clear",
        "discard",
        "extend",
        "insert",
        "pop",
        "popitem",
        "popleft",
        "remove",
        "setdefault",
        "update",
        "write",
    ]
)
_CACHES = frozenset({"cache", "lru_cache", "by_identity"})
#: Values that a module may create once for all threads: constants and types.
_VALUES = frozenset(
    [
        "Annotated",
        "Decimal",
        "Decoder",
        "decoder_of",
        "Field",
        "Flag",
        "Frame",
        "FrameBound",
        "IntEnum",
        "IpcReadOptions",
        "IpcWriteOptions",
        "Meta",
        "ParamSpec",
        "Path",
        "Pattern",
        "StrEnum",
        "TypeVar",
        "UnboundedCost",
        "APIRouter",
        "Depends",
        "Struct",
        "array",
        "bytes",
        "compile",
        "date",
        "datetime",
        "dtype",
        "field",
        "files",
        "float",
        "frozenset",
        "from_arrow_schema",
        "getLogger",
        "iinfo",
        "int",
        "int64",
        "join",
        "len",
        "list_",
        "namedtuple",
        "scalar",
        "schema",
        "struct",
        "timedelta",
        "timestamp",
        "tuple",
        "uint64",
        "with_name",
        "with_suffix",
    ]
)
#: Calls that change the whole process.
_OF_PROCESS = re.compile(
    r"os\.(environ\.(update|pop|setdefault)|chdir|umask|putenv|register_at_fork|dup2)|signal\.signal|"
    r"atexit\.register|finalize|locale\.setlocale|warnings\.(simplefilter|filterwarnings|catch_warnings)|"
    r"sys\.(meta_path|path)\.\w+|gc\.(freeze|unfreeze|disable)|\w*\.mallopt|"
    r"(pa|pyarrow)\.set_\w+|np\.(seterr|random\.seed)|random\.seed|socket\.setdefaulttimeout|time\.tzset"
)
_ITEMS_OF_PROCESS = re.compile(r"(os\.environ|sys\.modules)$|warnings\.showwarning$")


def state_in(tree: ast.Module) -> Iterator[str]:
    """Names of a module's process-wide state, and of its calls that change the process."""
    changed = set(_changed_names(tree))
    for statement in tree.body:
        for name, value in _assigned(statement):
            if name in changed or (value is not None and _is_object(value)):
                yield name
    # msgspec gives each struct a new copy of an empty default
    classes = [
        node
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not any("Struct" in _dotted(b) for b in node.bases)
    ]
    for node in classes:
        for statement in node.body:
            for name, value in _assigned(statement):
                if f"{node.name}.{name}" in changed or isinstance(value, ast.List | ast.Dict | ast.Set):
                    yield f"{node.name}.{name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and any(_called(d) in _CACHES for d in node.decorator_list):
            yield node.name
        elif isinstance(node, ast.Call) and _OF_PROCESS.fullmatch(text := _dotted(node.func)):
            yield text
        elif isinstance(node, ast.Assign | ast.Delete | ast.AugAssign):
            for target in [node.target] if isinstance(node, ast.AugAssign) else node.targets:
                text = _dotted(target.value if isinstance(target, ast.Subscript) else target)
                if _ITEMS_OF_PROCESS.fullmatch(text):
                    yield text


def _assigned(statement: ast.stmt) -> Iterator[tuple[str, ast.expr | None]]:
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        yield statement.target.id, statement.value
    elif isinstance(statement, ast.Assign):
        yield from ((target.id, statement.value) for target in statement.targets if isinstance(target, ast.Name))


def _is_object(value: ast.expr) -> bool:
    """Whether a value is an object that this test cannot recognize as constant."""
    return isinstance(value, ast.Call) and _called(value) not in _VALUES


def _called(node: ast.expr) -> str:
    """The last part of the called name."""
    function = node.func if isinstance(node, ast.Call) else node
    return function.attr if isinstance(function, ast.Attribute) else _dotted(function)


def _changed_names(tree: ast.Module) -> Iterator[str]:
    """Names that code inside functions changes: items, elements, attributes, or the name by `global`."""
    for outer in tree.body:
        if not isinstance(outer, ast.FunctionDef | ast.ClassDef):
            continue
        for node in ast.walk(outer):
            if isinstance(node, ast.Global):
                yield from node.names
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGES:
                yield _dotted(node.func.value)
            elif isinstance(node, ast.Assign | ast.Delete | ast.AugAssign):
                for target in [node.target] if isinstance(node, ast.AugAssign) else node.targets:
                    for part in ast.walk(target):
                        if isinstance(part, ast.Subscript | ast.Attribute):
                            yield _dotted(part.value)
                            yield _dotted(part)


def _dotted(node: ast.expr) -> str:
    """`a.b.c` for a dotted name, without subscripts; empty for any other expression."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attr):
            return f"{above}.{attr}" if (above := _dotted(value)) else ""
        case ast.Subscript(value=value):
            return _dotted(value)
    return ""


def found_state() -> set[str]:
    """`file: name` of all state of the process."""
    found = set()
    for file in sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py")):
        found |= {f"{file.relative_to(ROOT)}: {name}" for name in state_in(ast.parse(file.read_text()))}
    return found


def test_all_state_of_the_process_is_listed_with_its_guard() -> None:
    listed, found = set(process_state.guards()), found_state()
    assert sorted(found - listed) == [], f"add a guard in {process_state.PATH}, or keep it per thread or session"
    assert sorted(listed - found) == [], f"entries of {process_state.PATH} without an object"
    assert process_state.repeated_keys() == []


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("known = {}\ndef f(x):\n    known[x] = 1", {"known"}),
        ("known: list[int] = []\nclass A:\n    def f(self):\n        known.append(1)", {"known"}),
        ("KNOWN = {1: 2}\ndef f(x):\n    return KNOWN[x]", set()),
        ("last = None\ndef f(x):\n    global last\n    last = x", {"last"}),
        ("@lru_cache(maxsize=1)\ndef f():\n    pass", {"f"}),
        ("@functools.cache\ndef f():\n    pass", {"f"}),
        ("lock = threading.Lock()", {"lock"}),
        ("class A:\n    known = []", {"A.known"}),
        ("class A:\n    count = 0\ndef f():\n    A.count += 1", {"A.count"}),
        ("pool = ThreadPoolExecutor(1)\nPATTERN = re.compile('x')", {"pool"}),
        ("def f():\n    os.environ['A'] = '1'\n    os.chdir('/')", {"os.environ", "os.chdir"}),
    ],
)
def test_state_is_seen(code: str, expected: set[str]) -> None:
    assert set(state_in(ast.parse(code))) == expected


def test_decoders_are_made_in_one_place() -> None:
    """A msgspec decoder needs a lock."""
    other = re.compile(
        r"msgspec\.(json|msgpack)\.Decoder\((?!\))|msgspec\.json\.decode\([^\n]*type=|msgspec\.convert\("
    )
    files = [file for room in ROOMS for file in (ROOT / room).rglob("*.py") if other.search(file.read_text())]
    assert [str(file.relative_to(ROOT)) for file in files] == ["statestore/decoding.py"]
