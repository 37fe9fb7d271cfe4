"""`--leave-out-clock`: the views of a project without the columns that contain the clock.

    SELECT id, current_timestamp() AS loaded_at FROM orders
    SELECT id FROM (SELECT id, current_timestamp() AS loaded_at FROM orders) AS staged

Every run of the project would change such a column in each row. The view selects the other columns from the query of
the project. The binder drops unused columns, and refuses a clock that is left. So it proves that no other column, and
no row, depends on the clock.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tussock.jobs.importing.names import name_text
from tussock.jobs.importing.project import ForeignProject, Model, Script, models_in_order
from tussock.jobs.logical.errors import SqlError, UnsupportedQueryError
from tussock.jobs.logical.quoting import quote_name
from tussock.jobs.logical.relation_names import split_name
from tussock.jobs.sql.now import ELSEWHERE
from tussock.statestore.errors import InputError

if TYPE_CHECKING:
    from tussock.jobs.importing.sdp_binding import ProjectBinding

_VIEW = re.compile(r"CREATE MATERIALIZED VIEW [^\n]*? AS\n")
_NAMED_COLUMNS = re.compile(r"\(([^\n]*)\) AS\n$")


def contains_clock(err: InputError | None) -> bool:
    """Whether a statement was refused because the clock is in its rows."""
    return isinstance(err, UnsupportedQueryError) and ELSEWHERE in err.reason


def leave_out_clocks(project: ForeignProject, binding: "ProjectBinding") -> ForeignProject:
    """A project whose refused models lose the columns that contain the clock, if the others then can be maintained.

    Each changed model has a note. A reader of a lost column is refused with that reason.

    Args:
        binding: empty.

    Cost: 0.1 to 0.3 s per statement, and as much for some groups of columns of a refused one.
    """
    changed, lost = dict[str, Model](), dict[str, Sequence[str]]()
    for model in models_in_order(project.models):
        changed[model.name], lost[model.name] = leave_out_clock(model, binding, project.root, lost)
    return replace(project, models=tuple(changed[model.name] for model in project.models))


def leave_out_clock(
    model: Model, binding: "ProjectBinding", root: Path, lost: Mapping[str, Sequence[str]]
) -> tuple[Model, Sequence[str]]:
    """A model without the columns that contain the clock, and their names. It is bound, if the binder takes it.

    Args:
        binding: with the relations that the model reads.
        root: the project's folder.
        lost: the columns that other models lost, by model.
    """

    def objection(statement: str) -> InputError | None:
        return binding.objection_to(replace(model, statement=statement), root)

    if model.refusal or not all(binding.knows(read) for read in model.reads):
        return model, ()
    err = objection(model.statement)
    columns = others = list[str]()
    if contains_clock(err) and model.script is Script.VIEWS and (head := _VIEW.match(model.statement)) is not None:
        columns = _columns_of(head[0], model.statement[head.end() :], binding)
        others = _columns_without_clock(columns, lambda names: objection(_selecting(model, head[0], names)))
        if others:
            model = replace(model, statement=_selecting(model, head[0], others))
    lost_names = [name for name in columns if name not in others] if others else []
    if lost_names:
        names = ", ".join(lost_names)
        model = replace(model, notes=(*model.notes, f"without {names}: the clock of each run would change the rows"))
    elif err is not None:
        for read in model.reads:
            for name in lost.get(read, ()):
                if quote_name(name).lower() in str(err).lower():
                    reason = f"it reads {name} of {read}, which --leave-out-clock leaves out"
                    return replace(model, refusal=reason), ()
    binding.add(model, root)
    return model, lost_names


def _columns_of(head: str, query: str, binding: "ProjectBinding") -> list[str]:
    """The columns of a view; empty if Spark refuses the query, or if two have one name."""
    if (named := _NAMED_COLUMNS.search(head)) is not None:
        names = [part.strip().strip("`").replace("``", "`") for part in re.findall(r"`(?:[^`]|``)*`|[^,]+", named[1])]
    else:
        try:
            names = [name for name, _ in binding.columns_of(query, lambda _: None)]
        except SqlError:
            return []
    return names if len({name.lower() for name in names}) == len(names) else []


def _columns_without_clock(names: list[str], objection: Callable[[list[str]], InputError | None]) -> list[str]:
    """The columns that do not contain the clock, by halves; empty if there is none, or for another objection."""
    err = objection(names) if names else None
    if err is None:
        return names
    if len(names) == 1 or not contains_clock(err):
        return []
    half = len(names) // 2
    others = [name for part in (names[:half], names[half:]) for name in _columns_without_clock(part, objection)]
    return others if others and objection(others) is None else []


def _selecting(model: Model, head: str, names: Sequence[str]) -> str:
    """The statement of a model with some of its columns."""
    query, alias = model.statement[len(head) :], quote_name(split_name(model.name)[1])
    named = _NAMED_COLUMNS.search(head)
    start = head if named is None else f"{head[: named.start()].rstrip()} AS\n"
    columns = "" if named is None else f" ({named[1]})"
    return f"{start}SELECT {', '.join(map(name_text, names))} FROM (\n{query}\n) AS {alias}{columns}"
