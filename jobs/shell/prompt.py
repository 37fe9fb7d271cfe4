"""The prompt of `tussock shell`: reads statements, runs them, and prints their answers.

A Session runs the statements in Spark's SQL, and the first one starts Spark. If DuckDB is chosen, it answers SELECT at
the published epoch, in its SQL and without a JVM.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import pyarrow as pa

from tussock.jobs.catalog.statement_log import pending_catalog
from tussock.jobs.catalog.store_zone import store_zone
from tussock.jobs.logical.errors import SqlError
from tussock.jobs.logical.script import SELECT_BEGINS, is_select
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.logical.statements import Show, Shown
from tussock.jobs.logical.tokens import tokens_of
from tussock.jobs.reading.duck_query import duck_rows
from tussock.jobs.reading.stored_rows import StoredRows
from tussock.jobs.settings.catalogs import without_catalogs
from tussock.jobs.statements.show import answer_show, hidden_columns
from tussock.jobs.texts.table import align_cells, text_table
from tussock.statestore.errors import TussockError
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.types import arrow_type

if TYPE_CHECKING:
    from tussock.jobs.session import Session

_BY_SPARK = "Spark runs the statements, and the first one starts it. \\duckdb lets DuckDB answer SELECT without Spark."
_BY_DUCKDB = (
    "DuckDB answers SELECT over the published rows, in its SQL. Spark runs all other statements. \\duckdb ends this."
)
HELP = """\
\\duckdb    let DuckDB answer SELECT, in its SQL and without Spark, or stop it
\\d         list sources, tables and views
\\d NAME    list the columns of a relation, also hidden ones
\\timing    print the time of each statement, or stop it
\\q         end
End each statement with ; and use the Tab key to complete names."""
_HISTORY_LINES = 1000


@dataclass(slots=True)
class Prompt:
    """One run of the shell.

    Args:
        session: opens the session that runs statements in Spark's SQL.
        out: receives answers and errors.
        duckdb: whether DuckDB answers SELECT.
        failed: whether a statement or command of the run has failed or was cancelled.
        catalogs: `[catalogs]` of the pipeline, for DuckDB; `session` has its own.
    """

    meta: MetaStore
    session: "Callable[[], Session]"
    out: TextIO
    duckdb: bool = False
    timing: bool = False
    failed: bool = False
    catalogs: Mapping[str, str] = field(default_factory=dict)
    _opened: "Session | None" = None
    _stored: StoredRows = field(init=False)

    def __post_init__(self) -> None:
        self._stored = StoredRows(self.meta)

    @property
    def banner(self) -> str:
        """The first lines for a person."""
        return f"{_BY_DUCKDB if self.duckdb else _BY_SPARK}\n\\? lists the commands."

    def run(self, lines: Iterator[str]) -> None:
        """Run the statements and commands of these lines until they end or \\q. Errors are printed."""
        waiting = ""
        for line in lines:
            if not waiting.strip() and line.strip().startswith("\\"):
                if line.strip() == "\\q":
                    return
                self._run_guarded(self._run_command, line.strip())
                continue
            waiting += line
            if not _is_complete(waiting):
                continue
            self._run_guarded(self._run_statement, waiting)
            waiting = ""
        if waiting.strip():
            self._run_guarded(self._run_statement, waiting)

    def close(self) -> None:
        """Close the session, if a statement has opened it."""
        if self._opened is not None:
            self._opened.close()

    def require_committed(self) -> None:
        """Raise TransactionError if a transaction is open, which `close` rolls back."""
        if self._opened is not None:
            self._opened.require_committed()

    def names(self) -> list[str]:
        """The names to complete: relations, their columns, also hidden ones, and the fields of structs."""
        live = [r for r in pending_catalog(self.meta, self.meta.read_latest()).live_relations() if not r.is_internal]
        columns = [(c.name, c.type) for r in live for c in r.columns]
        columns += [column for r in live for column in hidden_columns(r).items()]
        fields = (f"{name}.{field.name}" for name, kind in columns for field in _struct_fields(kind))
        return sorted({*(r.name for r in live), *(name for name, _ in columns), *fields})

    def _run_guarded(self, run: Callable[[str], None], text: str) -> None:
        started = time.perf_counter()
        try:
            run(text)
        except TussockError as err:
            self.failed = True
            print("\n  ".join([f"error: {err}", *getattr(err, "__notes__", ())]), file=self.out)
        except KeyboardInterrupt:
            self.failed = True
            print("cancelled", file=self.out)
        if self.timing:
            print(f"{(time.perf_counter() - started) * 1000:,.0f} ms", file=self.out)

    def _run_command(self, text: str) -> None:
        words = text.rstrip(";").split()
        match words:
            case ["\\?"]:
                print(HELP, file=self.out)
            case ["\\duckdb"]:
                self.duckdb = not self.duckdb
                print(_BY_DUCKDB if self.duckdb else _BY_SPARK, file=self.out)
            case ["\\timing"]:
                self.timing = not self.timing
            case ["\\d", *name] if len(name) <= 1:
                what = Show(Shown.COLUMNS, name[0]) if name else Show(Shown.RELATIONS)
                shown = answer_show(pending_catalog(self.meta, self.meta.read_latest()), what, hidden=True)
                print(
                    align_cells([tuple(shown), *zip(*shown.values(), strict=True)], [False] * len(shown)), file=self.out
                )
            case _:
                self.failed = True
                print(f"error: there is no command {text}\n{HELP}", file=self.out)

    def _run_statement(self, text: str) -> None:
        if all(token.text == ";" for token in tokens_of(SourceText(text))):
            return
        zone = store_zone(self.meta)
        if self.duckdb and is_select(text):
            sql = without_catalogs(text, self.catalogs)
            with duck_rows(self.meta.objects, self._stored, sql, self.meta.settings.time_zone) as rows:
                print(text_table(rows.read_all(), zone), file=self.out)
            return
        if self._opened is None:
            self._opened = self.session()
        for answer in self._opened.run(text):
            print(answer.message if answer.table is None else text_table(answer.table, zone), file=self.out)


def _is_complete(text: str) -> bool:
    """Whether a text ends with a semicolon outside of strings and comments, or has no statement."""
    try:
        tokens = tokens_of(SourceText(text))
    except SqlError:  # an open string or comment
        return False
    return not tokens or tokens[-1].text == ";"


def typed_lines(names: Callable[[], list[str]], history: Path) -> Iterator[str]:
    """The lines that a person types, with a history in a file and completion of names. Ctrl-C discards a line."""
    try:
        import readline
    except ImportError:  # not on every system: lines without history and completion
        yield from _read_lines()
        return
    readline.set_history_length(_HISTORY_LINES)
    if history.exists():
        readline.read_history_file(history)
    completions: list[str] = []

    def complete_text(text: str, number: int) -> str | None:
        if number == 0:
            completions[:] = find_completions(text, names())
        return completions[number] if number < len(completions) else None

    readline.set_completer(complete_text)
    readline.parse_and_bind("tab: complete")
    try:
        yield from _read_lines()
    finally:
        history.parent.mkdir(parents=True, exist_ok=True)
        readline.write_history_file(history)


def find_completions(text: str, names: Sequence[str]) -> list[str]:
    """The names and words that begin with a text. After `alias.`, the names that begin with the rest."""
    if completions := [n for n in chain(names, sorted(SELECT_BEGINS)) if n.lower().startswith(text.lower())]:
        return completions
    qualifier, dot, rest = text.partition(".")
    return [f"{qualifier}.{n}" for n in names if n.lower().startswith(rest.lower())] if dot else []


def _struct_fields(kind: str) -> Iterable[pa.Field]:
    """The fields of a struct type."""
    return list(arrow_type(kind)) if kind.startswith("struct<") else ()


def _read_lines() -> Iterator[str]:
    while True:
        try:
            yield input("tussock> ") + "\n"
        except KeyboardInterrupt:
            print()
        except EOFError:
            print()
            return
