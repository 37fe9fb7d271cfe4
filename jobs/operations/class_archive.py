"""Creates the class-data archive (jobs/spark/class_archive.py) of the JVM that runs Spark, for all jobs of this Python.

It runs two epochs of a store in a temporary folder. At its exit, the JVM writes the classes that it loaded. This takes
half a minute, and 150 MB next to this Python's packages.
"""

import os
import tempfile
from pathlib import Path

from tussock.jobs.spark.class_archive import SUBMIT_OPTIONS, archive_of_python
from tussock.statestore.progress import Progress

ARCHIVE_TIMEOUT_S = 300.0

STATEMENTS = """
CREATE TABLE orders (id bigint, shop int, at timestamp, amount decimal(10, 2), PRIMARY KEY (id));
CREATE TABLE shops (shop int, name string, PRIMARY KEY (shop));
CREATE MATERIALIZED VIEW by_shop AS
    SELECT name, date(at) AS day, count(*) AS n, sum(amount) AS total, max(amount) AS most
    FROM orders JOIN shops USING (shop) GROUP BY name, date(at);
CREATE MATERIALIZED VIEW best AS SELECT * FROM by_shop ORDER BY total DESC LIMIT 3;
INSERT INTO shops VALUES (1, 'north'), (2, 'south');
INSERT INTO orders VALUES (1, 1, timestamp'2026-01-01 08:00:00', 9.50), (2, 2, timestamp'2026-01-02 09:00:00', 1.25);
"""
"""The input of the epochs: one statement of each kind, to load the classes of parsing, planning and execution."""


def create_archive(*, only_missing: bool, progress: Progress) -> bool:
    """Create the archive, and remove archives of other releases of Java and Spark. Returns whether one exists.

    `only_missing`: if none fits the installed Java and Spark.
    """
    file = archive_of_python()
    if only_missing and file.is_file():
        return True
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=file.parent) as folder:  # on the same disk, so that the rename is atomic
        archive = Path(folder) / file.name
        os.environ[SUBMIT_OPTIONS] = f'{os.environ.get(SUBMIT_OPTIONS, "")} "-XX:ArchiveClassesAtExit={archive}"'
        _run_epochs(folder)
        if not archive.is_file():
            progress("this Java wrote no archive; JVMs start without one")
            return False
        archive.replace(file)
    for other in file.parent.glob("spark*.jsa"):
        if other != file:
            other.unlink()
    progress(f"{file}: {file.stat().st_size:,} bytes")
    return True


def _run_epochs(folder: str) -> None:
    from pyspark import SparkContext

    from tussock.jobs.session import Session
    from tussock.jobs.spark.class_loading import load_classes

    with Session(f"{folder}/store", runner="spark") as session:
        list(session.run(STATEMENTS))
        session.flush()
        session.execute("UPDATE orders SET amount = 2.50 WHERE id = 2")
        session.flush()
        session.query("SELECT name, sum(total) AS total FROM by_shop GROUP BY name ORDER BY name")
        load_classes(session.spark)
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.proc.stdin.close()  # ends the JVM, which then writes the archive
    gateway.proc.wait(ARCHIVE_TIMEOUT_S)
