"""Environments of a pipeline: how they change its settings, how one is chosen, and the error for each mistake."""

from pathlib import Path

import pytest

from tests.unit.jobs.settings.test_pipeline import MINIMAL, write
from tussock.jobs.settings.environments import UnknownEnvironmentError
from tussock.jobs.settings.pipeline import Pipeline, load_pipeline
from tussock.jobs.settings.values import PipelineError
from tussock.jobs.shell.command import NoPipelineError, build_parser, chosen_pipeline
from tussock.jobs.shell.status_commands import COMMANDS

TWO = """
    name = "shop"
    store = ".tussock/shop/store"
    sql = ["views.sql"]
    data = "data"
    [schedule]
    cron = "@daily"
    start = 2026-01-01
    [epoch]
    units = 2
    max_bytes = 1_000
    [spark]
    "spark.driver.memory" = "1g"
    [variables]
    topic = "${TOPIC:-orders_test}"
    [env.dev]
    schedule.cron = "none"
    [env.prod]
    store = "s3://${bucket}/shop"
    data = "s3://landing"
    sql = ["views.sql", "prod.sql"]
    epoch.units = 8
    upkeep = { keep = "7d" }
    publish.to = "s3://${bucket}/tables"
    variables = { topic = "orders", bucket = "lake" }
    [env.prod.spark]
    "spark.driver.memory" = "8g"
"""
SCRIPT = "CREATE SOURCE o (path '${data}/o.csv', topic '${topic}', sales '${SALES:-none}')"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("TUSSOCK_ENV", raising=False)
    folder = write(tmp_path, TWO)
    (folder / "views.sql").write_text(SCRIPT)
    (folder / "prod.sql").write_text("SELECT 1")
    return folder


def test_an_environment_equals_the_file_with_its_values_written_in_place(folder: Path) -> None:
    """The other file is written by hand, with the values of `[env.prod]` where the settings are."""
    by_hand = """
        name = "shop"
        store = "s3://lake/shop"
        sql = ["views.sql", "prod.sql"]
        data = "s3://landing"
        schedule = { cron = "@daily", start = 2026-01-01 }
        epoch = { units = 8, max_bytes = 1_000 }
        spark = { "spark.driver.memory" = "8g" }
        upkeep = { keep = "7d" }
        publish = { to = "s3://lake/tables" }
        variables = { topic = "orders", bucket = "lake" }
    """
    prod = load_pipeline(folder, "prod")
    (folder / "pipeline.toml").write_text(by_hand)
    plain = load_pipeline(folder)
    assert shown(prod) == shown(plain)
    assert prod.read_scripts()[0][1] == SCRIPT.replace("${data}", "s3://landing").replace("${topic}", "orders").replace(
        "${SALES:-none}", "none"
    )
    assert (prod.title, prod.argument, plain.title, plain.argument) == (
        "shop (prod)",
        "shop --env prod",
        "shop",
        "shop",
    )


def shown(pipeline: Pipeline) -> dict[str, object]:
    left_out = ("environment", "used_variables")
    return {name: getattr(pipeline, name) for name in Pipeline.__dataclass_fields__ if name not in left_out}


def test_without_an_environment_only_the_settings_outside_of_env_apply(folder: Path, tmp_path: Path) -> None:
    plain = load_pipeline(folder)
    assert (plain.store, plain.epoch.units, plain.publish) == (str(tmp_path / ".tussock/shop/store"), 2, ())
    assert plain.schedule is not None
    assert load_pipeline(folder, "dev").schedule is None, "none: only when triggered"


def test_the_variable_of_the_process_chooses_and_the_option_wins(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUSSOCK_ENV", "prod")
    assert load_pipeline(folder).environment == "prod"
    assert load_pipeline(folder, "dev").environment == "dev"
    other = write(tmp_path, MINIMAL.replace("shop", "plain"), "plain")
    assert load_pipeline(other).environment == "", "a pipeline without environments is the same in each"
    monkeypatch.setenv("TUSSOCK_ENV", "")
    assert load_pipeline(folder).environment == ""


def test_own_variables_win_over_those_of_the_process_and_may_contain_them(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("topic", "stray")
    monkeypatch.setenv("TOPIC", "mine")
    monkeypatch.setenv("SALES", "s")
    pipeline = load_pipeline(folder)
    assert "topic 'mine', sales 's'" in pipeline.read_scripts()[0][1]
    assert pipeline.find_variables() == {"topic": "mine", "SALES": "s"}


UNKNOWN = {
    "an option with a mistyped name": (
        "prd",
        None,
        "--env prd: .* no environment 'prd', but dev, prod. Did you mean 'prod'",
    ),
    "a variable with a mistyped name": (
        None,
        "pord",
        "TUSSOCK_ENV=pord: .*Did you mean 'prod'.*add a table .env.pord.",
    ),
    "a name like no other": ("zzz", None, "no environment 'zzz', but dev, prod. To define it"),
}


@pytest.mark.parametrize(("option", "variable", "message"), UNKNOWN.values(), ids=UNKNOWN.keys())
def test_an_unknown_environment_is_answered_with_those_that_exist(
    folder: Path, monkeypatch: pytest.MonkeyPatch, option: str | None, variable: str | None, message: str
) -> None:
    if variable is not None:
        monkeypatch.setenv("TUSSOCK_ENV", variable)
    with pytest.raises(UnknownEnvironmentError, match=message):
        load_pipeline(folder, option)


def test_an_option_for_a_pipeline_without_environments_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UnknownEnvironmentError, match=r"defines no environment. Omit --env, or add a table"):
        load_pipeline(write(tmp_path, MINIMAL), "prod")


MISTAKES = {
    "an unknown key": ("env.prod.stroe = 's'", "env.prod.stroe: found an unknown key, expected 'store'"),
    "an unknown key of a table": (
        "env.prod.epoch.unit = 3",
        "env.prod.epoch.unit: found an unknown key, expected 'units'",
    ),
    "a wrong type": ("env.prod.epoch.units = 'x'", "env.prod.epoch.units: found string 'x', expected a whole number"),
    "a number among the settings of Spark": (
        "env.prod.spark = { 'spark.cores.max' = 2 }",
        "env.prod.spark.spark.cores.max: found integer 2, expected a string",
    ),
    "units that do not fit the others": (
        "env.prod.epoch.units = 512",
        "env.prod.epoch.units: found 512, expected at most",
    ),
    "a table with a key that only it lacks": (
        "env.prod.schedule.cron = '@daily'",
        "env.prod.schedule.start: found nothing, expected a value",
    ),
    "another name": ("env.prod.name = 'ship'", "env.prod.name: found a value, expected none: it is the same in all"),
    "a value for a table": ("env.store = 's'", "env.store: found string 's', expected a table with the settings"),
    "a name in capitals": ("env.Prod = {}", "env.Prod: found 'Prod', expected a lower-case letter"),
    "a variable without a value": (
        "env.prod.store = '${NO_SUCH}'",
        "env.prod.store: found ${NO_SUCH}, which is not set",
    ),
    "a variable named like the data root": (
        "env.prod.variables.data = 'x'",
        "variables.data: found 'data', expected a letter or _",
    ),
    "a mistake outside of the environment": ("env.prod = {}\nepoch.unit = 3", "toml: epoch.unit: found an unknown key"),
    "a mistyped table of environments": ("evn.prod = {}", "evn: found an unknown key, expected 'env'"),
}


@pytest.mark.parametrize(("line", "message"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_answered_with_its_environment_and_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, message: str
) -> None:
    monkeypatch.delenv("TUSSOCK_ENV", raising=False)
    with pytest.raises(PipelineError) as caught:
        load_pipeline(write(tmp_path, MINIMAL + line), "prod")
    assert message in str(caught.value)


def test_a_mistake_in_another_environment_is_found_too(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"env.prod.stroe: found an unknown key"):
        load_pipeline(write(tmp_path, MINIMAL + "env.prod.stroe = 's'\nenv.dev = {}"), "dev")


def test_a_store_that_only_environments_have_needs_a_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TUSSOCK_ENV", raising=False)
    folder = write(tmp_path, 'name = "shop"\nsql = ["a.sql"]\nenv.dev.store = "d"\nenv.prod.store = "p"\n')
    assert load_pipeline(folder, "prod").store == str(tmp_path / "p")
    with pytest.raises(
        PipelineError, match=r"store: found a value only in .env., expected an environment: pass --env NAME"
    ):
        load_pipeline(folder)


def test_a_command_takes_the_environment_of_its_pipeline(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUSSOCK_PIPELINES", str(folder.parent))
    parse = build_parser("", "", COMMANDS).parse_args
    found = chosen_pipeline(parse(["status", "--pipeline", "shop", "--env", "prod"]))
    assert found is not None
    assert found.store == "s3://lake/shop"
    with pytest.raises(NoPipelineError, match=r"--env prod is an environment of a pipeline. Name the pipeline"):
        chosen_pipeline(parse(["status", "--store", "s", "--env", "prod"]))
