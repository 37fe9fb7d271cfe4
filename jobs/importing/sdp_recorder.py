"""Run the Python files of a declarative pipeline against a recorder.

The files import `pyspark.pipelines`, or `dlt` of Databricks. Inside `recording`, both names mean a module whose
decorators and functions record datasets and flows. The functions under the decorators run later (sdp_project.py), when
the columns of the relations that they read are known.
"""

import importlib
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.machinery import PathFinder
from pathlib import Path
from types import CellType, FunctionType, ModuleType
from typing import Any

from pyspark.sql import Column, DataFrame

from tussock.jobs.importing.project import LeftOut, ProjectPlace
from tussock.jobs.importing.sdp_spec import path_within
from tussock.jobs.importing.sdp_words import (
    NO_ONCE,
    NOTE_ON_RIGHTS,
    ChangesWords,
    DatasetKind,
    DatasetWords,
    Expectation,
    Violation,
    WrittenQuery,
)
from tussock.jobs.logical.nodes import Place
from tussock.jobs.logical.quoting import quote_name
from tussock.jobs.settings.user_files import ENCODING
from tussock.statestore.errors import InputError

QueryFunction = Callable[[], DataFrame]
ToQuery = Callable[[QueryFunction], QueryFunction]
SqlOfColumn = Callable[[Column], str]
_EXPECTATIONS = "__tussock_expectations__"  # an attribute of a decorated function
_OPEN = "pyspark.pipelines"
_MODULES = ("dlt", _OPEN)
_KNOWN_OF_FLOWS = {"name", "flow_name", "comment", "once", "spark_conf"}  # arguments that do not change the rows
_GENERATED = re.compile(r"(?:^|,)\s*`?(\w+)`?[^,]*\bGENERATED\s+(?:ALWAYS|BY)\b", re.IGNORECASE)


class PythonFileError(InputError):
    """A Python file of the project cannot be run."""

    file: str
    reason: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file} cannot be run: {self.reason}"


@dataclass(frozen=True, slots=True)
class FrameQuery:
    """A function that returns a DataFrame."""

    function: QueryFunction
    place: Place


@dataclass(frozen=True, slots=True)
class RecordedDataset:
    """A dataset of a Python file. `query`: None if only flows fill it."""

    words: DatasetWords
    file: ProjectPlace
    query: FrameQuery | None


@dataclass(frozen=True, slots=True)
class RecordedAppend:
    """A flow of a Python file that appends rows."""

    target: tuple[str, ...]
    file: ProjectPlace
    query: FrameQuery
    once: bool


@dataclass(frozen=True, slots=True)
class RecordedChanges:
    """A flow of changes of a Python file."""

    words: ChangesWords
    file: ProjectPlace


@dataclass(slots=True)
class Recorder:
    """Receives the definitions of the files.

    Args:
        root: the project's folder.
        sql_of_column: the SQL of a Column.
        helpers: the modules of the project that its files imported, in any order.
    """

    root: Path
    sql_of_column: SqlOfColumn
    helpers: set[Path] = field(default_factory=set)
    datasets: list[RecordedDataset] = field(default_factory=list)
    appends: list[RecordedAppend] = field(default_factory=list)
    changes: list[RecordedChanges] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    settings: list[tuple[str, str, ProjectPlace]] = field(default_factory=list)  # `spark_conf` of datasets and flows
    _waiting: list[tuple[str, DatasetKind, Any, ProjectPlace, QueryFunction, Mapping[str, Any]]] = field(
        default_factory=list
    )

    def run_file(self, path: Path, variables: Mapping[str, object]) -> None:
        """Run one file. `variables`: its globals, such as `spark`.

        Raises: PythonFileError.
        """
        module = ModuleType(path.stem)
        module.__file__ = str(path)
        module.__dict__.update(variables)
        try:
            exec(compile(path.read_text(encoding=ENCODING), str(path), "exec"), module.__dict__)
        except (Exception, SystemExit) as err:  # the code of the user may raise anything
            raise PythonFileError(path_within(path, self.root), describe_error(err), _line_of(err, path)) from err
        finally:
            self._settle_datasets()

    def to_module(self, name: str) -> ModuleType:
        """The module that the files import. Open Spark runs a function when it defines it, and `dlt` later."""
        module = ModuleType(name, "Records the definitions of a declarative pipeline.")
        to_query = _as_defined if name == _OPEN else _as_it_is
        table = partial(self._decorate, DatasetKind.STREAMING_TABLE, to_query)
        view = partial(self._decorate, DatasetKind.TEMPORARY_VIEW, to_query)
        known: dict[str, Any] = {
            "table": table,
            "create_table": table,
            "materialized_view": partial(self._decorate, DatasetKind.MATERIALIZED_VIEW, to_query),
            "temporary_view": view,
            "view": view,
            "append_flow": partial(self._append_flow, to_query),
            "create_streaming_table": self._create_streaming_table,
            "create_streaming_live_table": self._create_streaming_table,
            "create_target_table": self._create_streaming_table,
            "create_auto_cdc_flow": self._create_changes,
            "apply_changes": self._create_changes,
            "create_auto_cdc_from_snapshot_flow": self._create_snapshots,
            "apply_changes_from_snapshot": self._create_snapshots,
            "create_sink": self._create_sink,
            "foreach_batch_sink": self._leave_out("sink"),
            "on_event_hook": self._leave_out("event hook"),
            "expect": partial(_expect, Violation.WARN),
            "expect_or_drop": partial(_expect, Violation.DROP),
            "expect_or_fail": partial(_expect, Violation.FAIL),
            "expect_all": partial(_expect_all, Violation.WARN),
            "expect_all_or_drop": partial(_expect_all, Violation.DROP),
            "expect_all_or_fail": partial(_expect_all, Violation.FAIL),
        }
        module.__dict__.update(known)
        return module

    # --- datasets -----------------------------------------------------------------------------------------------------

    def _decorate(self, kind: DatasetKind, to_query: ToQuery, function: Any = None, **options: Any) -> Any:
        """The decorator of a query function, with or without arguments."""

        def record(decorated: Any) -> Any:
            name = str(options.get("name") or decorated.__name__)
            # An object without code has the place of this call.
            self._waiting.append((name, kind, decorated, self._place_of(decorated), to_query(decorated), options))
            return decorated

        if isinstance(function, str):  # the first argument is the name
            options["name"], function = function, None
        return record if function is None else record(function)

    def _settle_datasets(self) -> None:
        """Record the decorated functions once all decorators of their file have run."""
        for name, kind, function, place, query, options in self._waiting:
            expectations = (*_expectations_of(options), *getattr(function, _EXPECTATIONS, ()))
            words = _words_of(name, kind, place, expectations, options)
            self._note_settings(options, place)
            self.datasets.append(RecordedDataset(words, place, FrameQuery(query, words.place)))
        self._waiting.clear()

    def _create_streaming_table(self, name: str, **options: Any) -> None:
        place = self._caller_place()
        words = _words_of(name, DatasetKind.STREAMING_TABLE, place, tuple(_expectations_of(options)), options)
        self._note_settings(options, place)
        self.datasets.append(RecordedDataset(words, place, None))

    def _create_sink(self, name: str, format: str, options: Mapping[str, str] | None = None) -> None:
        """Record the rows of a sink as a dataset. Only the user can say where a pipeline publishes them."""
        place = self._caller_place()
        words = DatasetWords(
            _parts_of(name), DatasetKind.STREAMING_TABLE, Place(place.line, 1), comment=f"rows for a sink of {format}"
        )
        self.datasets.append(RecordedDataset(words, place, None))
        reason = f"its rows are the view {name}; name its place in pipeline.toml: [[publish]] with relations"
        self.left_out.append(LeftOut(f"sink of {format}", name, place, reason))

    # --- flows --------------------------------------------------------------------------------------------------------

    def _append_flow(
        self, to_query: ToQuery, *, target: str, once: bool = False, **options: Any
    ) -> Callable[[QueryFunction], QueryFunction]:
        def record(function: QueryFunction) -> QueryFunction:
            place = self._place_of(function)
            self._note_settings(options, place)
            self.appends.append(
                RecordedAppend(
                    _parts_of(target), place, FrameQuery(to_query(function), Place(place.line, 1)), bool(once)
                )
            )
            return function

        return record

    def _create_changes(
        self,
        target: str,
        source: str,
        keys: Sequence[str | Column],
        sequence_by: str | Column,
        ignore_null_updates: bool = False,
        apply_as_deletes: str | Column | None = None,
        apply_as_truncates: str | Column | None = None,
        column_list: Sequence[str | Column] | None = None,
        except_column_list: Sequence[str | Column] | None = None,
        stored_as_scd_type: int | str | None = None,
        track_history_column_list: Sequence[str | Column] | None = None,
        track_history_except_column_list: Sequence[str | Column] | None = None,
        **options: Any,
    ) -> None:
        refusal = NO_ONCE if options.get("once") else ""
        if unknown := sorted(options.keys() - _KNOWN_OF_FLOWS):  # it may decide which rows are stored
            refusal = f"its argument {unknown[0]} is unknown, so its rows are too. Remove it, or write AUTO CDC in SQL"
        clauses = [f"KEYS ({self._columns_text(keys)})"]
        if ignore_null_updates:
            clauses.append("IGNORE NULL UPDATES")
        if apply_as_deletes is not None:
            clauses.append(f"APPLY AS DELETE WHEN {self._text_of(apply_as_deletes)}")
        if apply_as_truncates is not None:
            clauses.append(f"APPLY AS TRUNCATE WHEN {self._text_of(apply_as_truncates)}")
        clauses.append(f"SEQUENCE BY {self._text_of(sequence_by)}")
        clauses += self._choice_text("COLUMNS", column_list, except_column_list)
        scd_type = str(stored_as_scd_type or 1)
        clauses.append(f"STORED AS SCD TYPE {scd_type}")
        if scd_type == "2":
            clauses += self._choice_text(
                "TRACK HISTORY ON", track_history_column_list, track_history_except_column_list
            )
        place = self._caller_place()
        words = ChangesWords(
            _parts_of(target),
            Place(place.line, 1),
            WrittenQuery(".".join(map(quote_name, _parts_of(source))), Place(place.line, 1)),
            "\n".join(clauses),
            refusal=refusal,
        )
        self.changes.append(RecordedChanges(words, place))

    def _create_snapshots(self, target: str, *_: Any, **__: Any) -> None:
        reason = (
            "the versions of its snapshots come from a Python function, or from the moments at which the pipeline ran. "
            "Give each delivery a column with its version, and write AUTO CDC FROM SNAPSHOT in SQL"
        )
        place = self._caller_place()
        words = ChangesWords(_parts_of(target), Place(place.line, 1), WrittenQuery("", Place(1, 1)), "", refusal=reason)
        self.changes.append(RecordedChanges(words, place))

    def _note_settings(self, options: Mapping[str, Any], place: ProjectPlace) -> None:
        self.settings += [(str(k), str(v), place) for k, v in (options.get("spark_conf") or {}).items()]

    def _columns_text(self, columns: Sequence[str | Column]) -> str:
        return ", ".join(quote_name(c) if isinstance(c, str) else self._text_of(c) for c in columns)

    def _choice_text(
        self, clause: str, chosen: Sequence[str | Column] | None, omitted: Sequence[str | Column] | None
    ) -> list[str]:
        if chosen:
            return [f"{clause} ({self._columns_text(chosen)})"]
        return [f"{clause} * EXCEPT ({self._columns_text(omitted)})"] if omitted else []

    def _text_of(self, expression: str | Column) -> str:
        return expression if isinstance(expression, str) else self.sql_of_column(expression)

    # --- other definitions --------------------------------------------------------------------------------------------

    def _leave_out(self, kind: str) -> Callable[..., Any]:
        def record(*arguments: Any, **options: Any) -> Any:
            name = str(options.get("name") or next((a for a in arguments if isinstance(a, str)), kind))
            reason = "write it as [publish] of pipeline.toml" if kind == "sink" else "it has no counterpart"
            self.left_out.append(LeftOut(kind, name, self._caller_place(), reason))
            return lambda function: function

        return record

    def _place_of(self, function: Any) -> ProjectPlace:
        written = inspect.unwrap(function)
        while isinstance(written, partial):
            written = inspect.unwrap(written.func)
        code = getattr(written, "__code__", None)  # an object with __call__ has none
        if code is None:
            return self._caller_place()
        return self._relative_place(code.co_filename, code.co_firstlineno)

    def _caller_place(self) -> ProjectPlace:
        """The place in the project's file that calls a function of the module."""
        frame = inspect.currentframe()
        while frame is not None and frame.f_code.co_filename == __file__:
            frame = frame.f_back
        return ProjectPlace("") if frame is None else self._relative_place(frame.f_code.co_filename, frame.f_lineno)

    def _relative_place(self, file: str, line: int) -> ProjectPlace:
        return ProjectPlace(path_within(Path(file), self.root), line)


@dataclass(frozen=True, slots=True)
class _HelperFinder:
    """Notes the files of the modules that are imported from the folders. It also notes those that raise an error."""

    folders: Sequence[Path]
    helpers: set[Path]

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        """Note a file, and leave the import to the other finders."""
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.origin is not None and _is_helper(spec.origin, self.folders):
            self.helpers.add(Path(spec.origin))


def _is_helper(file: str, folders: Sequence[Path]) -> bool:
    """Whether a module belongs to the project, and not to an environment in one of its folders."""
    path = Path(file)
    return "site-packages" not in path.parts and any(path.is_relative_to(folder) for folder in folders)


@contextmanager
def recording(
    recorder: Recorder,
    folders: Sequence[Path],
    read: Callable[..., DataFrame],
    read_stream: Callable[..., DataFrame] | None = None,
) -> Iterator[None]:
    """Let the files import the recorder's module inside the block.

    Args:
        folders: where the files import their own modules from.
        read: reads a dataset by name, as `dlt.read`.
        read_stream: reads it as a stream; None: as `read`.
    """
    import pyspark

    stream = read_stream or read
    before = {name: sys.modules.get(name) for name in _MODULES}
    had, known, path = getattr(pyspark, "pipelines", None), set(sys.modules), list(sys.path)
    finder = _HelperFinder(folders, recorder.helpers)
    try:
        sys.meta_path.insert(0, finder)
        for name in _MODULES:
            sys.modules[name] = recorder.to_module(name)
            sys.modules[name].__dict__.update({"read": read, "read_stream": stream, "readStream": stream})
        pyspark.__dict__["pipelines"] = sys.modules[_OPEN]
        sys.path[:0] = [str(folder) for folder in folders]
        importlib.invalidate_caches()
        yield
    finally:
        sys.meta_path.remove(finder)
        sys.path[:] = path
        for name in _MODULES:
            _restore_module(name, before[name])
        if had is None:
            pyspark.__dict__.pop("pipelines", None)
        else:
            pyspark.__dict__["pipelines"] = had
        for name in set(sys.modules) - known:  # the project's modules must not shadow those of the next project
            file = getattr(sys.modules[name], "__file__", None) or ""
            if _is_helper(file, folders):
                del sys.modules[name]


def _restore_module(name: str, before: ModuleType | None) -> None:
    if before is None:
        sys.modules.pop(name, None)
    else:
        sys.modules[name] = before


def describe_error(err: BaseException) -> str:
    """The first line of an error of the project's code."""
    lines = str(err).strip().splitlines()
    return f"{type(err).__name__}: {lines[0]}" if lines else type(err).__name__


def _line_of(err: BaseException, path: Path) -> int:
    """The last line of a file at which an error passed; 0 if the file has no part in it."""
    if isinstance(err, SyntaxError) and err.filename == str(path):
        return err.lineno or 0
    lines = [line for frame, line in traceback.walk_tb(err.__traceback__) if frame.f_code.co_filename == str(path)]
    return (lines or [0])[-1]


class _NamesAsDefined(dict[str, Any]):
    """The globals of a file when a function was defined. Names that were defined later have their newest value."""

    def __init__(self, names: dict[str, Any]) -> None:
        super().__init__(names)
        self._names = names

    def __missing__(self, name: str) -> Any:
        return self._names[name]


def _as_defined(function: QueryFunction) -> QueryFunction:
    """A function that reads variables as they were when it was defined, for example in a loop."""
    if isinstance(function, partial):
        return partial(_as_defined(function.func), *function.args, **function.keywords)
    if not isinstance(function, FunctionType):
        return function
    cells = tuple(_cell_as_defined(cell) for cell in function.__closure__ or ())
    bound = FunctionType(
        function.__code__, _NamesAsDefined(function.__globals__), function.__name__, function.__defaults__, cells
    )
    bound.__kwdefaults__ = function.__kwdefaults__
    return bound


def _cell_as_defined(cell: CellType) -> CellType:
    try:
        return CellType(cell.cell_contents)
    except ValueError:  # its variable has no value yet
        return cell


def _as_it_is(function: QueryFunction) -> QueryFunction:
    return function


def _words_of(
    name: str, kind: DatasetKind, place: ProjectPlace, expectations: tuple[Expectation, ...], options: Mapping[str, Any]
) -> DatasetWords:
    """A dataset with the arguments of its decorator or of its function."""
    schema = options.get("schema")
    generated = _GENERATED.search(schema) if isinstance(schema, str) else None
    return DatasetWords(
        _parts_of(name),
        kind,
        Place(place.line, 1),
        expectations=expectations,
        comment=str(options.get("comment") or ""),
        notes=(NOTE_ON_RIGHTS,) if options.get("row_filter") else (),
        generated=generated[1] if generated is not None else "",
    )


def _parts_of(name: str) -> tuple[str, ...]:
    return tuple(part.strip("`") for part in name.split("."))


def _expect(violation: Violation, name: str, condition: str) -> Callable[[Any], Any]:
    return _expect_all(violation, {name: condition})


def _expect_all(violation: Violation, expectations: Mapping[str, str]) -> Callable[[Any], Any]:
    def add(function: Any) -> Any:
        added = tuple(Expectation(name, condition, violation) for name, condition in expectations.items())
        setattr(function, _EXPECTATIONS, (*getattr(function, _EXPECTATIONS, ()), *added))
        return function

    return add


def _expectations_of(options: Mapping[str, Any]) -> Iterator[Expectation]:
    """The expectations in the arguments of a function that creates a table."""
    for key, violation in (
        ("expect_all", Violation.WARN),
        ("expect_all_or_drop", Violation.DROP),
        ("expect_all_or_fail", Violation.FAIL),
    ):
        for name, condition in (options.get(key) or {}).items():
            yield Expectation(name, condition, violation)
