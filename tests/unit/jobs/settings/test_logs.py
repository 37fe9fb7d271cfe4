"""The engine's log: silent by default. Every line about an epoch's work names the epoch, level and unit."""

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.jobs.driver.embedded import append, epoch, insert, new_store
from tests.support.jobs.plan.catalogs import counted, scan, table, view
from tussock.jobs.settings.logs import ROOT as LOGGER
from tussock.jobs.settings.logs import WorkFilter, working_on

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture
def lines() -> Iterator[list[str]]:
    """The lines that the engine logs, as `logger work: message`."""
    found: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(f"{record.name}{record.work}: {record.getMessage()}")  # type: ignore[attr-defined]

    handler = Kept()
    handler.addFilter(WorkFilter())
    logger = logging.getLogger(LOGGER)
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield found
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


def test_an_epoch_is_logged_from_its_barrier_to_its_commit_with_the_unit_at_work(
    tmp_path: Path, lines: list[str]
) -> None:
    meta = new_store(tmp_path / "store")
    append(meta, table("t"), view("per_g", counted(scan("t"), 1)))
    epoch(meta)
    insert(meta, "t", (1, 1, 1), (2, 1, 2))
    lines.clear()
    done = epoch(meta).epoch

    def logged(*parts: str) -> bool:
        return any(all(part in line for part in parts) for line in lines)

    assert logged(
        "tussock.jobs.barriers.barrier", f"barrier {done} after", "injected: 1 log entries, input of 0 sources, nothing"
    ), lines
    assert logged("tussock.jobs.task.unit", f" epoch={done} level=0 unit=", "of t: 0 rows in, "), lines
    assert logged("tussock.jobs.task.unit", f" epoch={done} level=1 unit=", "of per_g: ", "1 out, "), lines
    assert logged("tussock.statestore.hummock.store", f"epoch={done} level=", "keys requested"), lines
    assert logged("tussock.statestore.hummock.ingest", f" epoch={done}:", "uploaded 1 SSTs", " bytes, "), lines
    assert logged("tussock.jobs.driver.train", f"epoch {done} committed as version", "flush 0.", "commit 0."), lines


def test_facts_of_work_exist_only_within_their_block() -> None:
    record = logging.LogRecord("x", logging.INFO, "", 0, "", (), None)

    def work() -> str:
        WorkFilter().filter(record)
        return str(vars(record)["work"])

    with working_on(epoch=7):
        with working_on(level=1, unit=0):
            assert work() == " epoch=7 level=1 unit=0"
        assert work() == " epoch=7"
    assert work() == ""


@pytest.mark.parametrize(
    ("level", "on_stderr"), [(None, ""), ("info", "INFO tussock.jobs.test: heard"), ("LOUD", "BadLogLevelError")]
)
def test_the_log_is_off_unless_the_environment_enables_it(level: str | None, on_stderr: str) -> None:
    code = "import logging, tussock; from tussock.jobs.settings.logs import configure_logging as on; on(); "
    code += "log = logging.getLogger('tussock.jobs.test'); "
    code += "log.info('heard'); log.debug('not heard')" if level else "log.warning('not heard')"
    environment = {k: v for k, v in os.environ.items() if k != "TUSSOCK_LOG"} | (
        {} if level is None else {"TUSSOCK_LOG": level}
    )
    said = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    ).stderr
    assert on_stderr in said
    assert "not heard" not in said
