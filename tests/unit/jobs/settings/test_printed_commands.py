"""Which commands of a message get a pipeline or a store."""

import pytest

from tussock.jobs import cli
from tussock.jobs.settings.printed_commands import BY_NAME, WITHOUT_STORE, address_commands


def test_each_command_without_options_for_its_store_is_known() -> None:
    without_options = {c.name.partition(" ")[0] for c in cli.COMMANDS if not c.names_store}
    assert without_options == {*BY_NAME, *WITHOUT_STORE} - {"status", "undo"}, "these two take a name or options"
    assert {c.name for c in cli.COMMANDS} >= {*BY_NAME, *WITHOUT_STORE}


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("undo --to 7", "undo shop --env prod --to 7"),
        ("epoch", "epoch --pipeline shop --env prod"),
        ("import dbt target/manifest.json --check", "import dbt target/manifest.json --check"),
        ("--version", "--version"),
    ],
)
def test_a_command_gets_the_pipeline_where_its_parser_takes_it(command: str, expected: str) -> None:
    assert address_commands(f"Run `tussock {command}`.", pipeline="shop --env prod") == f"Run `tussock {expected}`."
