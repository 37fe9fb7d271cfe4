"""Compiled SQL that lacks rows, because dbt compiled only a part of the model, is refused with the command."""

import pytest

from tussock.jobs.importing.dbt_branches import refusal_of_branch
from tussock.jobs.importing.dbt_manifest import DbtConfig, DbtNode

HEAD = "select id, sold_at from {{ ref('sales') }}"
COMPILED = "select id, sold_at from shop.sales"
RELATIONS = ("shop.sales", "`db`.`shop`.`sales`", '"shop"."sales"')


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
    found = refusal_of_branch(node_of(f"{HEAD}\n{raw}", f"{COMPILED}\n{compiled}"), {}, RELATIONS)
    assert found.replace('"', "'").startswith("only its incremental branch is compiled ('where")
    assert "dbt compile --full-refresh" in found
    assert refusal_of_branch(node_of(f"{HEAD}\n{raw}", COMPILED), {}, RELATIONS) == ""


def test_an_incremental_branch_is_found_in_a_macro() -> None:
    macros = {
        "the macro newer": "{% macro newer(c) %}{% if is_incremental() %}and {{ c }} > '2026'{% endif %}{% endmacro %}"
    }
    raw = HEAD + " where true {{ newer('sold_at') }}"
    assert "> '2026'" in refusal_of_branch(
        node_of(raw, f"{COMPILED} where true and sold_at > '2026'"), macros, RELATIONS
    )
    assert refusal_of_branch(node_of(raw, f"{COMPILED} where true"), macros, RELATIONS) == ""


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
    assert refusal_of_branch(node_of(f"{HEAD}\n{raw}", f"{COMPILED}\nwhere sold_at > '2026'"), {}, RELATIONS) == ""


def test_a_model_that_never_refreshes_has_a_remedy_of_its_own() -> None:
    node = node_of(
        HEAD + "{% if is_incremental() %} where sold_at > '2026'{% endif %}",
        f"{COMPILED} where sold_at > '2026'",
        False,
    )
    assert "Its full_refresh=false keeps dbt on this branch." in refusal_of_branch(node, {}, RELATIONS)


@pytest.mark.parametrize(
    "read",
    [
        "(select * from shop.sales where false limit 0)",  # --empty
        "(select * from `db`.`shop`.`sales` where sold_at >= '2026-01-01' and sold_at < '2026-01-02')",  # --sample
        '(select * from "shop"."sales" where cast(sold_at as timestamp) >= \'2026-01-01 00:00:00+00:00\')',
    ],
)
def test_inputs_that_dbt_shortened_are_refused(read: str) -> None:
    found = refusal_of_branch(node_of(HEAD, f"select id, sold_at from {read}"), {}, RELATIONS)
    assert found.startswith("dbt compiled it with --empty, with --sample or for one batch")


def test_a_part_of_an_input_that_the_model_selects_is_taken() -> None:
    raw = "select id from (select *\n from {{ ref('sales') }} where sold_at >= '2026-01-01')"
    assert refusal_of_branch(node_of(raw, raw.replace("{{ ref('sales') }}", "shop.sales")), {}, RELATIONS) == ""
    tested = "select id from (select * from shop.sales where sold_at >= '2026-01-01') dbt_subquery"
    assert refusal_of_branch(node_of("{{ test_not_null(**args) }}", tested), {}, RELATIONS) == ""


def test_a_with_that_selects_a_part_of_another_one_is_taken() -> None:
    raw = HEAD.replace("{{ ref('sales') }}", "recent")
    parts = (
        "with all_sales as (\n select * from {{ ref('sales') }}\n), recent as (select * from all_sales where a >= '1')"
    )
    compiled = f"{parts} {raw}".replace("{{ ref('sales') }}", "shop.sales")
    assert refusal_of_branch(node_of(f"{parts} {raw}", compiled), {}, RELATIONS) == ""
    named = "select id from (select * from shop.sales where sold_at >= '2026-01-01')"
    assert refusal_of_branch(node_of(named, named), {}, RELATIONS) == "", "the model itself names the relation"


def test_an_inlined_model_that_selects_a_part_is_taken() -> None:
    inlined = "select * from (select * from {{ ref('sales') }} where sold_at >= '2026-01-01')"
    compiled = f"with x as ({inlined}) select * from x".replace("{{ ref('sales') }}", "shop.sales")
    assert refusal_of_branch(node_of("select * from {{ ref('x') }}", compiled), {}, RELATIONS, [inlined]) == ""
