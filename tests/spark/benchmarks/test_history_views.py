"""The views of `python -m benchmarks history` contain every operator, aggregate, window function and kind of join."""

from pathlib import Path
from typing import get_args

import pytest
from pyspark.sql import SparkSession

from benchmarks.history import COLUMNS, SHOPS
from benchmarks.history_views import ALL
from tussock import Session
from tussock.jobs.catalog.definition import fragments_of
from tussock.jobs.executors.first_rows import FirstRows
from tussock.jobs.executors.hash_agg import HashAgg
from tussock.jobs.executors.hash_join import HashJoin
from tussock.jobs.executors.keyed_changes import KeyedChanges
from tussock.jobs.executors.keyed_deliveries import KeyedDeliveries
from tussock.jobs.executors.number_copies import NumberCopies
from tussock.jobs.executors.over_window import OverWindow
from tussock.jobs.executors.registry import Node
from tussock.jobs.executors.row_digest import RowDigest
from tussock.jobs.executors.table_replay import TableReplay
from tussock.jobs.logical.nodes import AggFunction, JoinKind, WindowFunction

pytestmark = pytest.mark.spark
OF_OTHER_INPUTS = {NumberCopies, RowDigest, KeyedChanges, KeyedDeliveries, TableReplay, FirstRows}
"""Operators over Delta sources without a key, sources with a key, tables, and sources whose rows stay."""
IN_NEAR_FRAMES = {f for f in WindowFunction if f.value in set(AggFunction)}  # test_bounded_reads.py has them all


def test_the_views_contain_every_operator_aggregate_window_function_and_join(
    spark: SparkSession, tmp_path: Path
) -> None:
    with Session(str(tmp_path / "store"), spark) as session:
        for name, columns in (("events", COLUMNS), ("shops", SHOPS)):
            options = f"path '{tmp_path}/{name}', may_be_missing 'true'"
            session.execute(f"CREATE SOURCE {name} ({columns}) USING parquet OPTIONS ({options})")
        for number, select in enumerate(select for views in ALL for select in views.selects):
            session.execute(f"CREATE MATERIALIZED VIEW v{number} AS {select}")
        session.flush()
        relations = session.meta.read_latest().catalog.live_relations()
    nodes = [o.node for relation in relations for fragment in fragments_of(relation) for o in fragment.operators]
    aggregates = {call.function for node in nodes if isinstance(node, HashAgg) for call in node.calls}
    over = {call.function for node in nodes if isinstance(node, OverWindow) for call in node.calls}
    kinds = {node.kind for node in nodes if isinstance(node, HashJoin)}
    assert {
        "operators": {*get_args(Node)} - {type(node) for node in nodes} - OF_OTHER_INPUTS,
        "aggregates": {*AggFunction} - aggregates,
        "window functions": {*WindowFunction} - over - IN_NEAR_FRAMES - {WindowFunction.ROW_NUMBER},  # a GroupTopN
        "joins": {*JoinKind} - kinds - {JoinKind.NULL_AWARE_ANTI},
    } == {"operators": set(), "aggregates": set(), "window functions": set(), "joins": set()}
