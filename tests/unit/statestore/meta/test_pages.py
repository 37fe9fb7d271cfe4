"""Levels with pages against plain lists of SSTs."""

import random
from bisect import bisect_left, bisect_right

import msgspec
import pytest

from tests.support.small_pages import small_pages
from tests.support.statestore.hummock.store_model import empty_version
from tussock.statestore.meta.pages import Page, PagedLevel, bytes_of, laid_out, names_gone, page_sums
from tussock.statestore.meta.version import HummockVersion, SectionInfo, SstInfo


def key(number: int) -> bytes:
    return (1).to_bytes(4, "big") + number.to_bytes(6, "big")


def sst(number: int, label: str = "") -> SstInfo:
    section = SectionInfo(1, key(number), key(number) + b"z", 5, 100)
    return SstInfo(f"data/{number:016x}/{label}.sst", 100 + number, 10, 5, 1, 1, (section,))


def version_of(*below: PagedLevel | tuple[SstInfo, ...]) -> HummockVersion:
    return msgspec.structs.replace(empty_version(), levels=((), *below))


@pytest.mark.parametrize("seed", range(40))
def test_a_level_after_random_changes_is_the_list_after_them(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    small_pages(monkeypatch, page_ssts=8)
    rng = random.Random(seed)
    held = {number: sst(number) for number in rng.sample(range(1000), rng.randint(0, 200))}
    level = PagedLevel.from_ssts([held[number] for number in sorted(held)])
    for _ in range(10):
        removed = [held.pop(number) for number in rng.sample(sorted(held), min(len(held), rng.randint(0, 6)))]
        added = {number: sst(number) for number in rng.sample(range(1000), rng.randint(0, 6)) if number not in held}
        held |= added
        level = level.replace_ssts(removed, list(added.values()))
        expected = [held[number] for number in sorted(held)]
        assert list(level) == expected
        assert [page.ssts for page in level.pages] == [page.ssts for page in PagedLevel.from_ssts(expected).pages], (
            "pages depend on the SSTs only"
        )
        assert (level == tuple(expected), tuple(expected) == level, len(level)) == (True, True, len(expected))
        assert bytes_of(level) == sum(one.size for one in expected)
        first, last = sorted(rng.sample(range(1000), 2))
        assert list(level.ssts_between(key(first), key(last))) == [held[n] for n in sorted(held) if first <= n <= last]
        firsts = [one.sections[0].first_key for one in expected]
        low, high = bisect_left(firsts, key(first)), bisect_right(firsts, key(last))
        assert list(level.ssts_around(key(first), key(last))) == expected[max(0, low - 1) : high + 1]
        if expected:
            place = rng.randrange(len(expected))
            assert (level[place], level[-1], level[place : place + 3]) == (
                expected[place],
                expected[-1],
                tuple(expected[place : place + 3]),
            )


def test_a_change_reads_only_the_pages_of_its_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    small_pages(monkeypatch, page_ssts=8)
    read: list[Page] = []

    def load(page: Page) -> tuple[SstInfo, ...]:
        read.append(page)
        return content[page.sums.first_key]

    made = PagedLevel.from_ssts(map(sst, range(400)))
    content = {page.sums.first_key: page.ssts for page in made.pages}
    level = PagedLevel(Page(info, info, None, load) for info in (page_sums("x", page.ssts) for page in made.pages))
    assert len(level.pages) > 20
    after = level.replace_ssts([sst(200), sst(201)], [sst(200, "new")])
    assert 1 <= len(read) <= 3
    assert len([page for page in after.pages if page not in level.pages]) <= 3
    assert names_gone(version_of(level), version_of(after)) == {sst(200).name, sst(201).name}
    assert 1 <= len(read) <= 3, "pages that both versions share are not read to compare them"
    assert (len(level), level.nbytes) == (400, sum(sst(i).size for i in range(400)))
    assert len(read) <= 3


def test_only_large_versions_have_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    small_pages(monkeypatch, page_ssts=4, paged_ssts=16)
    few, many = tuple(map(sst, range(3))), tuple(map(sst, range(100, 115)))
    small, large = version_of(few, many[:-3]), version_of(few, many)
    assert laid_out(small) is small
    assert [type(level) for level in laid_out(large).levels] == [tuple, tuple, PagedLevel]
    assert laid_out(large) == large
    with pytest.raises(TypeError, match="PagedLevel"):  # never sent or stored as a whole by mistake
        msgspec.json.encode(laid_out(large))
