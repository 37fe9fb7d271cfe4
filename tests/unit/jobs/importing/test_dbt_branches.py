"""Compiled SQL that lacks rows, because dbt compiled only a part of the model, is refused with the command."""

import pytest

from tussock.jobs.importing.dbt_branches import refusal_of_branch
from tussock.jobs.importing.dbt_manifest import DbtConfig, DbtNode

HEAD = "select id, sold_at from {{ ref('sales') }}"
COMPILED = "select id, sold_at from shop.sales"


def node_of(raw: str, compiled: str, full_refresh: bool | None = None) -> DbtNode:
    return DbtNode(
        "model.shop.recent", "model", "recent", "shop", "models/recent.sql", raw_code=raw, compiled_code=compiled,
        config=DbtConfig(materialized="incremental", full_refresh=full_refresh),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("raw", "compiled"),
    [
        (
            "{% if is_incremental() %}where sold_at > current_date() - 3{% endif %}",
            "where sold_at > current_date() - 3",
        ),
        ("{%- if is_incremental() and var('x') -%}where d > '{{ var('d') }}'{%- endif -%}", "where d > '2026-01-01'"),
        ("{% if is_incremental() %}where a > 1 {% if true %}and b > {{ 1 }}{% endif %}{% endif %}", "where a > 1 and"),
        (
            "{% if not is_incremental() %}where true{% else %}where sold_at > '2026'{% endif %}",
            "where sold_at > '2026'",
        ),
        ("{% if false %}x{% elif is_incremental() %}where sold_at > '2026'{% endif %}", "where sold_at > '2026'"),
        ("{{ \"where sold_at > '2026'\" if is_incremental() }}", "where sold_at > '2026'"),
    ],
)
def test_an_incremental_branch_is_found_in_each_form(raw: str, compiled: str) -> None:
    found = refusal_of_branch(node_of(f"{HEAD}\n{raw}", f"{COMPILED}\n{compiled}"), {})
    assert found.replace('"', "'").startswith("only its incremental branch is compiled ('where")
    assert "dbt compile --full-refresh" in found
    assert refusal_of_branch(node_of(f"{HEAD}\n{raw}", COMPILED), {}) == ""


def test_an_incremental_branch_is_found_in_a_macro() -> None:
    macros = {
        "the macro newer": "{% macro newer(c) %}{% if is_incremental() %}and {{ c }} > '2026'{% endif %}{% endmacro %}"
    }
    raw = HEAD + " where true {{ newer('sold_at') }}"
    assert "> '2026'" in refusal_of_branch(node_of(raw, f"{COMPILED} where true and sold_at > '2026'"), macros)
    assert refusal_of_branch(node_of(raw, f"{COMPILED} where true"), macros) == ""


@pytest.mark.parametrize(
    "raw",
    [
        "{% if is_incremental() or true %}where sold_at > '2026'{% endif %}",
        "{% if not is_incremental() %}where sold_at > '2026'{% endif %}",
        "{% if is_incremental() %}where sold_at > '2026'{% else %}where sold_at > '2026'{% endif %}",
        "{# {% if is_incremental() %} #}where sold_at > '2026'",
    ],
)
def test_a_text_that_every_run_may_write_is_no_sign(raw: str) -> None:
    assert refusal_of_branch(node_of(f"{HEAD}\n{raw}", f"{COMPILED}\nwhere sold_at > '2026'"), {}) == ""


def test_a_model_that_never_refreshes_has_a_remedy_of_its_own() -> None:
    node = node_of(
        HEAD + "{% if is_incremental() %} where sold_at > '2026'{% endif %}",
        f"{COMPILED} where sold_at > '2026'",
        False,
    )
    assert "Its full_refresh=false keeps dbt on this branch." in refusal_of_branch(node, {})


@pytest.mark.parametrize(
    "read",
    [
        "(select * from shop.sales where false limit 0)",  # --empty
        "(select * from `db`.`shop`.`sales` where sold_at >= '2026-01-01' and sold_at < '2026-01-02')",  # --sample
        '(select * from "shop"."sales" where cast(sold_at as timestamp) >= \'2026-01-01 00:00:00+00:00\')',
    ],
)
def test_inputs_that_dbt_shortened_are_refused(read: str) -> None:
    found = refusal_of_branch(node_of(HEAD, f"select id, sold_at from {read}"), {})
    assert found.startswith("dbt compiled it with --empty, with --sample or for one batch")


def test_a_part_of_an_input_that_the_model_selects_is_taken() -> None:
    raw = "select id from (select *\n from {{ ref('sales') }} where sold_at >= '2026-01-01')"
    assert refusal_of_branch(node_of(raw, raw.replace("{{ ref('sales') }}", "shop.sales")), {}) == ""
    tested = "select id from (select * from shop.sales where sold_at >= '2026-01-01') dbt_subquery"
    assert refusal_of_branch(node_of("{{ test_not_null(**args) }}", tested), {}) == ""
