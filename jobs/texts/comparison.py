"""A comparison as text for a terminal, as Markdown for a comment on a pull request, and as JSON."""

from collections.abc import Iterator, Sequence

import msgspec
import pyarrow as pa

from tussock.jobs.compare.record import DIFFERENCE, SIDE, DifferenceKind, RelationDifference, StoreDifference
from tussock.jobs.settings.row_values import HINT, prints_rows
from tussock.jobs.texts.status import bytes_text
from tussock.jobs.texts.table import align_cells, cell_texts

_SIGNS = {"from": "-", "to": "+"}
_MOST_CELL = 40  # characters of a value in a comment
_IN_MARKDOWN = {ord("|"): "\\|", ord("\n"): " ", ord("\r"): " ", ord("<"): "&lt;", ord(">"): "&gt;", ord("`"): "'"}


def comparison_text(comparison: StoreDifference, time_zone: str) -> str:
    """The views that differ with their counts, columns and samples, then the others."""
    differing, equal = _split_views(comparison)
    lines = [f"from {_side_text(comparison, 0)}, to {_side_text(comparison, 1)}: {headline(comparison)}"]
    for view in differing:
        lines += ["", f"{view.name}: {counts_text(view)}"]
        lines += [f"  {note}" for note in notes_of(view)]
        if view.columns:
            cells = [
                (c.name, f"{c.rows:,} {'row' if c.rows == 1 else 'rows'}", share_text(c.share)) for c in view.columns
            ]
            lines += [f"  {line}" for line in align_cells(cells, [False, True, True]).split("\n")]
        lines += [f"  {line}" for line in _sample_lines(view, time_zone)]
    lines += ["", *_other_lines(comparison, equal)] if differing else _other_lines(comparison, equal)
    read = comparison.requests
    lines.append(f"read {bytes_text(read.bytes_in)} in {read.get:,} requests")
    return "\n".join(lines)


def headline(comparison: StoreDifference) -> str:
    """The result in one phrase."""
    differing, _ = _split_views(comparison)
    if not comparison.differs:
        return "no differences"
    parts = [f"{len(differing)} of {len(comparison.views)} views and tables differ"] if differing else []
    parts += [f"{len(comparison.created)} created"] if comparison.created else []
    parts += [f"{len(comparison.dropped)} dropped"] if comparison.dropped else []
    return ", ".join(parts)


def counts_text(view: RelationDifference) -> str:
    """How many rows differ, and of how many."""
    counts = [(view.missing, "missing"), (view.added, "added"), (view.changed, "changed")]
    texts = [f"{rows_text(count)} {name}" for count, name in counts if count]
    totals = "" if view.rows_before is None else f" ({rows_text(view.rows_before)} before, {view.rows_after:,} after)"
    return f"{', '.join(texts) or _schema_text(view)}{totals}"


def _schema_text(view: RelationDifference) -> str:
    """What differs of a view without rows that differ."""
    counts = (
        (len(view.retyped_columns), "retyped"),
        (len(view.added_columns), "new"),
        (len(view.dropped_columns), "dropped"),
    )
    texts = [f"{count} {kind} column{'s' * (count != 1)}" for count, kind in counts if count]
    return f"{', '.join(texts)}; the other columns are equal" if texts else "no rows differ"


def rows_text(count: int) -> str:
    """A number of rows."""
    return f"{count:,} {'row' if count == 1 else 'rows'}"


def notes_of(view: RelationDifference) -> list[str]:
    """Lines about the columns and the comparison of a view."""
    notes = [f"new column {name}" for name in view.added_columns]
    notes += [f"dropped column {name}" for name in view.dropped_columns]
    notes += [f"column {c.name} is {c.after}, was {c.before}: values not compared" for c in view.retyped_columns]
    notes += ["its SELECT has changed"] if view.is_redefined else []
    if view.rows:
        notes.append(
            f"compared by {', '.join(view.key)}" if view.key else "compared as whole rows, as it has no common key"
        )
    return notes


def share_text(share: float | None) -> str:
    """A share in percent; empty if it is not known."""
    if share is None:
        return ""
    return f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:.1f} %"


def comparison_markdown(comparison: StoreDifference, time_zone: str) -> str:
    """The comparison for a comment on a pull request. Values of rows are shortened."""
    differing, equal = _split_views(comparison)
    lines = [f"### Tussock: {headline(comparison)}", ""]
    lines += [f"From {_code(_side_text(comparison, 0))} to {_code(_side_text(comparison, 1))}.", ""]
    if differing:
        lines += [
            "| view | missing | added | changed | rows after | columns that differ |",
            "|---|--:|--:|--:|--:|---|",
        ]
        for view in differing:
            rows_after = "" if view.rows_after is None else f"{view.rows_after:,}"
            columns = ", ".join(_column_cells(view))
            counts = " | ".join(f"{count:,}" for count in (view.missing, view.added, view.changed))
            lines.append(f"| {_code(view.name)} | {counts} | {rows_after} | {columns} |")
        lines.append("")
    for view in differing:
        lines += [f"<details><summary><b>{_escape_cell(view.name)}</b>: {counts_text(view)}</summary>", ""]
        lines += [f"* {_escape_cell(note)}" for note in notes_of(view)]
        lines += ["", *_sample_table(view, time_zone), "</details>", ""]
    lines += [f"* {_escape_cell(line)}" for line in _other_lines(comparison, equal)]
    return "\n".join(lines) + "\n"


def _column_cells(view: RelationDifference) -> Iterator[str]:
    """The columns that differ, in Markdown: by type, in one side only, and by the values of some rows."""
    yield from (f"{_code(c.name)} {_escape_cell(c.before)} → {_escape_cell(c.after)}" for c in view.retyped_columns)
    yield from (f"{_code(name)} new" for name in view.added_columns)
    yield from (f"{_code(name)} dropped" for name in view.dropped_columns)
    yield from (f"{_code(c.name)} {c.rows:,}" for c in view.columns)


def comparison_json(comparison: StoreDifference, time_zone: str) -> str:
    """The comparison as JSON. Samples are lists of objects with text values."""

    def encode_table(value: object) -> object:
        assert isinstance(value, pa.Table)
        if not prints_rows():
            return []
        columns = cell_texts(value, time_zone)
        return [dict(zip(value.column_names, cells, strict=True)) for cells in zip(*columns, strict=True)]

    fields = msgspec.to_builtins(comparison, enc_hook=encode_table)
    return msgspec.json.encode({"differs": comparison.differs, **fields}).decode()


def with_text_samples(comparison: StoreDifference, time_zone: str) -> StoreDifference:
    """Return the comparison with the values of its sample rows as texts."""

    def to_texts(rows: pa.Table) -> pa.Table:
        columns = [pa.array(cells, pa.string()) for cells in cell_texts(rows, time_zone)]
        return pa.table(columns, names=rows.column_names)

    views = (msgspec.structs.replace(view, samples=to_texts(view.samples)) for view in comparison.views)
    return msgspec.structs.replace(comparison, views=tuple(views))


def sample_cells(view: RelationDifference, time_zone: str) -> tuple[list[str], list[tuple[str, ...]]]:
    """The header and the rows of a view's samples as text: sign, the kind of difference, the values."""
    first_columns = [DIFFERENCE, SIDE, *view.key]
    first_columns += [c.name for c in view.columns]
    first_columns += [name for name in view.samples.column_names if name not in first_columns]
    samples = view.samples.select(first_columns)
    texts = [["NULL" if text is None else text for text in column] for column in cell_texts(samples, time_zone)]
    kinds, sides, *values = texts
    rows = [
        (_SIGNS[side], kind if kind != DifferenceKind.CHANGED or side == "from" else "", *cells)
        for kind, side, *cells in zip(kinds, sides, *values, strict=True)
    ]
    return ["", "", *first_columns[2:]], rows


def _split_views(comparison: StoreDifference) -> tuple[list[RelationDifference], list[RelationDifference]]:
    return [v for v in comparison.views if v.differs], [v for v in comparison.views if not v.differs]


def _side_text(comparison: StoreDifference, number: int) -> str:
    side = (comparison.before, comparison.after)[number]
    return f"{side.name} at epoch {side.epoch}"


def _other_lines(comparison: StoreDifference, equal: Sequence[RelationDifference]) -> list[str]:
    lines = [f"only in {comparison.before.name}: {', '.join(comparison.dropped)}"] if comparison.dropped else []
    lines += [f"only in {comparison.after.name}: {', '.join(comparison.created)}"] if comparison.created else []
    lines += [f"equal: {', '.join(view.name for view in equal)}"] if equal else []
    lines += [f"numbers within {comparison.tolerance:g} are equal"] if comparison.tolerance else []
    return lines


def _sample_lines(view: RelationDifference, time_zone: str) -> Iterator[str]:
    if not view.samples.num_rows:
        return
    if not prints_rows():
        yield f"{view.samples.num_rows} sample rows {HINT}"
        return
    header, rows = sample_cells(view, time_zone)
    shown = [tuple(cell.translate(_CONTROL) for cell in row) for row in rows]
    yield from align_cells([header, *shown], [False] * len(header)).split("\n")


_CONTROL = {ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t", 0x1B: "\\x1b"}


def _sample_table(view: RelationDifference, time_zone: str) -> Iterator[str]:
    if not view.samples.num_rows:
        return
    if not prints_rows():
        yield f"{view.samples.num_rows} sample rows {HINT}"
        return
    header, rows = sample_cells(view, time_zone)
    yield "| " + " | ".join(_escape_cell(cell) for cell in header) + " |"
    yield "|" + "---|" * len(header)
    for row in rows:
        yield "| " + " | ".join(_escape_cell(_shorten_cell(cell)) for cell in row) + " |"
    yield ""


def _shorten_cell(cell: str) -> str:
    return cell if len(cell) <= _MOST_CELL else f"{cell[:_MOST_CELL]}…"


def _escape_cell(text: str) -> str:
    """Text in a cell of Markdown."""
    return text.translate(_IN_MARKDOWN)


def _code(text: str) -> str:
    return "".join(("`", _escape_cell(text), "`"))
