"""Publish 900 updates and 100 deletes to a table in Postgres, and to a topic of Kafka, of several sizes.

    python -m benchmarks server-changes
    python -m benchmarks server-changes --rows 1000000 10000000 --ways postgres

The sinks get the changes in memory, as a publish has them after it read the store. Each round opens a connection, sends
the changes and commits. The CPU time is that of this process and of the server, as a mean, since the system counts a
server's time in steps of 10 ms. A table is vacuumed after its first load, as Postgres itself does within minutes. The
rows of the table, and the last message of each key, are compared with the model at the end.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import psycopg
from confluent_kafka import Consumer, TopicPartition

from benchmarks.lake_changes import DELETED, Model, outline
from tests.support.jobs.sources.kafka_broker import Broker
from tests.support.postgres import PostgresServer, password_set
from tussock.jobs.settings.home import Home
from tussock.jobs.settings.publishing import KafkaSettings, PostgresSettings, PublishSettings
from tussock.jobs.sinks.base import Difference, Publisher
from tussock.jobs.sinks.kinds import open_place
from tussock.statestore.meta.store import MetaStore

_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
REAPED_S = 0.3  # until a server has counted the process of a connection that ended


@contextmanager
def postgres() -> Iterator[tuple[PublishSettings, int]]:
    """Yield the settings of a sink, and the server's process."""
    with password_set(), PostgresServer("autovacuum=off\n") as server:  # its workers' time would count as a publish's
        yield PostgresSettings(server.create_database("shop"), ("orders",)), server.pid


@contextmanager
def kafka() -> Iterator[tuple[PublishSettings, int]]:
    """See `postgres`."""
    with tempfile.TemporaryDirectory() as folder, Broker(Path(folder) / "broker") as broker:
        yield KafkaSettings(broker.servers, ("orders",)), broker.pid


def vacuum(settings: PublishSettings) -> None:
    """Leave a loaded table as the server's autovacuum leaves it."""
    with psycopg.connect(settings.to, autocommit=True) as connection:
        connection.execute("VACUUM (ANALYZE) orders")
        connection.execute("CHECKPOINT")


def read_postgres(settings: PublishSettings, count: int) -> tuple[int, int, int]:
    """Return the number of rows, the sum of the keys and the sum of the values. `count`: above all keys."""
    with psycopg.connect(settings.to) as connection:
        row = connection.execute("SELECT count(*), sum(k), sum(v) FROM orders").fetchone()
    assert row is not None
    return int(row[0]), int(row[1]), int(row[2])


def read_kafka(settings: PublishSettings, count: int) -> tuple[int, int, int]:
    """See `read_postgres`."""
    values = np.full(count, -1)
    reader = Consumer({"bootstrap.servers": settings.to, "group.id": "check", "isolation.level": "read_committed"})
    partition = TopicPartition("orders", 0, 0)
    _, end = reader.get_watermark_offsets(partition)
    reader.assign([partition])
    while reader.position([partition])[0].offset < end:
        for message in reader.consume(10_000, 1):
            assert message.error() is None, message.error()
            value = message.value()
            values[json.loads(message.key())["k"]] = -1 if value is None else json.loads(value)["v"]
    reader.close()
    left = np.flatnonzero(values >= 0)
    return len(left), int(left.sum()), int(values[left].sum())


WAYS = {"postgres": (postgres, read_postgres), "kafka": (kafka, read_kafka)}


def publish(settings: PublishSettings, epoch: int, write: Callable[..., object]) -> None:
    """Write an epoch in one transaction. `write`: gets the sink."""
    publisher = Publisher(cast(MetaStore, SimpleNamespace()), Home("bench", "", ""), str)
    with open_place(settings, publisher) as place:
        sink = place.sink_of(outline())
        sink.read_state()
        write(sink)
        place.finish_epoch(epoch, {}, complete=True)


def measure(rows: int, rounds: int, way: str) -> tuple[float, float]:
    """Return the mean CPU seconds and the median seconds of a round, after a warm one."""
    opened, read = WAYS[way]
    model, costs = Model(rows), []
    with opened() as (settings, server):
        publish(settings, 1 << 16, lambda sink: sink.replace(model, 1 << 16))
        if way == "postgres":
            vacuum(settings)
        for number in range(rounds + 1):
            changes = model.change(number + 1)
            removed = changes.removed.rename_columns(["k"])
            difference = Difference(removed.slice(0, DELETED), changes.written.rows, only_new=False, changes=removed)
            epoch, start, cpu = (number + 2) << 16, time.perf_counter(), read_cpu_s(server)
            publish(settings, epoch, lambda sink, d=difference, e=epoch: sink.apply(d, e))
            seconds = time.perf_counter() - start
            time.sleep(REAPED_S)
            costs.append((read_cpu_s(server) - cpu, seconds))
        assert (found := read(settings, rows)) == model.sums(), (found, model.sums())
    cpu_s, seconds = zip(*costs[1:], strict=True)
    return statistics.mean(cpu_s), statistics.median(seconds)


def read_cpu_s(server: int) -> float:
    """Return the CPU time of this process and of a server, with its processes that have ended."""
    fields = Path(f"/proc/{server}/stat").read_text().rpartition(")")[2].split()
    return time.process_time() + sum(map(int, fields[11:15])) / _TICKS_A_SECOND


def main(arguments: list[str]) -> int:
    """Run and print. Returns 1 if the cost depends on the number of rows."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks server-changes")
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000], help="rows of the tables")
    parser.add_argument("--rounds", type=int, default=21, help="measured publishes")
    parser.add_argument("--ways", nargs="+", choices=tuple(WAYS), default=list(WAYS), help="sinks to measure")
    options = parser.parse_args(arguments)
    worst = 1.0
    for way in options.ways:
        costs = []
        for rows in options.rows:
            cpu_s, seconds = measure(rows, options.rounds, way)
            costs.append(cpu_s)
            print(f"{rows:>12,} rows  {way:<9} {1000 * seconds:,.0f} ms, {1000 * cpu_s:,.0f} ms CPU", flush=True)
        worst = max(worst, ratio := max(costs) / min(costs))
        print(f"{way}: {ratio:.2f} times the CPU time between the sizes (limit 1.3)", flush=True)
    return int(worst > 1.3)
