"""If a cluster starts no executor, the driver gives up after its limit and names the cause."""

from tussock.jobs.spark.executor_watch import ExecutorsSeen, Watch

HERE, NONE = frozenset({"10.0.0.1:7078"}), frozenset[str]()


def test_a_watch_gives_up_if_tasks_wait_without_an_executor_for_its_time() -> None:
    watch = Watch(10.0)
    looks = [
        (0, NONE, False),
        (50, NONE, True),
        (55, HERE, True),
        (56, NONE, True),
        (65, NONE, True),
        (66, NONE, False),
        (67, NONE, True),
    ]
    assert not any(watch.gives_up(ExecutorsSeen(executors, waiting), now) for now, executors, waiting in looks)
    assert not watch.gives_up(ExecutorsSeen(NONE, True), 76.9)
    assert watch.gives_up(ExecutorsSeen(NONE, True), 77.0)
    assert watch.lost == HERE
