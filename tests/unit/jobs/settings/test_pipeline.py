"""The content of a pipeline.toml, and the error for each mistake in it."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.names import QUICK, names
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.logical.tokens import tokens_of
from tussock.jobs.settings.pipeline import UnknownPipelineError, find_pipeline, load_pipeline, pipeline_names
from tussock.jobs.settings.retention import Retention
from tussock.jobs.settings.tables import QualitySettings, Runner
from tussock.jobs.settings.values import PipelineError
from tussock.jobs.settings.variables import substituted_in_sql

MINIMAL = 'name = "shop"\nstore = "s3://bucket/shop"\nsql = ["views.sql"]\n'


def write(root: Path, text: str, name: str = "shop") -> Path:
    folder = root / "pipelines" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pipeline.toml").write_text(text)
    return folder


def test_a_minimal_pipeline_gets_the_documented_defaults(tmp_path: Path) -> None:
    pipeline = load_pipeline(write(tmp_path, MINIMAL))
    assert (pipeline.name, pipeline.store, pipeline.data, pipeline.time_zone) == (
        "shop",
        "s3://bucket/shop",
        None,
        "UTC",
    )
    assert (pipeline.epoch.units, pipeline.epoch.vnodes, pipeline.epoch.max_bytes) == (None, 256, 268_435_456)
    assert (pipeline.schedule, pipeline.quality, pipeline.spark) == (None, None, {})
    assert pipeline.upkeep.schedule == "@hourly"
    assert pipeline.upkeep.retention == Retention(keep_epochs=1, keep_ms=24 * 3_600_000)
    assert pipeline.sql == (tmp_path / "pipelines/shop/views.sql",)


def test_everything_a_pipeline_can_say_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_STORE", "elsewhere")
    text = """
        name = "shop"
        description = "Orders"
        store = "${SHOP_STORE}/store"
        data = "${SHOP_DATA:-data}"
        sql = ["a.sql", "sub/b.sql"]
        time_zone = "Europe/Berlin"
        [schedule]
        cron = "15 2 * * *"
        start = 2013-01-01
        end = 2013-01-03T12:00:00Z
        catchup = true
        [epoch]
        units = 4
        vnodes = 512
        max_bytes = 1_000
        in_flight = 1
        runner = "auto"
        [spark]
        "spark.driver.memory" = "1g"
        [upkeep]
        schedule = "30 4 * * *"
        keep = "36h"
        keep_epochs = 10
        [quality]
        docs = "docs"
        [publish]
        to = "tables"
        relations = ["orders"]
        kind = "parquet"
        keep = "2d"
    """
    pipeline = load_pipeline(write(tmp_path, text))
    assert pipeline.store == str(tmp_path / "elsewhere/store")
    assert pipeline.data == str(tmp_path / "data")
    assert pipeline.schedule is not None
    # A date begins in the pipeline's time zone.
    assert pipeline.schedule.start == datetime(2012, 12, 31, 23, tzinfo=UTC)
    assert pipeline.schedule.end == datetime(2013, 1, 3, 12, tzinfo=UTC)
    assert (pipeline.schedule.cron, pipeline.schedule.catchup) == ("15 2 * * *", True)
    assert (pipeline.epoch.units, pipeline.epoch.vnodes, pipeline.epoch.max_bytes, pipeline.epoch.in_flight) == (
        4,
        512,
        1000,
        1,
    )
    assert pipeline.epoch.runner is Runner.AUTO
    assert pipeline.spark == {"spark.driver.memory": "1g"}
    assert pipeline.upkeep.schedule == "30 4 * * *"
    assert pipeline.upkeep.retention == Retention(keep_epochs=10, keep_ms=36 * 3_600_000)
    assert pipeline.quality is not None
    assert (pipeline.quality.folder, pipeline.quality.docs) == (tmp_path / "pipelines/shop/quality", tmp_path / "docs")
    (sink,) = pipeline.publish
    assert (sink.to, sink.relations) == (str(tmp_path / "tables"), ("orders",))
    assert (sink.kind, sink.keep_ms) == ("parquet", 2 * 86_400_000)


def test_a_pipeline_without_intervals_has_other_causes_of_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUEUE", "https://queue")
    text = """
        [schedule]
        every = "5m"
        start = 2013-01-01
        assets = ["orders", "lake.customers", "s3://lake/prices"]
        needs = "all"
        [watch.orders]
        trigger = "company.Arrivals"
        arguments = { queue = "${QUEUE}/1" }
    """
    pipeline = load_pipeline(write(tmp_path, MINIMAL + text))
    triggers = pipeline.triggers
    assert pipeline.schedule is None
    assert (triggers.every_ms, triggers.start, triggers.end) == (300_000, datetime(2013, 1, 1, tzinfo=UTC), None)
    assert (triggers.assets[2], triggers.needs, triggers.sources) == ("s3://lake/prices", "all", ("orders",))
    assert pipeline.watch["orders"].arguments == {"queue": "https://queue/1"}


def test_publish_is_a_list_whose_entries_an_environment_changes_by_name(tmp_path: Path) -> None:
    text = (
        MINIMAL
        + """
        [[publish]]
        to = "tables"
        [[publish]]
        kind = "parquet"
        name = "exports"
        to = "${EXPORTS:-/exports}"
        relations = ["orders"]
        upkeep = "@daily"
        [env.prod.publish.delta]
        to = "s3://lake/shop"
        [env.prod.publish.archive]
        kind = "parquet"
        to = "/archive"
        """
    )
    lake, exports = load_pipeline(folder := write(tmp_path, text)).publish
    assert (lake.title, lake.kind, lake.to, lake.upkeep) == ("delta", "delta", str(tmp_path / "tables"), None)
    assert (exports.title, exports.kind, exports.to, exports.upkeep) == ("exports", "parquet", "/exports", "@daily")
    in_prod = load_pipeline(folder, "prod").publish
    assert [(sink.title, sink.to) for sink in in_prod] == [
        ("delta", "s3://lake/shop"),
        ("exports", "/exports"),
        ("archive", "/archive"),
    ]


MISTAKES = {
    "a kind of sink that does not exist": (
        MINIMAL + '[[publish]]\nto = "t"\nkind = "oracle"',
        "publish.oracle.kind: found string 'oracle', expected",
    ),
    "a password in an address": (
        MINIMAL + '[publish]\nkind = "postgres"\nto = "postgresql://me:secret@db/shop"',
        "publish.to: found a password, expected an address without one. Set PGPASSWORD or PGPASSFILE",
    ),
    "a password that is not escaped": (
        MINIMAL + '[publish]\nkind = "postgres"\nto = "postgresql://me:se/cret@db/shop"',
        "publish.to: found a password, expected an address without one. Set PGPASSWORD or PGPASSFILE",
    ),
    "a password in the address of another kind": (
        MINIMAL + '[[publish]]\nkind = "kafka"\nto = "kafka://me:secret@broker:9092"',
        "publish.kafka.to: found a password, expected an address without one. Write credentials in [publish.client]",
    ),
    "a password in the address of a folder": (
        MINIMAL + '[publish]\nto = "s3://key:secret@bucket/t"',
        "publish.to: found a password, expected an address without one. Use the standard credentials",
    ),
    "two sinks of one name": (
        MINIMAL + '[[publish]]\nto = "t"\n[[publish]]\nto = "u"',
        "publish: found two sinks named 'delta', expected another `name` for each sink",
    ),
    "a relation twice": (
        MINIMAL + '[publish]\nto = "t"\nrelations = ["a", "b", "A"]',
        "publish.relations: found 'a' twice, expected each relation once",
    ),
    "two sinks in one folder": (
        MINIMAL + '[[publish]]\nto = "t"\n[[publish]]\nto = "t/"\nkind = "parquet"',
        "publish.parquet.to: found the folder of 'delta', expected a folder without another sink",
    ),
    "two sinks with the same topics": (
        MINIMAL + '[[publish]]\nkind = "kafka"\nto = "a:1, B:2"\n[[publish]]\nkind = "kafka"\nname = "k"\nto = "b:2"',
        "publish.k.topic_prefix: found '' on the brokers of 'kafka', which has the same, expected another prefix for",
    ),
    "an entry that is not a table": (
        MINIMAL + 'publish = ["t"]',
        "publish.?: found string 't', expected a table",
    ),
    "a missing name": ('store = "s"\nsql = ["a"]', "name: found nothing, expected a value: the key is required"),
    "an unknown key": (MINIMAL + 'stroe = "x"', "stroe: found an unknown key, expected 'store', the nearest known key"),
    "an unknown key of a table": (
        MINIMAL + "[epoch]\nunit = 2",
        "epoch.unit: found an unknown key, expected 'units', the nearest known key",
    ),
    "a number for a text": (
        MINIMAL.replace('"s3://bucket/shop"', "7"),
        "store: found integer 7, expected a string that is not empty",
    ),
    "a text for a table": (MINIMAL + 'schedule = "@daily"', "schedule: found string '@daily', expected a table"),
    "a boolean for a number": (
        MINIMAL + "[epoch]\nunits = true",
        "epoch.units: found boolean True, expected a whole number from 1 to 32768",
    ),
    "a name in capitals": (MINIMAL.replace("shop", "Shop"), "name: found 'Shop', expected a lower-case letter"),
    "a name that is not the folder's": (
        MINIMAL.replace("shop", "ship"),
        "name: found 'ship', expected 'shop', the folder's name",
    ),
    "a bad cron": (
        MINIMAL + '[schedule]\ncron = "every day"\nstart = 2013-01-01',
        "schedule.cron: found string 'every day', expected a cron",
    ),
    "an unknown preset": (
        MINIMAL + '[schedule]\ncron = "@dayly"\nstart = 2013-01-01',
        "schedule.cron: found string '@dayly', expected a cron",
    ),
    "a cron with seconds": (
        MINIMAL + '[schedule]\ncron = "*/10 * * * * *"\nstart = 2013-01-01',
        "schedule.cron: found string '*/10 * * * * *', expected a cron expression of five fields",
    ),
    "a cron that never comes": (
        MINIMAL + '[schedule]\ncron = "0 0 31 2 *"\nstart = 2013-01-01',
        "schedule.cron: found string '0 0 31 2 *', expected a cron expression of five fields that some day matches",
    ),
    "a start that is text": (
        MINIMAL + '[schedule]\ncron = "@daily"\nstart = "2013"',
        "schedule.start: found string '2013', expected a date",
    ),
    "an end before the start": (
        MINIMAL + '[schedule]\ncron = "@daily"\nstart = 2013-01-02\nend = 2013-01-01',
        "schedule.end: found 2013-01-01T00:00:00+00:00, expected not before start",
    ),
    "an invalid upkeep schedule": (
        MINIMAL + '[upkeep]\nschedule = "nightly"',
        "upkeep.schedule: found string 'nightly', expected a cron expression of five fields that some "
        "day matches, or one of @hourly, @daily, @weekly, @monthly, "
        '@quarterly, @yearly, or "none"',
    ),
    "a span without a unit": (
        MINIMAL + '[upkeep]\nkeep = "7"',
        "upkeep.keep: found string '7', expected a time span: a number and a unit",
    ),
    "a span that is a number": (
        MINIMAL + "[upkeep]\nkeep = 7",
        "upkeep.keep: found integer 7, expected a time span: a number and a unit",
    ),
    "retention that keeps nothing": (
        MINIMAL + "[upkeep]\nkeep_epochs = 0",
        "upkeep.keep_epochs: found integer 0, expected a whole number from 1 to 1024",
    ),
    "a misspelled key of upkeep": (
        MINIMAL + "[upkeep]\nkeep_epoch = 3",
        "upkeep.keep_epoch: found an unknown key, expected 'keep_epochs'",
    ),
    "vnodes that are no power of two": (
        MINIMAL + "[epoch]\nvnodes = 100",
        "epoch.vnodes: found 100, expected a power of two",
    ),
    "more units than vnodes": (
        MINIMAL + "[epoch]\nvnodes = 2\nunits = 4",
        "epoch.units: found 4, expected at most vnodes, 2",
    ),
    "a setting that is no text": (
        MINIMAL + '[spark]\n"spark.cores.max" = 2',
        "spark.spark.cores.max: found integer 2, expected a string",
    ),
    "a file outside of the folder": (
        MINIMAL.replace("views.sql", "../views.sql"),
        "sql: found '../views.sql', expected a path within",
    ),
    "a file that is no text": (
        MINIMAL.replace('"views.sql"', '"a.sql", 3'),
        "sql: found array ['a.sql', 3], expected a list of strings, at least one",
    ),
    "a schedule without a start": (
        MINIMAL + '[schedule]\ncron = "@daily"',
        "schedule.start: found nothing, expected a value: the key is required",
    ),
    "two rhythms": (
        MINIMAL + '[schedule]\ncron = "@daily"\nstart = 2013-01-01\nevery = "5m"',
        "schedule.every: found a time span, expected either `every` or `cron`, and not both",
    ),
    "a rhythm without time": (
        MINIMAL + '[schedule]\nevery = "0s"',
        "schedule.every: found no time, expected a time span of at least 1s",
    ),
    "intervals of a rhythm that has none": (
        MINIMAL + '[schedule]\nevery = "5m"\ncatchup = true',
        "schedule.catchup: found true, expected false, since `every` has no intervals",
    ),
    "no name of an asset": (
        MINIMAL + '[schedule]\nassets = ["my orders"]',
        "schedule.assets: found 'my orders', expected a source of this pipeline, pipeline.relation, or the URI",
    ),
    "a need that is none": (
        MINIMAL + '[schedule]\nassets = ["orders"]\nneeds = "one"',
        'schedule.needs: found string \'one\', expected "any" or "all"',
    ),
    "a trigger of a source that starts no run": (
        MINIMAL + '[watch.orders]\ntrigger = "a.B"',
        "watch.orders: found a trigger, expected 'orders' in schedule.assets too",
    ),
    "an unknown table": (
        MINIMAL + "[spork]\na = 1",
        "spork: found an unknown key, expected 'spark', the nearest known key",
    ),
    "a key like no other": (
        MINIMAL + "[quality]\n'- at `$.x`' = 1",
        "quality.- at `$.x`: found an unknown key, expected one of folder, docs, scope.",
    ),
    "more bytes than a number holds": (
        MINIMAL + f"[epoch]\nmax_bytes = {2**64}",
        f"epoch.max_bytes: found integer {2**64}, expected a whole number of bytes from 1 (512 MB are 536870912)",
    ),
    "less memory than an epoch needs": (
        MINIMAL + "[epoch]\nmemory = 1_000",
        f"epoch.memory: found integer 1000, expected a whole number of bytes from {64 << 20} (512 MB are 536870912)",
    ),
    "a runner there is not": (
        MINIMAL + '[epoch]\nrunner = "local"',
        'epoch.runner: found string \'local\', expected "spark" or "auto"',
    ),
    "a fraction of a byte": (
        MINIMAL + "[epoch]\nmax_bytes = 1.0",
        "epoch.max_bytes: found float 1.0, expected a whole number of bytes from 1 (",
    ),
    "catching up as a number": (
        MINIMAL + '[schedule]\ncron = "@daily"\nstart = 2013-01-01\ncatchup = 1',
        "schedule.catchup: found integer 1, expected true or false",
    ),
    "tables of no place": (
        MINIMAL + '[publish]\nkind = "delta"',
        "publish.to: found nothing, expected a value: the key is required",
    ),
    "a kind of tables there is not": (
        MINIMAL + '[publish]\nto = "t"\nkind = "oracle"',
        "publish.kind: found string 'oracle', expected",
    ),
    "Spark that writes to a bucket": (
        MINIMAL + '[publish]\nto = "s3://lake"\nengine = "spark"',
        "publish.engine: found 'spark' with a bucket, expected 'deltalake', "
        "whose commits to a bucket are safe for two runs at once",
    ),
    "an engine for files that need none": (
        MINIMAL + '[publish]\nto = "t"\nkind = "parquet"\nengine = "spark"',
        "publish.engine: found an unknown key, expected one of to, relations, name, upkeep, keep, kind",
    ),
    "tables kept longer than Delta keeps them": (
        MINIMAL + '[publish]\nto = "t"\nkeep = "31d"',
        "publish.keep: found 31 days, expected at most 30d",
    ),
    "a blank store": (
        MINIMAL.replace("s3://bucket/shop", " "),
        "store: found string ' ', expected a string that is not empty",
    ),
    "no files": (MINIMAL.replace('"views.sql"', ""), "sql: found array [], expected a list of strings, at least one"),
    "an unknown time zone": (
        MINIMAL + 'time_zone = "Mars/Olympus"',
        "time_zone: found string 'Mars/Olympus', expected the name of a time zone",
    ),
    "a variable without a value": (
        MINIMAL.replace("s3://bucket", "${NO_SUCH}"),
        "store: found ${NO_SUCH}, which is not set, expected a variable with a value",
    ),
    "fewer files than none": (
        MINIMAL + "[arrival.orders]\nexpect_files = -1",
        "arrival.orders.expect_files: found integer -1, expected a number of files, or a list of least and most",
    ),
    "a list with a number of files below none": (
        MINIMAL + "[arrival.orders]\nexpect_files = [-1, 3]",
        "arrival.orders.expect_files: found array [-1, 3], expected a number of files, or a list of least and most",
    ),
    "more files at least than at most": (
        MINIMAL + "[arrival.orders]\nexpect_files = [3, 1]",
        "arrival.orders.expect_files: found array [3, 1], expected a number of files, or a list of least and most",
    ),
    "a time span beyond all times": (
        MINIMAL + '[upkeep]\nkeep = "1000000d"',
        "upkeep.keep: found string '1000000d', expected a time span: a number and a unit",
    ),
    "a start before the year 1 in UTC": (
        MINIMAL + 'time_zone = "Asia/Tokyo"\n[schedule]\ncron = "@daily"\nstart = 0001-01-01',
        "schedule.start: found date 0001-01-01, expected a moment of the years 1 to 9999 in UTC",
    ),
    "a quote in the data root": (MINIMAL + 'data = "it\'s"', "expected a path without quotes"),
    "text that is no TOML": ("name = ", "the file: found an error of syntax (Invalid value"),
}


@pytest.mark.parametrize(("text", "message"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_answered_with_file_key_found_and_expected(tmp_path: Path, text: str, message: str) -> None:
    folder = write(tmp_path, text)
    with pytest.raises(PipelineError) as caught:
        load_pipeline(folder)
    assert str(caught.value).startswith(f"{folder / 'pipeline.toml'}: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "known", "advice"),
    [
        (
            "pipelines/shop",
            ("shop",),
            "contains shop. Give the name of its folder in .* Did you",
        ),
        ("./sales/", (), "without a path. Change .* `tussock new sales` creates a pipeline"),
        (".", (), "without a path. Change .* `tussock new NAME` creates a pipeline"),
        ("sales", (), "contains no pipeline. Change .* `tussock new sales` creates this pipeline"),
    ],
)
def test_a_path_in_place_of_a_name_is_told_from_it(name: str, known: tuple[str, ...], advice: str) -> None:
    assert re.search(advice, str(UnknownPipelineError(name, "pipelines", known)))


@pytest.mark.parametrize("name", ["shap", "../shop", "SHOP", "", "empty"])
def test_an_unknown_pipeline_is_answered_with_those_that_exist(tmp_path: Path, name: str) -> None:
    pipelines = write(tmp_path, MINIMAL).parent
    (pipelines / "empty").mkdir()
    assert pipeline_names(pipelines) == ("shop",)
    with pytest.raises(UnknownPipelineError, match=r"unknown pipeline '.*': .*pipelines contains shop"):
        find_pipeline(name, pipelines)
    assert find_pipeline("shop", pipelines).name == "shop"


def test_scripts_come_in_order_with_their_variables_put_in(tmp_path: Path) -> None:
    folder = write(tmp_path, MINIMAL.replace('["views.sql"]', '["b.sql", "a.sql"]') + 'data = "/lake"\n')
    (folder / "a.sql").write_text("SELECT 1")
    (folder / "b.sql").write_text("OPTIONS (path '${data}/{start:%Y-%m-%d}.parquet')")
    assert [text for _, text in load_pipeline(folder).read_scripts()] == [
        "OPTIONS (path '/lake/{start:%Y-%m-%d}.parquet')",
        "SELECT 1",
    ]


def test_a_script_made_with_the_data_is_found_there(tmp_path: Path) -> None:
    text = MINIMAL.replace('["views.sql"]', '["${data}/rows.sql"]')
    assert load_pipeline(write(tmp_path, text + 'data = "lake"\n')).sql == (tmp_path / "lake/rows.sql",)
    with pytest.raises(
        PipelineError,
        match=r"sql: found '\$\{data\}/rows.sql', expected `data` to be a local folder; it is 's3://lake'",
    ):
        load_pipeline(write(tmp_path, text + 'data = "s3://lake"\n'))
    with pytest.raises(PipelineError, match=r"expected a path within /lake"):
        load_pipeline(write(tmp_path, text.replace("rows", "../rows") + 'data = "/lake"\n'))


def test_files_of_windows_editors_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    folder = write(tmp_path, "")
    texts = {
        "pipeline.toml": f"{MINIMAL}[quality]\n",
        "views.sql": "CREATE TABLE t (id INT);\n",
        "quality/none.sql": "SELECT * FROM t\n",
    }
    for name, text in texts.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(text.replace("\n", "\r\n").encode("utf-8-sig"))
    pipeline = load_pipeline(folder)
    ((_, script),), ((_, assertion),) = pipeline.read_scripts(), pipeline.read_assertions()
    assert (script, assertion) == ("CREATE TABLE t (id INT);\n", "SELECT * FROM t\n")


def test_a_missing_script_is_named(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"sql: found views.sql \(No such file or directory\)"):
        load_pipeline(write(tmp_path, MINIMAL)).read_scripts()


@given(names(), st.sampled_from("'\""))
@QUICK
def test_a_variable_in_a_string_is_replaced_by_its_exact_value(value: str, quote: str) -> None:
    """Strings follow Spark's rules, as in statements. Outside of strings, and in a default, the text is unchanged."""
    script = f"SELECT {quote}a ${{V}} b{quote}, ${{N}}, ${{D:-'it\\'s'}} -- {quote}${{N}}\n"
    filled = substituted_in_sql(script, {"V": value, "N": "1 + 'x'"}, "views.sql")
    found = [token.value() for token in tokens_of(SourceText(filled)) if token.kind == "string"]
    assert found == [f"a {value} b", "x", "it's"]


def test_a_quality_folder_that_cannot_be_read_is_an_error_and_an_empty_one_is_not(tmp_path: Path) -> None:
    """Without the error, a folder that was mistyped or not deployed would publish all epochs without checks."""
    folder = write(tmp_path, MINIMAL + "[quality]\n")
    quality = load_pipeline(folder).quality
    assert quality is not None
    for files in (quality.list_suites, quality.list_assertions):
        with pytest.raises(PipelineError, match=r"quality: \[quality\] folder: found No such file.*remove the table"):
            files()
    (folder / "quality").mkdir()
    assert (quality.list_suites(), quality.list_assertions()) == ((), ())
    for name in ("b.json", "a.json", "c.sql", "d.txt"):
        (folder / "quality" / name).touch()
    assert [file.name for file in (*quality.list_suites(), *quality.list_assertions())] == ["a.json", "b.json", "c.sql"]


def test_hidden_files_are_no_suites(tmp_path: Path) -> None:
    for name in ("orders.json", "._orders.json", "no_rows.sql", ".no_rows.sql"):
        (tmp_path / name).touch()
    settings = QualitySettings(tmp_path, tmp_path)
    assert [path.name for path in (*settings.list_suites(), *settings.list_assertions())] == [
        "orders.json",
        "no_rows.sql",
    ]
