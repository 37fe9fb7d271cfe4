"""Addresses of cells: no number means two things, and each cell is read at its readers' levels, having passed those before."""

from jobs.plan.fragments import ROW_ID, input_number, input_ref, is_input
from jobs.plan.schedule import schedule
from jobs.wire.cell import Address, LeafInput, Mail, Route, addresses_of, cells
from tests.jobs.plan.catalogs import catalog_of, counted, joined, scan, source, table, view

DEEP = schedule(
    catalog_of(
        table("t"),
        table("u"),
        source("s"),
        view("v", counted(scan("s"), 1)),
        view("x", joined(scan("v", 2), scan("t"), 0, 1)),
        view("y", joined(scan("t"), scan("u"), 1, 1)),
    ),
    1,
)


def routes(in_flight: int = 0, flushes: bool = False) -> list[Route]:
    return [Route.of(DEEP, level, in_flight, flushes) for level in range(len(DEEP.levels))]


def test_no_number_below_zero_has_two_meanings() -> None:
    inputs = [input_ref(i) for i in range(50)]  # of stored plans
    numbers = [*Mail, *LeafInput, *inputs[1:]]
    assert len(set(map(int, numbers))) == len(numbers)
    assert ROW_ID not in {int(n) for n in (*Mail, *LeafInput)}
    assert all(m > Mail.IN_FLIGHT for m in Mail if m is not Mail.IN_FLIGHT)
    assert min(LeafInput) > max(Mail)


def test_a_reference_to_an_input_is_told_from_one_to_an_operator() -> None:
    assert [input_ref(0), input_ref(3)] == [-1, -4], "stored with every view: these numbers stay"
    assert [is_input(r) for r in (-4, -1, 0, 7)] == [True, True, False, False]
    assert [input_number(input_ref(i)) for i in range(4)] == [0, 1, 2, 3]


def test_an_address_survives_its_cell() -> None:
    for address in (Address.leaf(3, LeafInput.TICK), Address.in_flight(2, 40), Address.answer(Mail.SST), Address.exchange(0, 1)):
        assert addresses_of(cells(1, address, [b"x"])) == [address]
    assert [a.epoch_in_flight for a in (Address.in_flight(2, 40), Address.sealed(40), Address.exchange(0, 1))] == [2, None, None]


def test_a_cell_passes_every_level_between_its_producer_and_its_deepest_reader() -> None:
    found = routes()
    for scheduled in DEEP.fragments():
        for exchange in scheduled.exchanges:
            address = Address.exchange(scheduled.id, exchange.index)
            reading = {s.level for s in DEEP.fragments() for f in s.feeds if (f.producer, f.exchange) == (scheduled.id, exchange.index)}
            assert {level for level, route in enumerate(found) if route.reads(address)} == reading
            assert {level for level, route in enumerate(found) if route.passes(address)} == set(range(scheduled.level + 1, max(reading)))


def test_answers_pass_every_level_and_leaf_inputs_none() -> None:
    for level, route in enumerate(routes()):
        assert all(route.passes(Address.answer(mail)) for mail in (Mail.REPORT, Mail.SST, Mail.FAILURE))
        for scheduled in DEEP.fragments():
            leaf = Address.leaf(scheduled.id, LeafInput.ENTRIES)
            assert (route.reads(leaf), route.passes(leaf)) == (scheduled.level == level, False)


def test_a_failure_that_reached_one_unit_alone_does_not_pass_before_it_is_announced() -> None:
    for route in routes():
        assert not route.passes(Address(Mail.FAILURE, LeafInput.ROWS))


def test_sealed_memtables_pass_every_level_but_end_at_the_last_one_where_units_flush() -> None:
    assert all(route.passes(Address.sealed(1)) for route in routes())
    assert [route.passes(Address.sealed(1)) for route in routes(flushes=True)] == [True] * (len(DEEP.levels) - 1) + [False]


def test_memtables_in_flight_are_read_by_the_levels_that_read_their_table_and_pass_none() -> None:
    tables = {t for s in DEEP.fragments() if s.fragment for o in s.fragment.operators for t in o.tables}
    read = {t: [route.reads(Address.in_flight(1, t)) for route in routes(in_flight=2)] for t in tables}
    assert all(any(levels) for levels in read.values())
    assert not any(route.passes(Address.in_flight(1, t)) for t in tables for route in routes(in_flight=2))
    assert not any(route.reads(Address.in_flight(2, t)) for t in tables for route in routes(in_flight=2))
