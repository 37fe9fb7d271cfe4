"""Compaction of a store: rounds of tasks, merged in this process or in parallel by Spark.

A round reads the newest version, opens tasks for the due merges, merges them piece by piece, and commits each. Any
number of compactors can run concurrently, with epochs, readers and vacuum: the version log decides who opens a task,
and the loser picks again. A failed task is closed. If a compactor is killed, others close its tasks when their lease
expires; until then, their SSTs stay unchanged. While merges make progress, the round renews its leases.
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

from tussock.jobs.chunks.failure import encode_failure, first_failure
from tussock.statestore.decoding import decode_json
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
from tussock.statestore.meta.work import HowFar, follow_progress
from tussock.statestore.objectstore.base import ObjectStore
from tussock.statestore.objectstore.open import open_object_store
from tussock.statestore.progress import Progress, no_progress

if TYPE_CHECKING:  # a merge in this process needs no Spark
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

#: The result of a piece: its SSTs, or its error.
Merged = list[SstInfo] | TussockError

#: A function that a runner calls now and then on the calling thread, while its merges make progress.
Beat = Callable[[], None]

#: Merges pieces and returns their results in order.
Runner = Callable[[Sequence[MergePiece], Beat], list[Merged]]

BEAT_S = 5.0  # interval of checks on a Spark job

T = TypeVar("T")


class TasksOpenError(RetryableError):
    """A full compaction needs all SSTs, and open tasks use some of them."""

    tasks: tuple[int, ...]

    def __str__(self) -> str:
        return (
            f"compaction tasks {', '.join(map(str, self.tasks))} are open, and a full compaction needs every SST. "
            "Nothing was changed. Try again when the tasks are done, or when the leases of killed compactors have "
            "expired."
        )


@dataclass(frozen=True, slots=True)
class TaskDone:
    """The result of one pick."""

    reason: str
    outcome: str  # "moved", "merged", "lost" to another compactor, "failed"
    bytes_in: int = 0  # of its input SSTs
    bytes_out: int = 0  # of its output SSTs
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
    progress: Progress = no_progress,
) -> list[TaskDone]:
    """Run one round: open the due tasks, merge them, and commit.

    Args:
        run: merges pieces.
        full: merge everything into the last level instead of the due tasks, including old versions and tombstones.
            Requires that no task is open.
        tasks: maximum number of concurrent tasks.
        pieces: number of pieces of a large task.

    Returns: the result of each pick; empty if nothing is due.
    Raises: TasksOpenError for a full compaction; errors of the object store outside of the merges. In each case, the
        round's open tasks are closed if the store still responds.
    """
    meta.close_lapsed_compactions()
    version, readable = meta.readable_epochs()
    if full:
        picks = _picks_of_full(version)
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
                    opened.append((pick, meta.open_compaction(pick.plan, LEASE_MS)))
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
            plans = [_plan_task(meta, version, task, readable, options, pieces, full) for _, task in opened]
            lease = _Lease(meta, tuple(task for _, task in opened))
            merged = iter(
                run([piece for plan in plans if isinstance(plan, MergePlan) for piece in plan.pieces], lease.renew)
            )
            for plan in plans:
                pick, task = opened[0]
                answers = [next(merged) for _ in plan.pieces] if isinstance(plan, MergePlan) else [plan]
                done.append(
                    _end_task(meta, pick, task, plan if isinstance(plan, MergePlan) else MergePlan((), ()), answers)
                )
                opened.pop(0)
                progress(f"task {task.id}: {done[-1]}")
                log.info("compaction task %d: %s", task.id, done[-1])
    except BaseException as err:
        for _, task in opened:
            _close_task(meta, task, type(err).__name__)
        raise
    return done


def _plan_task(
    meta: MetaStore,
    version: HummockVersion,
    task: CompactionTask,
    readable: Sequence[int],
    options: CompactionOptions,
    pieces: int,
    rewrite: bool,
) -> MergePlan | TussockError:
    """Plan a task's pieces.

    Return an error instead of raising it, so that a damaged input does not stop other tasks.
    """
    try:
        return plan_merge(meta.objects, version, task, readable, options.target_bytes, pieces, rewrite)
    except TussockError as err:
        return err


def _end_task(meta: MetaStore, pick: Pick, task: CompactionTask, plan: MergePlan, merged: Sequence[Merged]) -> TaskDone:
    """Commit a task, or close it after an error."""
    outputs = [ssts for ssts in merged if not isinstance(ssts, TussockError)]
    if (error := next((err for err in merged if isinstance(err, TussockError)), None)) is not None:
        # After others have closed the task, vacuum may remove its inputs. A missing input then means a lost race.
        open_still = any(other.id == task.id for other in meta.read_latest().tasks)
        _close_task(meta, task, type(error).__name__)
        return TaskDone(pick.reason, "failed" if open_still else "lost", error=error)
    try:
        meta.commit_compaction(task, outputs_of(plan, outputs))
    except LostRaceError as err:
        return TaskDone(pick.reason, "lost", error=err)
    taken = {sst.name: sst.size for piece in plan.pieces for level in piece.levels for sst in level}
    return TaskDone(pick.reason, "merged", sum(taken.values()), sum(sst.size for ssts in outputs for sst in ssts))


def _close_task(meta: MetaStore, task: CompactionTask, reason: str) -> None:
    """Close a task so that others can use its SSTs. If this fails, the task ends with its lease."""
    try:
        meta.close_compaction(task.id, f"its compactor stopped: {reason}")
    except TussockError as err:
        print(f"task {task.id} stays open until its lease expires: {err}", file=sys.stderr, flush=True)


@dataclass(slots=True)
class _Lease:
    """The lease of a round's open tasks. Calls of `renew` extend it."""

    meta: MetaStore
    tasks: tuple[CompactionTask, ...]

    def renew(self) -> None:
        """Renew the lease if a third of it has passed. A task that others have closed is detected at its commit."""
        with suppress(RetryableError):  # if the store is unreachable, the merge may continue, and the next call retries
            self.tasks = self.meta.renew_compactions(self.tasks, LEASE_MS)


def run_here(objects: ObjectStore, far: HowFar | None = None) -> Runner:
    """Return a runner that merges pieces one after another in this process. `far` receives its progress function."""

    def run_pieces(pieces: Sequence[MergePiece], beat: Beat) -> list[Merged]:
        done: list[Merged] = []
        if far is not None:
            far.ask = lambda: (len(done), len(pieces))
        for piece in pieces:
            done.append(_merge_piece(objects, piece, beat))  # noqa: PERF401  another thread counts them
        return done

    return run_pieces


def run_with_spark(spark: "SparkSession", store_uri: str, far: HowFar | None) -> Runner:
    """Return a runner that merges pieces as tasks of one Spark job. Workers read and write the store directly.

    A running job counts as progress, because Spark ends tasks that hang.
    """
    from tussock.jobs.spark.session import epoch_session, tasks_done

    def run_pieces(pieces: Sequence[MergePiece], beat: Beat) -> list[Merged]:
        if not pieces:
            return []
        if far is not None:
            far.ask = partial(tasks_done, spark, len(pieces))
        known = spark.sparkContext.broadcast([msgspec.json.encode(piece) for piece in pieces])

        def merge_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            objects = open_object_store(store_uri)
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    piece = decode_json(known.value[number], MergePiece)
                    answer = _merge_piece(objects, piece)
                    if failed := isinstance(answer, TussockError):
                        data = encode_failure(answer, f"compaction task {piece.task_id}", 0)
                    else:
                        data = msgspec.json.encode(answer)
                    yield pa.record_batch([[number], [failed], [data]], names=["number", "failed", "data"])

        try:
            session = epoch_session(spark, "UTC")
            merging = session.range(0, len(pieces), 1, len(pieces)).mapInArrow(
                merge_batches, "number bigint, failed boolean, data binary"
            )
            answers = _while_beating(session, merging.toArrow, beat).sort_by("number").to_pylist()
        finally:
            known.destroy()
        return [first_failure([a["data"]]) if a["failed"] else decode_json(a["data"], list[SstInfo]) for a in answers]

    return run_pieces


def _while_beating(session: "SparkSession", work: Callable[[], T], beat: Beat) -> T:
    """Run `work`, a job of `session`, in a thread; return its result or raise its error.

    The calling thread calls `beat` while it waits, and cancels the job if it is stopped.
    """
    from py4j.protocol import Py4JError

    answer: Future[T] = Future()
    tag = f"tussock-compaction-{uuid.uuid4()}"  # unique, to cancel no other compaction of this application

    def target() -> None:
        try:
            session.addTag(tag)  # tags the jobs of this thread
            answer.set_result(work())
        except BaseException as err:
            answer.set_exception(err)

    Thread(target=target, name=tag, daemon=True).start()
    try:
        while True:
            try:
                return answer.result(timeout=BEAT_S)
            except TimeoutError:
                if answer.done():  # the job itself raised TimeoutError
                    return answer.result()
                beat()
    finally:
        if not answer.done():
            with suppress(Py4JError, ConnectionError):  # the JVM may have been stopped as well
                session.interruptTag(tag)


def _merge_piece(objects: ObjectStore, piece: MergePiece, beat: Beat = lambda: None) -> Merged:
    try:
        return run_piece(objects, piece, beat)
    except TussockError as err:
        return err


def compact_store(
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
    """Run rounds until nothing is due, or until all remaining tasks failed or were lost to others.

    Arguments as for `compact_round`; by default one task after another, in this process. `far`: receives the progress
    function of `run_pieces`.

    Raises: the first error of a failed task, after the rounds.
    """
    options = options or CompactionOptions()
    far = far or HowFar()
    run = run or run_here(meta.objects, far)
    done: list[TaskDone] = []
    while True:
        with follow_progress(meta.objects, "compaction", "compaction", far, progress):
            finished_tasks = compact_round(meta, options, run, full=full, tasks=tasks, pieces=pieces, progress=progress)
        if not finished_tasks:
            break
        done += finished_tasks
        if full or all(task.outcome in ("lost", "failed") for task in finished_tasks):
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
    """Run rounds until nothing is due, with the pieces of each round as Spark tasks. Raises as `compact_store`."""
    slots, far = spark.sparkContext.defaultParallelism, HowFar()
    run = run_with_spark(spark, meta.objects.uri, far)
    return compact_store(meta, options, full=full, run=run, tasks=slots, pieces=2 * slots, far=far, progress=progress)


def _picks_of_full(version: HummockVersion) -> list[Pick]:
    """The pick of a full compaction, if any SST is left to merge. Raises TasksOpenError."""
    if version.tasks:
        raise TasksOpenError(tuple(task.id for task in version.tasks))
    return [pick] if (pick := full_compaction(version)) is not None else []


def due_picks(meta: MetaStore, options: CompactionOptions | None = None, *, full: bool = False) -> list[Pick]:
    """Return the picks of the next round. Changes nothing. Cost: lists the pins.

    Raises: TasksOpenError for a full compaction.
    """
    version, readable = meta.readable_epochs()
    if full:
        return _picks_of_full(version)
    return pick_compactions(
        version, options or CompactionOptions(), dropped_tables(version, readable), oldest=readable[0]
    )


def compact_forever(meta: MetaStore, options: CompactionOptions, pause_s: float, progress: Progress) -> None:
    """Compact, sleep, and repeat until the process is stopped. Retries if the store is temporarily unreachable."""
    while True:
        try:
            compact_store(meta, options, progress=progress)
        except RetryableError as err:
            progress(f"trying again in {pause_s:g} s: {err}")
        time.sleep(pause_s)
