"""Compaction of a store: rounds of tasks, merged in this process or by Spark in parallel.

A round: look at the newest version, take what is due by opening tasks, merge them piece by piece, commit each. Any number of compactors may
run at once, while epochs, readers and vacuum run: the version log decides which takes what, and a loser picks again. A task that fails is
closed; one whose compactor was killed is closed by others when its lease is over, and until then its SSTs stay as they are. While merges
get on, the round renews its leases.
"""

import logging
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, TypeVar

import msgspec
import pyarrow as pa

from tussock.jobs.flow.failure import encode_failure, first_failure
from tussock.statestore.decoding import decoded
from tussock.statestore.errors import RetryableError, TussockError
from tussock.statestore.hummock.compaction import MergePiece, MergePlan, outputs_of, plan_merge, run_piece
from tussock.statestore.hummock.compaction_picker import (
    CompactionOptions,
    Pick,
    dropped_tables,
    full_compaction,
    pick_compactions,
)
from tussock.statestore.meta.compaction import LEASE_MS
from tussock.statestore.meta.errors import LostRaceError
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import CompactionTask, HummockVersion, SstInfo
from tussock.statestore.meta.work import HowFar, followed
from tussock.statestore.objectstore.base import ObjectStore
from tussock.statestore.objectstore.open import open_object_store
from tussock.statestore.progress import Progress, no_progress

if TYPE_CHECKING:  # a merge in this process needs no Spark
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

#: What became of a piece: its SSTs, or why there are none.
Merged = list[SstInfo] | TussockError

#: What a runner calls now and then, in the thread that called it, as long as its merges get on.
Beat = Callable[[], None]

#: Merges pieces, anywhere, and answers in their order.
Runner = Callable[[Sequence[MergePiece], Beat], list[Merged]]

BEAT_S = 5.0  # between looks at a Spark job

T = TypeVar("T")


class TasksOpenError(RetryableError):
    """A full compaction wants all SSTs, and others are at work on some."""

    def __init__(self, tasks: tuple[int, ...]) -> None:
        super().__init__(tasks)
        self.tasks = tasks

    def __str__(self) -> str:
        return (
            f"compaction tasks {', '.join(map(str, self.tasks))} are open, and a full compaction needs every SST. Nothing was changed; "
            "try again when they are done, or when the leases of those that died are over."
        )


@dataclass(frozen=True, slots=True)
class TaskDone:
    """What became of one pick."""

    reason: str
    outcome: str  # "moved", "merged", "lost" to another compactor, "failed"
    bytes_in: int = 0  # of the SSTs it took
    bytes_out: int = 0  # of those it wrote
    error: TussockError | None = None

    def __str__(self) -> str:
        cost = f": {self.bytes_in:,} bytes read, {self.bytes_out:,} written" if self.outcome == "merged" else ""
        return f"{self.outcome}{cost} ({self.reason})" + (f": {self.error}" if self.error is not None else "")


def compact_round(
    meta: MetaStore,
    options: CompactionOptions,
    run: Runner,
    *,
    full: bool = False,
    tasks: int = 1,
    pieces: int = 1,
    lease_ms: int = LEASE_MS,
    progress: Progress = no_progress,
) -> list[TaskDone]:
    """One round: open what is due, merge, commit.

    Args:
        run: merges pieces.
        full: everything into the last level, old versions and tombstones included, where no task is open; not what is due.
        tasks: at most so many at once.
        pieces: into how many pieces a large task is cut.
        lease_ms: how long others leave our tasks alone.

    Returns: what became of each pick; empty: nothing is due.
    Raises: TasksOpenError for a full compaction; errors of the object store outside the merges themselves. Whatever is raised, the
        round's open tasks are closed, if the store still answers.
    """
    meta.close_lapsed_compactions()
    version, readable = meta.readable_epochs()
    if full:
        if version.tasks:
            raise TasksOpenError(tuple(task.id for task in version.tasks))
        picks = [pick] if (pick := full_compaction(version)) is not None else []
    else:
        picks = pick_compactions(version, options, dropped_tables(version, readable), tasks, readable[0])
    done: list[TaskDone] = []
    opened: list[tuple[Pick, CompactionTask]] = []
    try:
        for pick in picks:
            try:
                if pick.move:
                    meta.move_ssts(pick.plan)
                    done.append(TaskDone(pick.reason, "moved"))
                else:
                    opened.append((pick, meta.open_compaction(pick.plan, lease_ms)))
                    log.info(
                        "compaction task %d: %s, score %.1f, to level %d",
                        opened[-1][1].id,
                        pick.reason,
                        pick.score,
                        pick.plan.target,
                    )
                    progress(f"task {opened[-1][1].id}: {pick.reason}")
            except LostRaceError as err:
                done.append(TaskDone(pick.reason, "lost", error=err))
        if opened:
            version, readable = meta.readable_epochs()
            plans = [_planned(meta, version, task, readable, options, pieces, full) for _, task in opened]
            lease = _Lease(meta, tuple(task for _, task in opened), lease_ms)
            merged = iter(
                run([piece for plan in plans if isinstance(plan, MergePlan) for piece in plan.pieces], lease.renew)
            )
            for plan in plans:
                pick, task = opened[0]
                answers = [next(merged) for _ in plan.pieces] if isinstance(plan, MergePlan) else [plan]
                done.append(_end(meta, pick, task, plan if isinstance(plan, MergePlan) else MergePlan((), ()), answers))
                opened.pop(0)
                progress(f"task {task.id}: {done[-1]}")
                log.info("compaction task %d: %s", task.id, done[-1])
    except BaseException as err:
        for _, task in opened:
            _close(meta, task, type(err).__name__)
        raise
    return done


def _planned(
    meta: MetaStore,
    version: HummockVersion,
    task: CompactionTask,
    readable: Sequence[int],
    options: CompactionOptions,
    pieces: int,
    rewrite: bool,
) -> MergePlan | TussockError:
    """A task's pieces, or why it cannot even be cut: a damaged input must not stop the other tasks of the round."""
    try:
        return plan_merge(meta.objects, version, task, readable, options.target_bytes, pieces, rewrite)
    except TussockError as err:
        return err


def _end(meta: MetaStore, pick: Pick, task: CompactionTask, plan: MergePlan, merged: Sequence[Merged]) -> TaskDone:
    """Commit a task, or close it."""
    made = [ssts for ssts in merged if not isinstance(ssts, TussockError)]
    if (error := next((err for err in merged if isinstance(err, TussockError)), None)) is not None:
        # Once others have closed the task, vacuum may take its inputs, and what looks like damage is only a lost race.
        open_still = any(other.id == task.id for other in meta.latest().tasks)
        _close(meta, task, type(error).__name__)
        return TaskDone(pick.reason, "failed" if open_still else "lost", error=error)
    try:
        meta.commit_compaction(task, outputs_of(plan, made))
    except LostRaceError as err:
        return TaskDone(pick.reason, "lost", error=err)
    taken = {sst.name: sst.size for piece in plan.pieces for level in piece.levels for sst in level}
    return TaskDone(pick.reason, "merged", sum(taken.values()), sum(sst.size for ssts in made for sst in ssts))


def _close(meta: MetaStore, task: CompactionTask, reason: str) -> None:
    """Let others take the task's SSTs. Where even that fails, its lease ends it."""
    try:
        meta.close_compaction(task.id, f"its compactor stopped: {reason}")
    except TussockError as err:
        print(f"task {task.id} stays open until its lease is over: {err}", file=sys.stderr, flush=True)


@dataclass(slots=True)
class _Lease:
    """Of a round's open tasks, kept from running out as long as somebody calls `renew`."""

    meta: MetaStore
    tasks: tuple[CompactionTask, ...]
    lease_ms: int

    def renew(self) -> None:
        """Cheap, and without a request before a third of the lease is over. A task that others have closed is found out at its commit."""
        with suppress(RetryableError):  # a store that is away: the merge may well go on, and the next call tries again
            self.tasks = self.meta.renew_compactions(self.tasks, self.lease_ms)


def run_here(objects: ObjectStore, far: HowFar | None = None) -> Runner:
    """Pieces one after another in this process. `far`: gets what says how many are done."""

    def run(pieces: Sequence[MergePiece], beat: Beat) -> list[Merged]:
        done: list[Merged] = []
        if far is not None:
            far.ask = lambda: (len(done), len(pieces))
        for piece in pieces:
            done.append(_merged(objects, piece, beat))  # noqa: PERF401  another thread counts them
        return done

    return run


def run_with_spark(spark: "SparkSession", store_uri: str, far: HowFar | None = None) -> Runner:
    """Pieces as tasks of one Spark job; workers read and write the store themselves. The job's being there counts as getting on: a task
    that hangs is Spark's to end."""
    from tussock.jobs.spark.session import epoch_session, tasks_done

    def run(pieces: Sequence[MergePiece], beat: Beat) -> list[Merged]:
        if not pieces:
            return []
        if far is not None:
            far.ask = partial(tasks_done, spark, len(pieces))
        known = spark.sparkContext.broadcast([msgspec.json.encode(piece) for piece in pieces])

        def merge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            objects = open_object_store(store_uri)
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    piece = decoded(known.value[number], MergePiece)
                    answer = _merged(objects, piece)
                    if failed := isinstance(answer, TussockError):
                        data = encode_failure(answer, f"compaction task {piece.task_id}", 0)
                    else:
                        data = msgspec.json.encode(answer)
                    yield pa.record_batch([[number], [failed], [data]], names=["number", "failed", "data"])

        try:
            session = epoch_session(spark, "UTC")
            merging = session.range(0, len(pieces), 1, len(pieces)).mapInArrow(
                merge, "number bigint, failed boolean, data binary"
            )
            answers = _while_beating(session, merging.toArrow, beat).sort_by("number").to_pylist()
        finally:
            known.destroy()
        return [first_failure([a["data"]]) if a["failed"] else decoded(a["data"], list[SstInfo]) for a in answers]

    return run


def _while_beating(session: "SparkSession", work: Callable[[], T], beat: Beat) -> T:
    """What `work`, a job of `session`, returns or raises. It runs in a thread of its own; this one waits and beats, and takes the job along
    when it is stopped."""
    from py4j.protocol import Py4JError

    answer: Future[T] = Future()
    tag = f"tussock-compaction-{uuid.uuid4()}"  # another compaction of this application is not to be taken along

    def target() -> None:
        try:
            session.addTag(tag)  # of this thread's jobs
            answer.set_result(work())
        except BaseException as err:
            answer.set_exception(err)

    Thread(target=target, name=tag, daemon=True).start()
    try:
        while True:
            try:
                return answer.result(timeout=BEAT_S)
            except TimeoutError:
                if answer.done():  # its own error
                    return answer.result()
                beat()
    finally:
        if not answer.done():
            with suppress(Py4JError, ConnectionError):  # the JVM may have been stopped with us
                session.interruptTag(tag)


def _merged(objects: ObjectStore, piece: MergePiece, beat: Beat = lambda: None) -> Merged:
    try:
        return run_piece(objects, piece, beat)
    except TussockError as err:
        return err


def compact(
    meta: MetaStore,
    options: CompactionOptions | None = None,
    *,
    full: bool = False,
    run: Runner | None = None,
    tasks: int = 1,
    pieces: int = 1,
    far: HowFar | None = None,
    progress: Progress = no_progress,
) -> list[TaskDone]:
    """Rounds until nothing is due, or nothing gets on: all that is left was lost to others or failed.

    Arguments as for `compact_round`; by default one task after another, in this process. `far`: where `run` says how much is done.
    Raises: the first error of a task that failed, after the rounds.
    """
    options = options or CompactionOptions()
    far = far or HowFar()
    run = run or run_here(meta.objects, far)
    done: list[TaskDone] = []
    while True:
        with followed(meta.objects, "compaction", "compaction", far, progress):
            found = compact_round(meta, options, run, full=full, tasks=tasks, pieces=pieces, progress=progress)
        if not found:
            break
        done += found
        if full or all(task.outcome in ("lost", "failed") for task in found):
            break
    if (error := next((task.error for task in done if task.outcome == "failed"), None)) is not None:
        raise error
    return done


def compact_with_spark(
    spark: "SparkSession",
    meta: MetaStore,
    options: CompactionOptions | None = None,
    *,
    full: bool = False,
    progress: Progress = no_progress,
) -> list[TaskDone]:
    """Rounds until nothing is due, with the pieces of a round's tasks as Spark tasks. Raises as `compact` does."""
    slots, far = spark.sparkContext.defaultParallelism, HowFar()
    run = run_with_spark(spark, meta.objects.uri, far)
    return compact(meta, options, full=full, run=run, tasks=slots, pieces=2 * slots, far=far, progress=progress)


def due(meta: MetaStore, options: CompactionOptions | None = None) -> list[Pick]:
    """What a round would take now; nothing is changed. Lists pins."""
    version, readable = meta.readable_epochs()
    return pick_compactions(
        version, options or CompactionOptions(), dropped_tables(version, readable), oldest=readable[0]
    )


def compact_forever(meta: MetaStore, options: CompactionOptions, pause_s: float, progress: Progress) -> None:
    """Compact, rest, and again, until the process is stopped. A store that is away for a while is waited for."""
    while True:
        try:
            compact(meta, options, progress=progress)
        except RetryableError as err:
            progress(f"trying again in {pause_s:g} s: {err}")
        time.sleep(pause_s)
