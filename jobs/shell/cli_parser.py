"""The commands of `tussock`: their arguments, and what `--help` says of each: what it is for, and a line to start from."""

import argparse
import textwrap
from collections.abc import Callable, Mapping
from typing import NamedTuple

from jobs.upkeep.compaction import add_arguments as add_compaction_arguments
from jobs.upkeep.vacuum import add_arguments as add_vacuum_arguments

Run = Callable[[argparse.Namespace], None]

_OVERVIEW = """\
Incremental materialized views on Spark and object storage.

A store holds one pipeline's tables, sources and views. Statements wait in its log; an epoch takes in what waits
(statements, and new files of the sources), brings every view up to date and commits it all at once. Between epochs
nothing runs.

From nothing to an answer:

  tussock init --store ./demo
  tussock query --store ./demo "CREATE TABLE t (k int, v int, PRIMARY KEY (k))"
  tussock query --store ./demo "CREATE MATERIALIZED VIEW total AS SELECT sum(v) AS v FROM t; INSERT INTO t VALUES (1, 10)"
  tussock epoch --store ./demo
  tussock query --store ./demo "SELECT * FROM total"
"""

_ENVIRONMENT = """\
which store: --store (a directory, or s3://bucket/prefix?endpoint=…), or --pipeline (a folder below pipelines/), or
TUSSOCK_STORE.

environment:
  TUSSOCK_STORE      the store, where neither --store nor --pipeline names one
  TUSSOCK_PIPELINES  the folder of the pipelines (default: ./pipelines)
  TUSSOCK_DEBUG=1    tracebacks of errors, and Spark's own log

exit code: 0 done; 1 an error, told in one message; 2 no such command or option; 3 another run was first, nothing of this
one is visible.
"""

class _Command(NamedTuple):
    """`first` is what the list of commands shows; `more` is wrapped as it is printed."""

    first: str
    more: str
    examples: str


_COMMANDS: dict[str, _Command] = {
    "init": _Command(
        "create an empty store",
        "In a directory that need not exist yet, or below a prefix of a bucket whose server honours conditional writes.",
        """\
tussock init --store ./demo
tussock init --store 's3://bucket/demo?endpoint=http://localhost:9000&path_style=true' --units 8""",
    ),
    "apply": _Command(
        "run a pipeline's SQL files against its store",
        "The store is made where there is none. Every statement enters the log and takes effect with the next epoch; files whose "
        "statements say IF NOT EXISTS can be applied again. A pipeline is a folder below pipelines/ with a pipeline.toml.",
        """\
tussock apply flights
tussock epoch --pipeline flights""",
    ),
    "epoch": _Command(
        "advance all views over what waits, commit, publish",
        "What waits are statements in the log and new files of the sources; with a limit on an epoch's bytes they may take several "
        "epochs. An epoch that another run began and did not end is ended first. It is safe to stop this at any point and to start it "
        "twice: what is not committed is not visible.",
        """\
tussock epoch --store ./demo
tussock epoch --pipeline flights --interval 2013-01-01 2013-01-02""",
    ),
    "query": _Command(
        "run SQL statements",
        "SELECT prints rows of tables and views as of the published epoch. CREATE, DROP, INSERT, UPDATE and DELETE enter the log and "
        "take effect with the next epoch. SHOW and DESCRIBE tell what there is, EXPLAIN how a view would be kept.",
        """\
tussock query --store ./demo "SELECT * FROM total"
tussock query --store ./demo "SHOW CREATE MATERIALIZED VIEW total"
tussock query --store ./demo --at "2026-01-01 12:00" "SELECT * FROM total"
tussock query --pipeline flights - < changes.sql""",
    ),
    "explain": _Command(
        "show how views are maintained",
        "Level by level: the fragments, what each reads and by which exchange, its operators, and its state tables with their keys.",
        """\
tussock explain --pipeline flights
tussock explain --pipeline flights worst_routes
tussock explain --store ./demo "SELECT k % 10 AS d, count(*) AS n FROM t GROUP BY k % 10\"""",
    ),
    "show": _Command(
        "list sources, tables and views",
        "With their columns; also those that wait for their first epoch.",
        "tussock show --store ./demo views",
    ),
    "inspect": _Command(
        "look inside a store",
        "Its versions, its SSTs, and the rows of its state tables.",
        "tussock inspect versions --store ./demo",
    ),
    "inspect versions": _Command(
        "the newest versions, and what each holds",
        "A version is what one commit made: its epoch, the published one, its SSTs and how far it has read the log.",
        "tussock inspect versions --store ./demo --last 5",
    ),
    "inspect ssts": _Command(
        "the SSTs of the newest version, level by level",
        "With their sizes, their rows, and the state tables that have rows in them.",
        "tussock inspect ssts --store ./demo",
    ),
    "inspect rows": _Command(
        "a state table's rows",
        "Without a table: the list of state tables, by number. A relation's name stands for the table of its own rows.",
        """\
tussock inspect rows --store ./demo
tussock inspect rows --store ./demo 4 --limit 100""",
    ),
    "barrier": _Command(
        "the epoch that is begun and not committed; ways past an input it can't take",
        "A barrier pins what its epoch takes in. While it is open, every run takes exactly that; when something of it can't be taken, "
        "abandon it.",
        "tussock barrier show --store ./demo",
    ),
    "barrier show": _Command(
        "what the open barrier pins",
        "The entries of the log and the files that the epoch takes in, and what is left out of it.",
        "tussock barrier show --store ./demo",
    ),
    "barrier abandon": _Command(
        "go around an input that can't be taken",
        "Puts another barrier in the open one's place that differs in what the options say. Nothing committed is touched, and what is "
        "not named is taken as before.",
        """\
tussock barrier abandon --store ./demo --skip-file /data/2013-01-07.csv
tussock barrier abandon --store ./demo --drop ratio
tussock barrier abandon --store ./demo --pause ratio""",
    ),
    "compact": _Command(
        "merge what epochs wrote, so that reads touch few objects",
        "Takes what is due, task by task, until nothing is, and says what the store's shape costs. Old versions of rows that no reader can "
        "name go, and rows of dropped tables. Safe at any time, beside epochs, readers, vacuums and other compactors.",
        """\
tussock compact --store ./demo --dry-run
tussock compact --store ./demo""",
    ),
    "vacuum": _Command(
        "let go of old epochs and remove objects that are of no use",
        "Epochs that neither option keeps can no longer be read; of a pipeline, its pipeline.toml says what is usually kept. What no "
        "reader can need then, and nobody can commit any more, is removed. "
        "Safe at any time, beside epochs, compactions, readers and other vacuums.",
        """\
tussock vacuum --store ./demo --dry-run
tussock vacuum --store ./demo --keep 7d --keep-epochs 10""",
    ),
    "scrub": _Command(
        "read the whole store and name what is damaged or missing",
        "Checks every byte: the log, its snapshots, and all SSTs in use. Says which tables and keys damage costs, and what can still be "
        "read. Changes nothing.",
        "tussock scrub --store ./demo",
    ),
    "pin": _Command(
        "keep an old epoch readable",
        "A pin holds an epoch's rows against vacuum until it is removed, or its time is over and a vacuum comes by.",
        "tussock pin list --store ./demo",
    ),
    "pin add": _Command(
        "hold the published epoch, or another one that can be read",
        "What it prints ends in the pin's holder, by which it is removed.",
        "tussock pin add --store ./demo --for 30d",
    ),
    "pin list": _Command(
        "the pins there are, those of running readers included",
        "With the epoch each holds, and until when.",
        "tussock pin list --store ./demo",
    ),
    "pin remove": _Command(
        "let go of a pin",
        "The epoch can be read on until a vacuum comes by.",
        "tussock pin remove --store ./demo host-4711-0a1b2c3d4e5f/0",
    ),
}


def build_parser(runs: Mapping[str, Run]) -> argparse.ArgumentParser:
    """The parser of the command line; what it parses carries `run`, the function of the chosen command.

    Args:
        runs: command (`epoch`, `inspect rows`) -> its function.
    """
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("tussock", description=_OVERVIEW, epilog=_ENVIRONMENT, formatter_class=raw)
    added = _add_commands(parser, runs)

    added["init"].add_argument("--vnodes", type=int, default=256, metavar="N", help="virtual nodes, a power of two, for good (default 256)")
    added["init"].add_argument("--units", type=int, default=2, metavar="N", help="parallel units to start with (default 2)")
    added["init"].add_argument("--time-zone", default="UTC", metavar="ZONE", help="time zone of all SQL, for good (default UTC)")

    added["apply"].add_argument("pipeline", metavar="PIPELINE", help="name of a folder below pipelines/")

    interval = "of sources with {start:…} or {end:…} in their path, only this data interval's files (ISO 8601)"
    added["epoch"].add_argument("--interval", nargs=2, metavar=("START", "END"), help=interval)
    added["epoch"].add_argument("--hold", action="store_true", help="commit without publishing: readers go on seeing the epoch before")

    added["query"].add_argument("sql", metavar="SQL", help="statements separated by `;`, or - for standard input")
    when = added["query"].add_mutually_exclusive_group()
    when.add_argument("--epoch", type=int, metavar="E", help="read at this epoch instead of the published one (one SELECT)")
    when.add_argument("--at", metavar="TIME", help="read as of this moment: ISO 8601, local time of the store unless it has an offset")

    added["explain"].add_argument("what", nargs="*", metavar="VIEW|SELECT", help="a view's name or a SELECT; all views when left out")

    kinds = ["sources", "tables", "views", "relations"]
    added["show"].add_argument("what", nargs="?", default="relations", choices=kinds, help="one kind; all of them when left out")

    added["inspect versions"].add_argument("--last", type=int, default=20, metavar="N", help="how many (default 20)")
    added["inspect rows"].add_argument("table", nargs="?", metavar="TABLE", help="a state table's number, or a relation's name")
    added["inspect rows"].add_argument("--limit", type=int, default=20, metavar="N", help="rows to print (default 20)")
    added["inspect rows"].add_argument("--epoch", type=int, metavar="E", help="as of this epoch")

    left = added["barrier abandon"]
    left.add_argument("--skip-file", action="append", default=[], metavar="PATH", help="count this file as taken without reading it")
    left.add_argument("--repin-file", action="append", default=[], metavar="PATH", help="take this file as it is now")
    left.add_argument("--skip-entry", action="append", default=[], type=int, metavar="N", help="do not replay this entry of the log")
    left.add_argument("--drop", action="append", default=[], metavar="VIEW", help="drop this view and what reads it")
    pause = "keep this view, and those that read it, at the rows they have; to go on with them, drop and create them"
    left.add_argument("--pause", action="append", default=[], metavar="VIEW", help=pause)
    left.add_argument("--take-log", action="store_true", help="also take the statements since, so that an UPDATE or DELETE corrects a row")

    add_compaction_arguments(added["compact"])
    add_vacuum_arguments(added["vacuum"])
    added["scrub"].add_argument("--threads", type=int, default=2, metavar="N", help="SSTs read at once, each held in memory (default 2)")
    added["pin add"].add_argument("--epoch", type=int, metavar="E", help="this epoch instead of the published one")
    added["pin add"].add_argument("--for", dest="span", default="7d", metavar="SPAN", help="how long, such as 36h or 7d (default 7d)")
    added["pin remove"].add_argument("holder", metavar="HOLDER", help="as `tussock pin list` shows it")
    return parser


def _add_commands(parser: argparse.ArgumentParser, runs: Mapping[str, Run]) -> dict[str, argparse.ArgumentParser]:
    """A parser per command, each with its text, its function and the choice of a store; commands of two words below the first one's."""
    added: dict[str, argparse.ArgumentParser] = {}
    groups = {"": parser.add_subparsers(title="commands", metavar="COMMAND", required=True)}
    for name, (first, more, examples) in _COMMANDS.items():
        group, _, word = name.rpartition(" ")
        added[name] = groups[group].add_parser(
            word,
            help=first,
            description=f"{first[0].upper()}{first[1:]}.\n\n{textwrap.fill(more, 100)}",
            epilog="examples:\n" + textwrap.indent(examples, "  "),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if any(other.startswith(f"{name} ") for other in _COMMANDS):
            groups[name] = added[name].add_subparsers(title="what", metavar="WHAT", required=True)
            continue
        added[name].set_defaults(run=runs[name])
        if name != "apply":  # it names its pipeline
            where = added[name].add_mutually_exclusive_group()
            where.add_argument("--store", metavar="URI", help="the store's address (default: $TUSSOCK_STORE)")
            where.add_argument("--pipeline", metavar="NAME", help="the pipeline whose store it is")
    return added
