"""Run the pipeline `accounts` on a Postgres server of its own, and query the published tables as a dashboard would.

    python scripts/postgres_demo.py

The server lives in a temporary folder. The first epoch takes a snapshot of both tables, and the second one the
transfers that were made since. Transfers move money between accounts, so the sum of all balances never changes.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

ROOT = Path(__file__).resolve().parent.parent
TABLES = """
    CREATE TABLE accounts (id bigint PRIMARY KEY, branch text, balance numeric(12,2));
    CREATE TABLE transfers (id bigserial PRIMARY KEY, giver bigint, taker bigint, amount numeric(12,2), at timestamptz);
    INSERT INTO accounts SELECT n, 'branch ' || n % 5, 1000 FROM generate_series(1, 10000) n
"""
TRANSFER = """
    WITH moved AS (INSERT INTO transfers (giver, taker, amount, at)
      VALUES (%(giver)s, %(taker)s, %(amount)s, timestamptz '2026-01-01' + %(n)s * interval '1 hour'))
    UPDATE accounts SET balance = balance + CASE id WHEN %(giver)s THEN -%(amount)s ELSE %(amount)s END
    WHERE id IN (%(giver)s, %(taker)s)
"""
DASHBOARD = """
    SELECT b.branch, b.accounts, b.balance, coalesce(sum(t.amount), 0) AS sent
    FROM reports.branches b LEFT JOIN reports.transfers_by_day t USING (branch) GROUP BY 1, 2, 3 ORDER BY 1
"""
START_S = 60


def find_programs() -> Path:
    """Return the folder of `initdb` and `postgres`. Ends the program if there is none."""
    patterns = ("usr/lib/postgresql/*/bin", "usr/local/bin", "usr/bin", "opt/homebrew/bin")
    found = (path for pattern in patterns for path in sorted(Path("/").glob(pattern), reverse=True))
    if (programs := next((path for path in found if (path / "initdb").exists()), None)) is None:
        sys.exit("This machine has no Postgres server. Install it, for example by `apt-get install postgresql`.")
    return programs


@contextmanager
def running_server(programs: Path) -> Iterator[Path]:
    """A server in a new folder, reached by a socket in it. As root, it runs as the user `postgres` or `nobody`."""
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    user = None if os.geteuid() else "postgres" if "postgres:" in Path("/etc/passwd").read_text() else "nobody"
    if user is not None:
        shutil.chown(folder, user)
    data = folder / "data"
    command = [str(programs / "initdb"), "-D", str(data), "-U", "owner", "--auth", "trust", "--no-sync"]
    subprocess.run(command, user=user, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    options = ["-c", "wal_level=logical", "-c", "listen_addresses=", "-c", f"unix_socket_directories={folder}"]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [str(programs / "postgres"), "-D", str(data), *options], user=user, cwd=folder, stdout=log, stderr=log
        )
    try:
        wait_for(folder)
        yield folder
    finally:
        server.terminate()
        server.wait()
        shutil.rmtree(folder, ignore_errors=True)


def wait_for(folder: Path) -> None:
    """Wait until the server answers."""
    ends = time.monotonic() + START_S
    while True:
        try:
            psycopg.connect(host=str(folder), dbname="postgres", user="owner").close()
            return
        except psycopg.OperationalError:
            if time.monotonic() > ends:
                raise
            time.sleep(0.2)


def make_transfers(connection: psycopg.Connection, count: int, first: int) -> None:
    """Make transfers, one transaction each."""
    for n in range(first, first + count):
        giver, taker = 1 + n * 7 % 10_000, 1 + (n * 7 + 13) % 10_000
        connection.execute(TRANSFER, {"giver": giver, "taker": taker, "amount": 1 + n % 50, "n": n})


def run_tussock(*words: str) -> None:
    """Run a command of Tussock, with its output."""
    print("$ tussock", *words, flush=True)
    subprocess.run([sys.executable, "-m", "tussock", *words], check=True, cwd=ROOT)


def show_dashboard(connection: psycopg.Connection) -> None:
    """Print the answer of the dashboard's query, and compare it with the tables of the bank."""
    rows = connection.execute(DASHBOARD).fetchall()
    print(f"{'branch':12}{'accounts':>10}{'balance':>16}{'sent':>12}")
    for branch, accounts, balance, sent in rows:
        print(f"{branch:12}{accounts:>10}{balance:>16}{sent:>12}")
    there = connection.execute("SELECT branch, count(*), sum(balance) FROM accounts GROUP BY 1 ORDER BY 1").fetchall()
    if [row[:3] for row in rows] != there:
        sys.exit("the published tables differ from the bank's tables")
    print(f"all balances: {sum(row[2] for row in rows)}, equal to the bank's tables\n", flush=True)


def main() -> None:
    """Run two epochs, and print the dashboard after each."""
    with running_server(find_programs()) as folder, tempfile.TemporaryDirectory() as store:
        os.environ |= {"PGHOST": str(folder), "PGDATABASE": "postgres", "PGUSER": "owner", "PGPASSWORD": ""}
        os.environ |= {"ACCOUNTS_STORE": f"{store}/store", "ACCOUNTS_DATA": f"{store}/data"}
        with psycopg.connect(autocommit=True) as connection:
            for statement in TABLES.split(";"):
                connection.execute(statement)
            make_transfers(connection, 500, 0)
            run_tussock("apply", "accounts")
            run_tussock("epoch", "--pipeline", "accounts")
            show_dashboard(connection)
            make_transfers(connection, 500, 500)
            run_tussock("epoch", "--pipeline", "accounts")
            show_dashboard(connection)
            run_tussock("status", "--pipeline", "accounts")


if __name__ == "__main__":
    main()
