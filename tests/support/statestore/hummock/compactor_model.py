"""The model's compacting process: it takes one small step at a time, so that other processes can act in between."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.support.statestore.meta.make import Clock
from tussock.statestore.hummock.compaction import MergePlan, outputs_of, plan_merge, run_piece
from tussock.statestore.hummock.compaction_picker import (
    CompactionOptions,
    dropped_tables,
    full_compaction,
    pick_compactions,
)
from tussock.statestore.meta.errors import LostRaceError
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import CompactionTask, SstInfo


@dataclass
class Compactor:
    """A compactor with at most one task. It reports each event to `count`."""

    meta: MetaStore
    clock: Clock
    options: CompactionOptions
    count: Callable[[str, int], None]
    task: CompactionTask | None = None
    plan: MergePlan | None = None
    made: list[list[SstInfo]] = field(default_factory=list)

    def advance(self, rng: random.Random) -> bool:
        """One step: take a task or move SSTs, plan, merge a piece, or commit. Returns whether there was anything to do.

        Raises LostRaceError if another compactor was first.
        """
        self.count("step of compaction", 1)
        version, readable = self.meta.readable_epochs()
        if self.task is None:
            full = full_compaction(version) if rng.random() < 0.1 else None
            dropped = dropped_tables(version, readable)
            picks = [full] if full is not None else pick_compactions(version, self.options, dropped, 2, readable[0])
            for pick in picks[-1:]:
                self.count("move" if pick.move else "L0 merged" if pick.plan.target == 0 else "sunk", 1)
                if pick.move:
                    self.meta.move_ssts(pick.plan)
                else:
                    self.task = self.meta.open_compaction(pick.plan)
            return bool(picks)
        if self.plan is None:
            if all(other.id != self.task.id for other in version.tasks):
                self.task = None  # it was closed: its lease was over
                return True
            pieces, rewrite = rng.randint(1, 4), rng.random() < 0.3
            of, target = self.meta.objects, self.options.target_bytes
            self.plan = plan_merge(of, version, self.task, readable, target, pieces, rewrite)
            self.count("piece", len(self.plan.pieces))
            self.count("kept as it is", len(self.plan.kept))
        elif len(self.made) < len(self.plan.pieces):
            self.made.append(run_piece(self.meta.objects, self.plan.pieces[len(self.made)]))
            if rng.random() < 0.5:
                # If the task was closed, its commit fails.
                (self.task,) = self.meta.renew_compactions([self.task]) or (self.task,)
        else:
            task, outputs = self.task, outputs_of(self.plan, self.made)
            self.task, self.plan, self.made = None, None, []
            try:
                self.meta.commit_compaction(task, outputs)
                self.count("compacted", 1)
            except LostRaceError:
                assert task.expires_ms <= self.clock.now_ms, "a task is closed only after its lease ends"
                self.count("closed by another", 1)
        return True
