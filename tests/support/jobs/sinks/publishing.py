"""Publishers in separate processes, and one dies halfway.

python -m tests.support.jobs.sinks.publishing <store> <to> <kind> <step> [<relations>]

A step is the moment before or after an action that others could see. The process kills itself at step number <step>,
and exits with 0 if there are fewer steps.
"""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from tussock.jobs.settings.process import open_meta
from tussock.jobs.settings.publishing import KINDS, PublishSettings
from tussock.jobs.sinks import delta_located, delta_rs, lineage, parquet, publication
from tussock.jobs.sinks.publication import publish_tables

VISIBLE = (
    (delta_located.DeltaLocatedSink, "_write_files"),
    (delta_located.DeltaLocatedSink, "_commit"),
    (delta_located, "write_newest"),
    (delta_rs, "write_deltalake"),
    (delta_rs.DeltaRsSink, "_merge_difference"),
    (delta_rs.DeltaRsSink, "_set_properties"),
    (parquet, "write_parquet"),
    (publication, "write_manifest"),
    (publication, "home_of"),
    (lineage, "write_record"),
    (publication, "forget_records"),
)


def publish(store: str, settings: PublishSettings, epoch: int | None = None) -> None:
    """Publish as another process would."""
    publish_tables(open_meta(store), settings, epoch)


def main(store: str, to: str, kind: str, step: str, relations: str = "orders,ratios,events,by_shop,shops") -> None:
    left = int(step)

    def maybe_die() -> None:
        nonlocal left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1

    def stepped(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            maybe_die()
            answer = function(*args, **named)
            maybe_die()
            return answer

        return call

    for holder, name in VISIBLE:
        patch.object(holder, name, stepped(getattr(holder, name))).start()
    settings = KINDS[kind](to, tuple(relations.split(",")))
    publish(store, settings)


if __name__ == "__main__":
    main(*sys.argv[1:])
