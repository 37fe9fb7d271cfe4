"""The code that texts name exists: functions, classes, modules and files, in docstrings, comments, notes and journeys.

A name that changed in the code but not in a docstring sends its reader to code that no longer exists.
"""

import ast
import builtins
import keyword
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest
import yaml

from tests.support.front_pages import ROOT
from tussock.jobs.settings.pipeline import known_keys


def modules_of(*folders: str) -> list[str]:
    paths = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return [path.relative_to(ROOT).as_posix() for path in paths]


CODE = modules_of("jobs", "statestore", "plugins", "dags")
OTHER_CODE = [*modules_of("tests", "scripts", "benchmarks", "docker"), "tussock/__init__.py"]
NOTES = [note.relative_to(ROOT).as_posix() for note in sorted((ROOT / "docs/design").glob("*.md"))]
JOURNEYS = ["docs/one-rows-journey.md", "docs/one-statements-journey.md"]

#: The first parts of dotted names that libraries define: packages, settings, columns.
FOREIGN = frozenset(
    ["org", "java", "spark", "sparkContext", "sc", "pyarrow", "airflow", "kafka", "cleanup", "flights", "_metadata"]
)
#: Words and functions that libraries define and texts name, by library.
FOREIGN_WORDS = {
    "Spark": "createDataFrame inferSchema mapInArrow toArrow catalogString failOnError timeZoneId legacyINT96 "
    "pivotfirst hiddenOutputTag nullValue ignoreLeadingWhiteSpace ignoreTrailingWhiteSpace dateFormat timestampFormat "
    "timestampNTZFormat varchar glob CAST PRECEDING",
    "Java and Kafka": "toByteArray describeConfigs Admin KafkaError",
    "Airflow": "dagrun_timeout max_active_tis_per_dag multiple_outputs end_date operator_extra_links depends_on_past "
    "AIRFLOW_HOME",
    "Delta": "txn dataChange cdc",
    "Python": "python3 nan inf rglob tempfile multiprocessing __path__ __version__ compose",
    "Arrow": "to_pandas concat_batches empty_table fixed_size_binary month_day_nano_interval",
    "DuckDB": "python_enable_replacements in_clause",
    "Linux": "TZ mv rsync pwd tmpfs noexec mtime touch chmod link rename fstat pread posix_fadvise",
    "examples": "bucket prod shop orders item items",
    "other tools": "ignore_imports cycles MODULES BASE MISSED",
}
#: Bases that define no members which a text would name. The members of other libraries' classes are not listed.
PLAIN_BASES = frozenset(["Protocol", "object", "Generic", "Struct", "StrEnum", "Enum", "NamedTuple", "ABC"])

TICKED = re.compile(r"`+([^`\n]+)`+")
NAME = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?:\(.*\))?")
BARE = re.compile(r"(?<!{ )(?<![`\w./'\"{$@-])([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)(?![\w`/'\"]|\.\w)")
SEE = re.compile(r"^See ([A-Z][a-z]+[A-Z]\w*)\.")  # a class, in the docstring of a method
ERROR = re.compile(r"(?<![`\w.])([A-Z][a-z]\w+Error)\b")
FILE = re.compile(r"(?<![\w/.*<>{}-])((?:[\w-]+/)*[\w-]+\.(?:py|md))\b(?:: (\w+)(?=`))?")
OTHER_FILE = re.compile(r"\.(?:ya?ml|toml|json|sql|csv|parquet|svg|html|sh|cfg|txt|lock|xz|dat|sum|proto|py|md)$")


@dataclass(slots=True)
class Names:
    """The names that the code defines."""

    files: set[str]
    modules: dict[str, set[str]] = field(default_factory=dict)
    """The names at the top of a module, and the modules of a folder, by the last part of the module's name."""
    classes: dict[str, set[str]] = field(default_factory=dict)
    """The methods and attributes of the classes of a name."""
    bases: dict[str, set[str]] = field(default_factory=dict)
    declared: set[str] = field(default_factory=set)
    """All functions, methods, attributes, classes, constants and modules."""
    arguments: set[str] = field(default_factory=set)
    strings: set[str] = field(default_factory=set)
    """The strings of one word: columns, options, SQL's functions."""

    def has_member(self, owner: str, name: str) -> bool:
        """Whether a class has a member, or may have it from a library's class."""
        if name in self.classes[owner] or name.startswith("__"):
            return True
        bases = self.bases[owner] - PLAIN_BASES - {owner}
        return any(base not in self.classes or self.has_member(base, name) for base in bases)

    def has_path(self, parts: list[str]) -> bool:
        """Whether the module, the name in a module or the member of a class exists: `room`, `module`, `name`."""
        path = "/".join(parts)
        if (ROOT / path).is_dir() or f"{path}.py" in self.files:
            return True
        owner, last = parts[-2:] if len(parts) > 1 else ("tussock", parts[0])
        return self.has_member(owner, last) if owner in self.classes else last in self.modules.get(owner, ())


def text_of(node: ast.Expr) -> str | None:
    """The text of a statement that is a string: a docstring, or the description of an attribute."""
    value = node.value
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else None


def assigned_names(node: ast.stmt) -> Iterator[str]:
    """The names that a statement defines in its module or class."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            yield from (part.id for part in ast.walk(target) if isinstance(part, ast.Name))
    elif isinstance(node, ast.If | ast.Try):
        yield from (name for part in node.body for name in assigned_names(part))


@cache
def nodes(file: str) -> tuple[ast.AST, ...]:
    """All nodes of the syntax tree of a file; the first one is the module."""
    return tuple(ast.walk(ast.parse((ROOT / file).read_text())))


@cache
def used_names(file: str) -> frozenset[str]:
    """The identifiers in the code of a file, and its strings that are a single word."""
    keys = ("name", "id", "arg", "attr", "asname", "value")
    found = (value for node in nodes(file) for key, value in node.__dict__.items() if key in keys)
    return frozenset(name for name in found if isinstance(name, str) and name.isidentifier())


@cache
def imported_names(file: str) -> frozenset[str]:
    """The names of the libraries that a file imports."""
    imports = [node for node in nodes(file) if isinstance(node, ast.Import | ast.ImportFrom)]
    foreign = (node for node in imports if not (getattr(node, "module", "") or "").startswith("tussock"))
    return frozenset((alias.asname or alias.name).split(".")[0] for node in foreign for alias in node.names)


@cache
def libraries_of_all() -> frozenset[str]:
    return frozenset().union(*(imported_names(file) for file in CODE))


def add_class(known: Names, node: ast.ClassDef) -> None:
    """Add the members of a class, and the names of its bases."""
    parts = (part for part in ast.walk(node) if isinstance(part, ast.Attribute))
    own = {part.attr for part in parts if isinstance(part.ctx, ast.Store)}
    known.classes.setdefault(node.name, set()).update(own, *(assigned_names(part) for part in node.body))
    bases = (base.value if isinstance(base, ast.Subscript) else base for base in node.bases)
    known.bases.setdefault(node.name, set()).update(ast.unparse(base).split(".")[-1] for base in bases)


def add_module(known: Names, file: str, own: Iterable[str]) -> None:
    *folders, stem = file.removesuffix("/__init__.py").removesuffix(".py").split("/")
    known.modules.setdefault(stem, set()).update(own)
    if folders:
        known.modules.setdefault(folders[-1], set()).add(stem)


def add_code(known: Names, file: str) -> None:
    """Add all that a module of a room defines."""
    tree = nodes(file)[0]
    assert isinstance(tree, ast.Module)
    add_module(known, file, (name for node in tree.body for name in assigned_names(node)))
    for node in nodes(file):
        if isinstance(node, ast.ClassDef):
            add_class(known, node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            known.declared.add(node.name)
        elif isinstance(node, ast.arg):
            known.arguments.add(node.arg)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            known.strings.add(node.value)


@cache
def names() -> Names:
    known = Names(files={*CODE, *OTHER_CODE})
    for file in CODE:
        add_code(known, file)
    known.declared.update(known.modules, known.classes, *known.modules.values(), *known.classes.values())
    for file in OTHER_CODE:
        text = (ROOT / file).read_text()
        add_module(known, file, re.findall(r"^(?: *(?:(?:async )?def|class) )?(\w+)(?=[(:]| = )", text, re.M))
        known.declared.update(
            name
            for name in known.modules[file.removesuffix("/__init__.py").removesuffix(".py").split("/")[-1]]
            if "_" in name
        )
    return known


@cache
def library_words() -> frozenset[str]:
    return frozenset(" ".join(FOREIGN_WORDS.values()).split())


@cache
def foreign_words() -> frozenset[str]:
    """SQL's functions, and the words of Python and the libraries."""
    groups = yaml.safe_load((ROOT / "docs/functions.yaml").read_text()).values()
    return library_words().union(keyword.kwlist, dir(builtins), *groups)


def is_defined(name: str, file: str) -> bool:
    """Whether a name in a text of `file` is one of the code."""
    known, parts = names(), name.removeprefix("tussock.").split(".")
    if name.startswith("tussock."):
        return known.has_path(parts)
    code = file.endswith(".py")
    own = used_names(file) if code else frozenset(known.arguments)
    libraries = imported_names(file) if code else libraries_of_all()
    if len(parts) == 1:
        sets = [own, known.strings, foreign_words(), libraries]
        # One short word of another file could be any of several.
        sets += [known.declared] if not code or "_" in name or name in known.classes else []
        return re.fullmatch(r"[a-z]\d", name) is not None or any(name in words for words in sets)
    owner, last = parts[-2:]
    if (
        parts[0] in FOREIGN
        or last in library_words()
        or parts[0] in libraries - known.classes.keys() - known.modules.keys()
    ):
        return True
    kind = owner if owner in known.classes else owner.title().replace("_", "")  # an instance: `session.query`
    if kind in known.classes and known.has_member(kind, last):
        return True
    if owner in known.classes or name in known_keys():
        return owner not in known.classes
    return last in known.modules.get(owner, ()) or (owner in own and last in known.declared)


def texts_of(file: str) -> Iterator[tuple[int, str]]:
    """The docstrings and comments of a Python file, or a page without its blocks of code; with the line of each."""
    text = (ROOT / file).read_text()
    if file.endswith(".md"):
        yield 1, re.sub(r"^ *```.*?^ *```", lambda block: "\n" * block[0].count("\n"), text, flags=re.M | re.S)
        return
    for node in nodes(file):
        if isinstance(node, ast.Expr) and (docstring := text_of(node)) is not None:
            yield node.lineno, docstring
    for number, line in enumerate(text.split("\n"), 1):
        if comment := re.search(r"(?:^|\s)#[: ](.*)", line):
            yield number, comment[1]


def undefined_names(file: str) -> list[str]:
    """The names in the texts of a file that the code does not define, each with its line."""
    known, code, undefined = names(), file.endswith(".py"), []
    for line, text in texts_of(file):
        ticked = [
            (m.start(), full[1]) for m in TICKED.finditer(text) if (full := NAME.fullmatch(m[1])) and m[1][-1] != "_"
        ]
        bare = [
            (m.start(), m[1])
            for m in BARE.finditer(text)
            if m[1].split(".")[-2] in known.classes or m[1].split(".")[-2] in known.modules
        ]
        classes = [(m.start(), m[1]) for pattern in (SEE, ERROR) for m in pattern.finditer(text) if code]
        bare += [(start, name) for start, name in classes if name not in known.declared]
        undefined += [
            f"{file}:{line + text[:start].count(chr(10))}: {name}"
            for start, name in ticked + bare
            if not OTHER_FILE.search(name) and not is_defined(name, file)
        ]
    return undefined


def missing_files(file: str) -> list[str]:
    """The files, and the names in files (`jobs/x.py: name`), that the texts of a file name and that do not exist."""
    missing = []
    for line, text in texts_of(file):
        for place in FILE.finditer(text):
            path, name = place[1].removeprefix("tussock/"), place[2]
            if path not in ends_of_paths() or (name and not defines(path, name)):
                missing.append(f"{file}:{line + text[: place.start()].count(chr(10))}: {place[0]}")
    return missing


def defines(path: str, name: str) -> bool:
    """Whether a module has a function, a class or a method of a name."""
    whole = path if path in names().files else next(file for file in names().files if file.endswith(f"/{path}"))
    return re.search(rf"^\s*(?:class|def) {name}\b", (ROOT / whole).read_text(), re.M) is not None


@cache
def ends_of_paths() -> frozenset[str]:
    """The paths of the modules and pages of the project, whole and without their first folders."""
    folders = ("docs", "pipelines", "jobs", "statestore")
    pages = {page.relative_to(ROOT).as_posix() for folder in folders for page in (ROOT / folder).rglob("*.md")}
    files = names().files | pages | {page.name for page in ROOT.glob("*.md")}
    return frozenset("/".join(file.split("/")[start:]) for file in files for start in range(file.count("/") + 1))


def test_docstrings_and_comments_name_existing_code() -> None:
    assert [found for file in CODE for found in undefined_names(file)] == []
    assert len(CODE) > 500


def test_docstrings_and_comments_name_existing_files() -> None:
    assert [found for file in CODE for found in missing_files(file)] == []


@pytest.mark.parametrize("page", [*NOTES, *JOURNEYS])
def test_a_page_names_existing_code(page: str) -> None:
    assert undefined_names(page) + missing_files(page) == []


def test_the_frame_lists_methods_of_the_interfaces() -> None:
    interfaces = {"statestore.meta": {"MetaStore"}, "statestore.table": {"StateTable", "StorageTable"}}
    sections = re.split(r"^### ", (ROOT / "docs/design/frame.md").read_text(), flags=re.M)
    for room, classes in interfaces.items():
        (text,) = (section for section in sections if section.startswith(room))
        bullets = " ".join(re.findall(r"^\* (.*(?:\n  .*)*)", text, re.M))
        listed = re.findall(r"`([a-z]\w*)(?:\([^)`]*\))?`", bullets)
        missing = [name for name in listed if not any(names().has_member(owner, name) for owner in classes)]
        assert (len(listed) > 8, missing) == (True, []), room


def test_the_figures_of_a_note_name_existing_functions() -> None:
    """A figure is a block without a language."""
    known = names().declared | foreign_words()
    for note in NOTES:
        for figure in re.findall(r"^```\n(.*?)^```", (ROOT / note).read_text(), re.M | re.S):
            assert [name for name in re.findall(r"\b([a-z]\w+)\(", figure) if name not in known] == [], note


def test_a_renamed_function_is_found_in_each_kind_of_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = '"""See MetaStore.gone, barrier.gone, `gone_function()` and jobs/gone.py."""\n'
    text += "# tussock.jobs.driver.epoch.gone\nx = 1  # `StateTable.gone`\n"
    (tmp_path / "page.py").write_text(text)
    names()  # by the files of the project
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    try:
        found = [found.split(": ")[1] for found in undefined_names("page.py") + missing_files("page.py")]
    finally:
        nodes.cache_clear()
    wanted = "MetaStore.gone barrier.gone gone_function tussock.jobs.driver.epoch.gone StateTable.gone jobs/gone.py"
    assert sorted(found) == sorted(wanted.split())
