"""The SSTs of a version that may hold a table's keys, against plain loops."""

import random

import msgspec
import pytest

from tests.support.statestore.hummock.store_model import empty_version
from tussock.statestore.decoding import decode_json
from tussock.statestore.hummock.version import SectionRef, part_of, sections_at, stored_size
from tussock.statestore.meta.version import HummockVersion, SectionInfo, SstInfo, VersionPart


@pytest.mark.parametrize("seed", range(20))
def test_sections_of_a_table_are_those_of_a_loop_over_all_ssts(seed: int) -> None:
    rng = random.Random(seed)
    version = _version(rng)
    for _ in range(50):
        table = rng.randrange(7)
        first, last = sorted(_key(table, rng.randrange(300)) for _ in range(2))
        bounds = rng.choice([(None, None), (first, None), (None, last), (first, last)])
        epoch, since = rng.choice([(None, None), (rng.randrange(9), None), (None, rng.randrange(9))])
        found = list(sections_at(version, table, epoch, *bounds, since))
        assert found == [
            SectionRef(level, sst, section)
            for level, ssts in enumerate(version.levels)
            for sst in ssts
            for section in sst.sections
            if section.table_id == table
            and (bounds[0] is None or section.last_key >= bounds[0])
            and (bounds[1] is None or section.first_key <= bounds[1])
            and (epoch is None or sst.min_epoch <= epoch)
            and (since is None or sst.max_epoch > since)
        ]


def test_a_table_of_few_ssts_is_found_without_a_walk_over_all() -> None:
    class Level(tuple[SstInfo, ...]):
        __slots__ = ()

        def __iter__(self):  # type: ignore[no-untyped-def]
            raise AssertionError("a walk over a whole level")

    rng = random.Random(1)
    version = _version(rng, tables=500)
    walked = msgspec.structs.replace(version, levels=((), *map(Level, version.levels[1:])))
    assert list(sections_at(walked, 250)) == [ref for ref in sections_at(version, 250) if ref.level]


@pytest.mark.parametrize("seed", range(10))
def test_a_part_of_a_version_has_the_ssts_of_its_tables_and_refuses_others(seed: int) -> None:
    rng = random.Random(seed)
    version, tables = _version(rng), rng.sample(range(7), 3)
    sent = decode_json(msgspec.json.encode(part_of(version, tables)), VersionPart)
    for table in range(7):
        if table in tables:
            assert list(sections_at(sent, table)) == list(sections_at(version, table))
        else:
            with pytest.raises(LookupError, match=f"table {table} is read on a part"):
                next(iter(sections_at(sent, table)), None)
    kept = [[sst for sst in level if {s.table_id for s in sst.sections} & {*tables}] for level in version.levels]
    assert [list(level) for level in sent.levels] == kept, "nothing else, in the same order"
    assert (sent.id, sent.epoch, sent.epochs, sent.moment) == (version.id, version.epoch, version.epochs, 0)


def test_the_size_of_a_table_is_that_of_all_its_sections() -> None:
    version = _version(random.Random(3))
    for table in range(7):
        found = [s for level in version.levels for sst in level for s in sst.sections if s.table_id == table]
        assert stored_size(version, table) == (sum(s.rows for s in found), sum(s.bytes for s in found))


def _version(rng: random.Random, tables: int = 6) -> HummockVersion:
    """L0 of overlapping SSTs, and two sorted levels whose SSTs hold up to three tables."""
    levels: list[tuple[SstInfo, ...]] = [tuple(_sst(rng, _cut(rng, tables)[:3]) for _ in range(4))]
    for _ in range(2):
        sections = _cut(rng, tables)
        ends = [*sorted(rng.sample(range(1, len(sections)), len(sections) // 3)), len(sections)]
        levels.append(
            tuple(_sst(rng, sections[start:end]) for start, end in zip([0, *ends], ends, strict=False) if start < end)
        )
    return msgspec.structs.replace(empty_version(), levels=tuple(levels))


def _cut(rng: random.Random, tables: int) -> list[SectionInfo]:
    """Disjoint sections in key order. Those of one table have ascending ranges; an SST takes one of each table."""
    found = []
    for table in rng.sample(range(tables), rng.randint(2, tables)) if tables < 10 else range(tables):
        start, end = sorted(rng.sample(range(300), 2))
        found.append(SectionInfo(table, _key(table, start), _key(table, end), 10, 100))
    return sorted(found, key=lambda section: section.first_key)


def _sst(rng: random.Random, sections: list[SectionInfo]) -> SstInfo:
    low = rng.randrange(8)
    return SstInfo(f"data/{rng.random()}.sst", 100, 10, 10, low, rng.randint(low, 8), tuple(sections))


def _key(table: int, number: int) -> bytes:
    return table.to_bytes(4, "big") + number.to_bytes(3, "big")
