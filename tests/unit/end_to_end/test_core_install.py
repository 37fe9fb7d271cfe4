"""Sessions and commands in a process that has only the core's packages: they work, or name the extra that they need."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.jobs.driver.embedded import append, epoch, open_store
from tests.unit.end_to_end.test_session_without_spark import created
from tests.unit.project.test_dependencies import declared, distributions_of, modules_of
from tussock.jobs.logical.nodes import Field, Scan
from tussock.jobs.logical.statements import CreateSource, CreateView
from tussock.jobs.session import Session
from tussock.statestore.extras import EXTRAS, MissingExtraError
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.open import open_object_store

ROOT = Path(__file__).resolve().parents[3]

CORE_ALONE = """
    import contextlib, io, json, sys
    from importlib import import_module as imported
    from importlib.abc import MetaPathFinder

    class Missing(MetaPathFinder):
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] in missing:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    store, missing = sys.argv[1], set(sys.argv[2].split(","))
    sys.meta_path.insert(0, Missing())

    import pyarrow as pa
    from tussock import Session, TussockError
    from tussock.jobs.cli import main
    from tussock.jobs.settings.publishing import DeltaSettings, TableEngine
    from tussock.jobs.sources.base import Restated

    def answer(call):
        try:
            found = call()
        except Exception as error:
            return [type(error).__name__, str(error)]
        return ["", str(found)]

    def command(*words):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = main([*words, "--store", store] if words[-1] != "--help" else words)
            except SystemExit as exit:
                code = exit.code
        return [code, out.getvalue() + err.getvalue()]

    session = Session(store, create=False)
"""
"""Opens the store of the first argument, while the modules of the second cannot be imported."""

WORKS = """
    session.insert("orders", pa.table({"id": [1, 2], "shop": [7, 8], "amount": [9.5, 1.0]}))
    first = session.flush().epoch
    session.insert("orders", pa.table({"id": [2], "shop": [7], "amount": [4.0]}))
    last = session.flush().epoch
    with session.reader("by_shop") as batches:
        read = [row for batch in batches for row in batch.to_pylist()]
    found = {
        "rows": session.read("by_shop").to_pylist(),
        "reader": read,
        "changes": session.changes("by_shop", first).num_rows,
        "commands": {
            words: command(*words.split())
            for words in (
                "--help", "init --help", "compact --help", "status", "read by_shop", "epoch", "inspect levels",
                "inspect ssts", "compact",
                "vacuum", "scrub", "verify", "query SHOW",
            )
        },
        "made": command("init", "--units", "1")[1],
    }
    print(json.dumps(found))
"""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with a table and a view over it."""
    MetaStore.init(open_object_store(str(tmp_path / "store")), units=2)
    meta = open_store(tmp_path / "store", "maker")
    append(meta, *created())
    meta.publish(epoch(meta).epoch)
    return tmp_path / "store"


def in_the_core(store: Path, script: str) -> dict[str, object]:
    code = textwrap.dedent(CORE_ALONE) + textwrap.dedent(script)
    environment = {
        "PYTHONPATH": str(ROOT),
        "PATH": "/nonexistent",
        "TUSSOCK_DISK_CACHE": "off",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, "-c", code, str(store), ",".join(EXTRAS)]
    run = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False, cwd=store.parent
    )
    assert run.returncode == 0, run.stderr
    found: dict[str, object] = json.loads(run.stdout.splitlines()[-1])
    return found


def test_the_core_inserts_flushes_and_reads_and_its_commands_work_or_name_the_extra(store: Path) -> None:
    found = in_the_core(store, WORKS)
    assert found["rows"] == found["reader"] == [{"Shop": 7, "n": 2, "total": 13.5}]
    assert found["changes"] == 3
    commands: dict[str, tuple[int, str]] = found["commands"]  # type: ignore[assignment]
    unexpected = {
        words: said for words, (code, said) in commands.items() if code not in (0, None) and "extra 'spark'" not in said
    }
    assert unexpected == {}
    assert {words for words, (_, said) in commands.items() if 'pip install "tussock[spark]"' in said} == {
        "verify",
        "query SHOW",
    }
    assert "7" in commands["read by_shop"][1]


A_NEW_PIPELINE = """
    from pathlib import Path

    def run(*words):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(words)
        return [code, out.getvalue() + err.getvalue()]

    Path("pipelines").mkdir()
    found = {"new": run("new", "shop"), "apply": run("apply", "shop")}
    found["stores"] = len(list(Path().rglob("meta/store.json"))) - 1
    run("init", "--pipeline", "shop")
    found["status"] = run("status", "--pipeline", "shop")
    print(json.dumps(found))
"""


def test_new_names_the_extra_that_apply_needs_and_apply_leaves_no_empty_store(store: Path) -> None:
    found: dict[str, tuple[int, str]] = in_the_core(store, A_NEW_PIPELINE)  # type: ignore[assignment]
    code, said = found["new"]
    first, second, *_ = said.splitlines()
    assert first == '`tussock apply` needs Spark, which is not installed here: pip install "tussock[spark]"'
    assert (code, second.startswith("created ")) == (0, True)
    code, said = found["apply"]
    assert (code, 'pip install "tussock[spark]"' in said, found["stores"]) == (1, True, 0)
    said = found["status"][1]
    assert "all is well" not in said
    assert "store is empty: no statement was ever given" in " ".join(said.split())


CALLS = {
    "apply": ('session.apply([(__import__("pathlib").Path("a.sql"), "CREATE TABLE t (k int)")])', "spark"),
    "branch": ('session.branch("trial")', None),
    "changes": ('session.changes("by_shop", 0)', None),
    "check": ('session.check("nowhere")', None),
    "close": ("session.close()", None),
    "create_view": ('session.create_view("v", None)', "spark"),
    "diff": ("session.diff(since=0)", None),
    "execute": ('session.execute("CREATE TABLE t (k int)")', "spark"),
    "flush": ("session.flush()", None),
    "in_transaction": ("session.in_transaction", None),
    "insert": ('session.insert("orders", pa.table({"id": [5]}))', None),
    "plan": ('session.plan([(__import__("pathlib").Path("a.sql"), "CREATE TABLE t (k int)")])', "spark"),
    "query": ('session.query("SELECT 1")', "spark"),
    "read": ('session.read("orders")', None),
    "reader": ('session.reader("orders").__enter__()', None),
    "require_committed": ("session.require_committed()", None),
    "restate": ('session.restate("orders", Restated("/a.csv"))', None),
    "run": ('list(session.run("CREATE TABLE t (k int)"))', "spark"),
    "spark": ("session.spark", "spark"),
    "table": ('session.table("orders")', "spark"),
    "transaction": ("session.transaction().__enter__()", None),
    "verify": ('session.verify("by_shop")', "spark"),
}
"""A call of each public name of a session, and the extra that it needs; None if the core is enough."""

OTHERS = {
    "a bucket": ('Session("s3://bucket/prefix")', "s3"),
    "Spark as the runner": (
        '(session.insert("orders", pa.table({"id": [6]})), Session(store, runner="spark").flush())',
        "spark",
    ),
    "a Delta source": (
        'imported("tussock.jobs.delta.delta_log").DeltaPlace("", "nonexistent/t", {}).read_snapshot()',
        "delta",
    ),
    "a Delta sink": (
        'imported("tussock.jobs.sinks.kinds").open_place(DeltaSettings("/nonexistent"), None).__enter__()',
        "delta",
    ),
    "a Delta sink on Spark": (
        'imported("tussock.jobs.sinks.kinds")'
        '.open_place(DeltaSettings("/nonexistent", engine=TableEngine.SPARK), None).__enter__()',
        "delta-spark",
    ),
    "an import for suites": ('imported("tussock.jobs.quality.import_gx").import_gx(spark=False)', "quality"),
}


def test_each_public_name_of_a_session_needs_the_core_or_names_the_extra(store: Path) -> None:
    assert set(CALLS) == {name for name in vars(Session) if not name.startswith("_")}
    calls = {name: call for name, (call, _) in {**CALLS, **OTHERS}.items()}
    script = (
        "print(json.dumps({" + ", ".join(f"{name!r}: answer(lambda: {call})" for name, call in calls.items()) + "}))"
    )
    found = in_the_core(store, script)
    for name, (_, extra) in {**CALLS, **OTHERS}.items():
        kind, said = found[name]  # type: ignore[misc]
        if extra is None:
            assert kind not in ("MissingExtraError", "ModuleNotFoundError", "ImportError"), f"{name}: {said}"
        else:
            assert (kind, said.endswith(f'pip install "tussock[{extra}]"')) == ("MissingExtraError", True), (
                f"{name}: {kind}: {said}"
            )


A_FILE_OF_SPARK = """
    found = answer(lambda: Session(store, runner="auto").flush())
    print(json.dumps({"said": found}))
"""


def test_an_epoch_that_needs_spark_for_a_file_names_the_file_the_reason_and_the_extra(store: Path) -> None:
    (store.parent / "files").mkdir()
    path = store.parent / "files" / "1.parquet"
    variant = pa.array([{"metadata": b"\x01\x00\x00", "value": None, "typed_value": 1}])
    pq.write_table(pa.table({"v": variant.cast(SHREDDED)}), path)
    fields = (Field("v", "variant"),)
    source = CreateSource("s", "parquet", fields, {"path": str(path.parent)})
    append(open_store(store, "maker"), source, CreateView("all_v", "…", Scan("s", (0,), fields)))
    kind, said = in_the_core(store, A_FILE_OF_SPARK)["said"]  # type: ignore[misc]
    assert kind == "NeedsSparkError"
    assert f"files of s ({path}: its variants are shredded), and Spark is not installed here" in said
    assert said.endswith('pip install "tussock[spark]"')


SHREDDED = pa.struct({"metadata": pa.binary(), "value": pa.binary(), "typed_value": pa.int64()})


def test_each_module_that_the_core_does_not_bring_is_named_with_its_extra() -> None:
    """Each import here comes with the core, or the table names its extra, which must declare it."""
    imported = modules_of("tussock", "jobs", "statestore", "plugins", "dags")
    optional = {module.split(".")[0] for module in imported if not distributions_of(module) & declared(extras=())}
    assert optional == set(EXTRAS)
    for module, extra in EXTRAS.items():
        if module != "airflow":
            assert distributions_of(module) & declared(extras=(extra,)), module


def test_the_error_names_module_and_extra() -> None:
    assert str(MissingExtraError("pyspark", "spark")).startswith(
        "the Python package 'pyspark' is not installed. This call needs the extra"
    )
