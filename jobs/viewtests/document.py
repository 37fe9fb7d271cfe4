"""The files of tests of views: `tests/*.yaml` in a pipeline's folder.

    - name: revenue is quantity times price
      view: daily_sales
      now: 2026-01-03 12:00:00          # the value of now(); only for views that read it
      rows:                             # at the start, by relation; a missing column is NULL
        orders:
          - {id: 1, at: 2026-01-01 08:00:00, product: apple, quantity: 2}
        products:
          - {product: apple, category: fruit, price: 0.40}
      expect:                           # all rows of the view, in any order; only the named columns are compared
        - {day: 2026-01-01, orders: 1, revenue: 0.80}
      steps:                            # each step is one epoch
        - insert: {orders: [{id: 2, at: 2026-01-01 09:00:00, product: apple, quantity: 1}]}
          changes:
            delete: [{day: 2026-01-01, revenue: 0.80}]
            insert: [{day: 2026-01-01, revenue: 1.20}]
        - update: {products: [{where: {product: apple}, set: {price: 0.50}}]}
          expect: [{revenue: 1.50}]
        - delete: {orders: [{id: 1}]}
          expect: [{revenue: 0.50}]
        - files: {orders: {2026-01-04.csv: "id,at,product,quantity\n3,2026-01-04 10:00:00,apple,1\n"}}

Values stay texts here, because only the column's type decides their meaning (values.py).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tussock.jobs.settings.user_files import text_of
from tussock.statestore.errors import InputError, did_you_mean
from tussock.statestore.extras import extras_named

with extras_named():
    import yaml

T = TypeVar("T")

_TAG = "tag:yaml.org,2002:"
_TEST_KEYS = ("name", "view", "rows", "files", "now", "expect", "changes", "steps")
_STEP_KEYS = ("insert", "update", "delete", "files", "now", "expect", "changes")


@dataclass(frozen=True, slots=True)
class FilePlace:
    """A place in a file of tests. Both numbers count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}, column {self.column}"


class ViewTestError(InputError):
    """A file of tests is invalid at a place."""

    place: FilePlace
    finding: str
    expected: str
    hint: str = ""  # the end of the message, such as the nearest known name

    def __str__(self) -> str:
        return f"{self.place}: found {self.finding}, expected {self.expected}.{self.hint}"


@dataclass(frozen=True, slots=True)
class WrittenValue:
    """A value as written: a scalar's text, a list or the entries of a mapping; the other two are None.

    `plain`: the scalar has no quotes, so `null`, `~` and an empty text mean NULL. `is_binary`: it has the tag !!binary.
    """

    place: FilePlace
    text: str | None = None
    items: "tuple[WrittenValue, ...] | None" = None
    entries: "tuple[tuple[WrittenValue, WrittenValue], ...] | None" = None
    plain: bool = False
    is_binary: bool = False

    @property
    def is_null(self) -> bool:
        """Whether it means NULL for every type."""
        return self.plain and self.text is not None and self.text.lower() in ("", "~", "null")

    def describe_value(self) -> str:
        """The value for a message."""
        return repr(self.text) if self.text is not None else "a list" if self.entries is None else "a mapping"


@dataclass(frozen=True, slots=True)
class WrittenRow:
    """A row as written: the values of some columns, and the places of their names."""

    place: FilePlace
    values: Mapping[str, WrittenValue]
    names: Mapping[str, FilePlace]


@dataclass(frozen=True, slots=True)
class Rewrite:
    """An update: the rows that have the values of `where` get the values of `put`."""

    where: WrittenRow
    put: WrittenRow


@dataclass(frozen=True, slots=True)
class NamedItems(Mapping[str, T]):
    """Things by the name of their relation, with the places of the names."""

    things: Mapping[str, T]
    places: Mapping[str, FilePlace]

    def __getitem__(self, name: str) -> T:
        return self.things[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.things)

    def __len__(self) -> int:
        return len(self.things)


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file of a source. Its content is `text`, or the file at `path`, relative to the file of tests."""

    place: FilePlace
    name: str
    text: str = ""
    path: str | None = None


@dataclass(frozen=True, slots=True)
class WrittenChanges:
    """The expected changes of a step."""

    deleted: tuple[WrittenRow, ...]
    inserted: tuple[WrittenRow, ...]


@dataclass(frozen=True, slots=True)
class ViewStep:
    """One epoch of a test: the input, then the expectations. None: nothing is expected."""

    place: FilePlace
    insert: NamedItems[tuple[WrittenRow, ...]]
    update: NamedItems[tuple[Rewrite, ...]]
    delete: NamedItems[tuple[WrittenRow, ...]]
    files: NamedItems[tuple[WrittenFile, ...]]
    now: WrittenValue | None
    expect: tuple[WrittenRow, ...] | None
    changes: WrittenChanges | None

    @property
    def relations(self) -> dict[str, FilePlace]:
        """The relations that get rows or files, with the first place of each name."""
        places = (part.places for part in (self.files, self.delete, self.update, self.insert))
        return {name: place for part in places for name, place in part.items()}


@dataclass(frozen=True, slots=True)
class ViewTest:
    """A test: its first step contains the rows at the start."""

    place: FilePlace
    path: Path
    name: str
    view: str
    view_place: FilePlace
    steps: tuple[ViewStep, ...]


def read_tests(path: Path) -> tuple[ViewTest, ...]:
    """The tests of a file, in order. Raises ViewTestError with the place; MissingExtraError without a YAML library."""
    return _Reading(path).read_tests()


class _Reading:
    """Reads one file. `yaml.compose` keeps the text and the place of each value."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read_tests(self) -> tuple[ViewTest, ...]:
        try:
            root = yaml.compose(text_of(self._path), Loader=yaml.SafeLoader)
            value = None if root is None else self._read_value(root)
        except yaml.MarkedYAMLError as err:
            mark = err.problem_mark or err.context_mark
            place = FilePlace(str(self._path), mark.line + 1, mark.column + 1) if mark else self._start
            raise ViewTestError(place, f"an error of syntax ({err.problem})", "valid YAML") from err
        except yaml.YAMLError as err:
            raise ViewTestError(self._start, f"an error of syntax ({err})", "valid YAML") from err
        except RecursionError as err:  # an alias within the value that has its anchor
            raise ViewTestError(self._start, "values that contain themselves", "values of finite depth") from err
        if value is None:
            raise ViewTestError(self._start, "no test", "a list of tests, each with name, view, rows and expect")
        tests = tuple(self._read_test(item) for item in self._list_items(value, "a list of tests"))
        seen: set[str] = set()
        for test in tests:
            if test.name in seen:
                raise ViewTestError(test.place, f"a second test {test.name!r}", "a name that is unique in the file")
            seen.add(test.name)
        return tests

    @property
    def _start(self) -> FilePlace:
        return FilePlace(str(self._path), 1, 1)

    # --- values -------------------------------------------------------------------------------------------------------

    def _read_value(self, node: yaml.Node) -> WrittenValue:
        place = FilePlace(str(self._path), node.start_mark.line + 1, node.start_mark.column + 1)
        match node:
            case yaml.ScalarNode():
                return WrittenValue(place, node.value, plain=node.style is None, is_binary=node.tag == f"{_TAG}binary")
            case yaml.SequenceNode():
                return WrittenValue(place, items=tuple(map(self._read_value, node.value)))
            case _:
                return WrittenValue(place, entries=tuple(self._mapping_entries(node)))

    def _mapping_entries(self, node: yaml.Node) -> Iterator[tuple[WrittenValue, WrittenValue]]:
        """The entries of a mapping, with those of `<<` first unless the mapping itself has their key."""
        merged = [v for k, v in node.value if k.tag == f"{_TAG}merge"]
        own = [(self._read_value(k), self._read_value(v)) for k, v in node.value if k.tag != f"{_TAG}merge"]
        names = {key.text for key, _ in own}
        for value in merged:
            for base in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                if not isinstance(base, yaml.MappingNode):
                    written = self._read_value(base)
                    expected = "a mapping, or a list of mappings: `<<: *base` for one with the anchor `&base`"
                    raise ViewTestError(written.place, written.describe_value(), expected)
                for key, entry in self._mapping_entries(base):
                    if key.text not in names:
                        names.add(key.text)
                        yield key, entry
        yield from own

    def _list_items(self, value: WrittenValue, expected: str) -> tuple[WrittenValue, ...]:
        if value.items is None:
            raise ViewTestError(value.place, value.describe_value(), expected)
        return value.items

    def _unique_entries(self, value: WrittenValue, expected: str) -> dict[str, tuple[FilePlace, WrittenValue]]:
        """A mapping with texts as keys, which are unique."""
        if value.is_null:
            return {}
        if value.entries is None:
            raise ViewTestError(value.place, value.describe_value(), expected)
        entry_by_key: dict[str, tuple[FilePlace, WrittenValue]] = {}
        for key, entry in value.entries:
            if key.text is None:
                raise ViewTestError(key.place, f"{key.describe_value()} as a key", "a text")
            if key.text in entry_by_key:
                raise ViewTestError(key.place, f"the key {key.text!r} twice", "each key once")
            entry_by_key[key.text] = (key.place, entry)
        return entry_by_key

    def _require_other_names(self, entries: Mapping[str, tuple[FilePlace, WrittenValue]]) -> None:
        """Require that names of relations or columns differ in more than case, which Spark ignores."""
        seen: dict[str, str] = {}
        for name, (place, _) in entries.items():
            if (other := seen.setdefault(name.lower(), name)) != name:
                raise ViewTestError(place, f"the names {other!r} and {name!r}", "each name once, in any case")

    def _known_entries(
        self, value: WrittenValue, expected: str, known: tuple[str, ...]
    ) -> dict[str, tuple[FilePlace, WrittenValue]]:
        entry_by_key = self._unique_entries(value, expected)
        for key, (place, _) in entry_by_key.items():
            if key not in known:
                raise ViewTestError(place, f"the key {key!r}", f"one of {', '.join(known)}", did_you_mean(key, known))
        return entry_by_key

    def _read_text(self, value: WrittenValue, expected: str) -> str:
        if value.text is None or not value.text.strip():
            raise ViewTestError(value.place, value.describe_value(), expected)
        return value.text

    # --- parts --------------------------------------------------------------------------------------------------------

    def _read_test(self, value: WrittenValue) -> ViewTest:
        entry_by_key = self._known_entries(value, "a test: a mapping with name, view, rows and expect", _TEST_KEYS)
        for key in ("name", "view"):
            if key not in entry_by_key:
                raise ViewTestError(value.place, f"a test without {key!r}", f"{key}: …")
        steps = [self._read_step(value.place, {("insert" if k == "rows" else k): v for k, v in entry_by_key.items()})]
        if "steps" in entry_by_key:
            items = self._list_items(entry_by_key["steps"][1], "a list of steps")
            steps += [
                self._read_step(
                    item.place, self._known_entries(item, "a step: a mapping with insert, expect, …", _STEP_KEYS)
                )
                for item in items
            ]
        if all(step.expect is None and step.changes is None for step in steps):
            raise ViewTestError(value.place, "a test without an expectation", "`expect` or `changes`")
        view = entry_by_key["view"][1]
        return ViewTest(
            value.place,
            self._path,
            self._read_text(entry_by_key["name"][1], "the name of the test"),
            self._read_text(view, "the name of a view").lower(),
            view.place,
            tuple(steps),
        )

    def _read_step(self, place: FilePlace, entry_by_key: Mapping[str, tuple[FilePlace, WrittenValue]]) -> ViewStep:
        def value_of(key: str) -> WrittenValue | None:
            return entry_by_key[key][1] if key in entry_by_key else None

        expect, changes = value_of("expect"), value_of("changes")
        return ViewStep(
            place,
            self._read_named(value_of("insert"), self._read_rows),
            self._read_named(value_of("update"), self._read_rewrites),
            self._read_named(value_of("delete"), self._read_rows),
            self._read_named(value_of("files"), self._read_files),
            value_of("now"),
            None if expect is None else self._read_rows(expect),
            None if changes is None else self._read_changes(changes),
        )

    def _read_named(self, value: WrittenValue | None, read: Callable[[WrittenValue], T]) -> NamedItems[T]:
        entries = {} if value is None else self._unique_entries(value, "a mapping from relations to rows")
        self._require_other_names(entries)
        things = {name.lower(): read(entry) for name, (_, entry) in entries.items()}
        return NamedItems(things, {name.lower(): place for name, (place, _) in entries.items()})

    def _read_rows(self, value: WrittenValue) -> tuple[WrittenRow, ...]:
        if value.is_null:
            return ()
        return tuple(self._read_row(item) for item in self._list_items(value, "a list of rows, [] for none"))

    def _read_row(self, value: WrittenValue) -> WrittenRow:
        entry_by_column = self._unique_entries(value, "a row: a mapping from columns to values")
        self._require_other_names(entry_by_column)
        return WrittenRow(
            value.place,
            {k: v for k, (_, v) in entry_by_column.items()},
            {k: p for k, (p, _) in entry_by_column.items()},
        )

    def _read_rewrites(self, value: WrittenValue) -> tuple[Rewrite, ...]:
        return tuple(
            self._read_rewrite(item) for item in self._list_items(value, "a list of updates: {where: {…}, set: {…}}")
        )

    def _read_rewrite(self, value: WrittenValue) -> Rewrite:
        entry_by_key = self._known_entries(value, "an update: {where: {…}, set: {…}}", ("where", "set"))
        for key in ("where", "set"):
            if key not in entry_by_key:
                raise ViewTestError(value.place, f"an update without {key!r}", "{where: {…}, set: {…}}")
        return Rewrite(self._read_row(entry_by_key["where"][1]), self._read_row(entry_by_key["set"][1]))

    def _read_files(self, value: WrittenValue) -> tuple[WrittenFile, ...]:
        if value.entries is None:
            paths = self._list_items(value, "a list of paths, or a mapping from file names to contents")
            texts = [(p.place, self._read_text(p, "the path of a file")) for p in paths]
            return tuple(WrittenFile(place, Path(text).name, path=text) for place, text in texts)
        content_by_name = self._unique_entries(value, "a mapping from file names to contents")
        files = []
        for name, (place, content) in content_by_name.items():
            if Path(name).name != name or name.startswith((".", "_")):
                raise ViewTestError(place, repr(name), "a file name without a folder, . or _ at its start")
            if content.text is None:
                raise ViewTestError(content.place, content.describe_value(), "the content of the file as a text")
            files.append(WrittenFile(place, name, content.text))
        return tuple(files)

    def _read_changes(self, value: WrittenValue) -> WrittenChanges:
        entry_by_key = self._known_entries(value, "changes: {delete: [rows], insert: [rows]}", ("delete", "insert"))
        rows = {key: self._read_rows(entry) for key, (_, entry) in entry_by_key.items()}
        return WrittenChanges(rows.get("delete", ()), rows.get("insert", ()))
