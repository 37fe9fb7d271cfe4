"""Facts about the open barrier."""

from tests.support.jobs.driver.embedded import epoch, rows
from tussock.jobs.barriers.barrier import inject_barrier
from tussock.jobs.barriers.detour import Detour
from tussock.jobs.facts.barrier import open_barrier_facts
from tussock.jobs.facts.epochs import list_epochs
from tussock.jobs.trouble.supersede import abandon_barrier
from tussock.statestore.meta.store import MetaStore


def test_the_open_barrier_lists_its_input_changes_and_omissions(meta: MetaStore) -> None:
    assert open_barrier_facts(meta) is None
    inject_barrier(meta)
    taken = open_barrier_facts(meta)
    assert taken is not None
    assert [text for _, text in taken.entries] == ["insert t, 1 rows"]
    assert (taken.mutation.kind, taken.changed, taken.skipped, taken.sealed) == ("nothing", (), (), False)
    abandon_barrier(meta, Detour(pause=("per_g",)))
    instead = open_barrier_facts(meta)
    assert instead is not None
    assert (instead.attempt, instead.mutation.kind, instead.changed) == (1, "pause", ("per_g",))
    assert instead.skipped == ("paused per_g",)
    epoch(meta)
    (done,) = list_epochs(meta, 1)
    assert done.skipped == ("paused per_g",), "it stays on record after the commit"
    assert len(rows(meta, "t")) == 5
