"""Changes of a source's options: by ALTER SOURCE … SET OPTIONS, and by an edited CREATE SOURCE in a pipeline."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tussock.jobs.logical.statements import BoundSourceOptions, CreateSource, SetSourceOptions
from tussock.jobs.plan.alter_source import created_source
from tussock.jobs.plan.definition import SourceDefinition, definition_of, find
from tussock.jobs.plan.difference import differences
from tussock.jobs.sources.base import OptionEffect
from tussock.jobs.sources.describe import described, placed
from tussock.jobs.sources.registry import reader_of
from tussock.statestore.meta.catalog import Catalog, RelationKind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def set_options(
    catalog: Catalog, bound: BoundSourceOptions, base: Path, spark: "Callable[[], SparkSession]"
) -> SetSourceOptions:
    """The statement of the log for ALTER SOURCE … SET or UNSET OPTIONS.

    Raises: BadOptionError, with the nearest name for a mistyped option; MissingPathError for a new path.
    """
    source = _definition(catalog, bound.name).statement
    options = _without(source.options, (*bound.options, *bound.removed)) | dict(bound.options)
    return _checked(source, placed(msgspec.structs.replace(source, options=options), base).options, spark)


def edited_options(
    catalog: Catalog, wanted: CreateSource, spark: "Callable[[], SparkSession]"
) -> SetSourceOptions | None:
    """The change of options by which a source gets those of its edited CREATE SOURCE.

    Options that ALTER SOURCE changed keep their values, unless the edit changes them too. None if the source does not
    exist, or if more than its options differ.

    Raises: as `set_options`.
    """
    there = next((r for r in catalog.live() if r.name == wanted.name.lower()), None)
    if there is None or there.kind is not RelationKind.SOURCE:
        return None
    definition = _definition(catalog, there.name)
    was = created_source(definition)
    if not differences(was, wanted) or differences(msgspec.structs.replace(was, options=wanted.options), wanted):
        return None
    now = definition.statement
    edited = {o: v for o, v in wanted.options.items() if was.options.get(o) != v}
    gone = [o for o in was.options if o not in wanted.options]
    change = _checked(now, _without(now.options, (*edited, *gone)) | edited, spark)
    return msgspec.structs.replace(change, declared=True)


def effect_notes(source: CreateSource, options: Iterable[str]) -> Iterator[str]:
    """Describe when changes of these options take effect."""
    reader = reader_of(source)
    of_rows = [o for o in options if reader.effect_of(o) is OptionEffect.NEW_INPUT]
    at_once = [o for o in options if reader.effect_of(o) is OptionEffect.AT_ONCE]
    if at_once:
        yield f"{', '.join(at_once)}: from the next epoch on"
    if of_rows:
        yield (
            f"{', '.join(of_rows)}: for files that are read from now on. To read earlier files again, run, after the "
            f"next epoch, `tussock restate {source.name} --options`"
        )


def changed_options(change: SetSourceOptions) -> tuple[str, ...]:
    """The names of the options that a statement changes."""
    names = dict.fromkeys((*change.known, *change.options))
    return tuple(o for o in names if change.known.get(o) != change.options.get(o))


def _definition(catalog: Catalog, name: str) -> SourceDefinition:
    definition = definition_of(find(catalog, name, RelationKind.SOURCE))
    assert isinstance(definition, SourceDefinition)
    return definition


def _without(options: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """The options without those of these names, in any case of letters, as Spark reads them."""
    folded = {name.lower() for name in names}
    return {option: value for option, value in options.items() if option.lower() not in folded}


def _checked(source: CreateSource, options: dict[str, str], spark: "Callable[[], SparkSession]") -> SetSourceOptions:
    described(msgspec.structs.replace(source, options=options, earlier=msgspec.UNSET), spark)
    return SetSourceOptions(source.name, source.options, options)
