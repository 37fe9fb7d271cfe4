"""Names from outside are values. Only a few modules join or parse texts made of them, each module for one language.

docs/design/names.md lists them.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = ("jobs", "statestore", "plugins", "dags")

#: The modules that may import quoting or parsing functions, and the text that each handles.
PARSERS = {
    "statestore/objectstore/open.py": "addresses of stores",
    "statestore/objectstore/server.py": "addresses of stores",
    "statestore/objectstore/hdfs.py": "addresses of stores, and paths in requests",
    "jobs/sources/listing.py": "file: paths of sources",
    "jobs/delta/delta_log.py": "paths in a Delta log",
    "jobs/delta/named_files.py": "all readings of a path in a table, for the check that it is inside",
    "jobs/sources/spark_files.py": "errors of Spark, which quote paths",
    "jobs/sources/spark_paths.py": "paths that Spark reports",
    "jobs/sources/object_gateway.py": "requests of Hadoop's client",
    "jobs/sinks/delta_located.py": "paths in the log of an own Delta table",
    "jobs/delta/location.py": "URLs for the deltalake package",
    "jobs/settings/connections.py": "addresses of Airflow's connections",
    "jobs/sources/errors.py": "commands that errors print",
    "jobs/sources/kafka_errors.py": "commands that errors print",
    "jobs/settings/home.py": "the place of a store, from its own address; commands that errors print",
    "jobs/facts/published.py": "commands that pages show",
    "jobs/shell/import_commands.py": "the command in the first line of generated files",
    "jobs/shell/pipeline_commands.py": "commands that `tussock new` prints",
    "jobs/trouble/ways_around.py": "commands that errors print",
    "jobs/facts/unopened.py": "commands that the status prints",
    "jobs/settings/printed_commands.py": "commands that errors print",
    "jobs/quality/record.py": "commands that errors print",
    "jobs/quality/index.py": "the page of a suite's results",
    "jobs/texts/comparison_page.py": "the page of a comparison",
    "jobs/texts/plan_svg.py": "the drawing of a plan",
    "plugins/tussock_links.py": "addresses of pages",
    "plugins/tussock_pages/actions.py": "addresses of pages",
    "plugins/tussock_pages/guard.py": "the origin of a request",
}
MODULES = {"urllib", "urllib.parse", "urllib.request", "fnmatch", "glob", "shlex", "html"}

#: Functions that take an address, which they parse. Code with names calls `open_s3` or LocalObjectStore instead.
OPENERS = {"open_object_store", "location_of"}


def trees() -> Iterator[tuple[str, ast.Module]]:
    for folder in FOLDERS:
        for file in sorted((ROOT / folder).rglob("*.py")):
            yield file.relative_to(ROOT).as_posix(), ast.parse(file.read_text())


def imported(tree: ast.Module) -> set[str]:
    nodes = [*ast.walk(tree)]
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return plain | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}


def test_only_these_modules_quote_and_parse() -> None:
    found = {path for path, tree in trees() if imported(tree) & MODULES}
    assert found == PARSERS.keys(), "carry names as values, or add the module here and to docs/design/names.md"


def test_no_address_is_built_of_names_to_be_opened() -> None:
    """`open_object_store(f"…")` parses the joined text: `%`, `?` and `#` of a name then mean something else."""
    for path, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in OPENERS and node.args:
                assert not isinstance(node.args[0], ast.JoinedStr | ast.BinOp), f"{path}:{node.lineno}: use open_s3"


def test_no_name_is_put_between_quotes_by_hand() -> None:
    """Names in SQL go through `quote_name` or `string_text` (jobs/logical/quoting.py).

    f"`{name}`" breaks at a backtick.
    """
    for path, tree in trees():
        for node in ast.walk(tree) if path.startswith(("jobs/", "statestore/")) else ():
            if isinstance(node, ast.JoinedStr):
                for before, value, after in zip(node.values, node.values[1:], node.values[2:], strict=False):
                    if (
                        isinstance(value, ast.FormattedValue)
                        and isinstance(before, ast.Constant)
                        and isinstance(after, ast.Constant)
                    ):
                        by_hand = str(before.value).endswith("`") and str(after.value).startswith("`")
                        assert not by_hand, f"{path}:{node.lineno}: use quote_name"
