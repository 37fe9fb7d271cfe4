#!/usr/bin/env bash
# All tests but the deep ones, in three groups. `spark` is two processes with a JVM each, which share the tests file by file. Beside it runs
# `unit`, two processes without a JVM, and after that `processes`: tests that start and kill processes of their own, one after the other.
set -uo pipefail
cd "$(dirname "$0")/.."

# Tests are many small Spark jobs: a JVM that does not stop to optimise needs a third less CPU, and one that starts from an archive of its
# classes a third less again. Of what is left a third goes when no threads of its own collect garbage (batches of Arrow are humongous to G1,
# which marks the heap for each), and when there is room for the code of all tests.
export SPARK_SUBMIT_OPTS=${SPARK_SUBMIT_OPTS:--XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:MetaspaceSize=384m -XX:ReservedCodeCacheSize=256m}
SPARK_SUBMIT_OPTS=$(python -c 'import os; from tussock.jobs.spark.class_archive import submit_options as o; print({**os.environ, **o()}["SPARK_SUBMIT_OPTS"])')

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
failed=0

# A test that hangs where no Python code can run any more ends with the stacks of its threads (the other limit, a test's own of pytest-timeout,
# needs Python's lock), and a group that hangs between its tests ends too: what it printed is shown.
watched="-o faulthandler_timeout=700 -o faulthandler_exit_on_timeout=true"

run() { # name, then pytest's arguments; a group without tests is no failure
    local code=0
    timeout --kill-after=30 3000 python -m pytest --durations=5 $watched "${@:2}" > "$logs/$1" 2>&1 || code=$?
    [ $code = 124 ] && echo "stopped: not done after 50 minutes" >> "$logs/$1"
    [ $code = 5 ] && code=0
    return $code
}

finish() { # name, exit code
    printf '\n=== %s\n' "$1"
    cat "$logs/$1"
    [ "$2" = 0 ] || failed=1
}

beside() { # one after the other
    run unit -n 2 -m "not (deep or spark or airflow or kill or cluster)"; echo $? > "$logs/unit.code"
    # the files that have such tests: collecting all others again would take half a minute
    run processes -m "(kill or cluster) and not deep" $(grep -rlE "mark\.(kill|cluster)" tests --include=test_*.py); echo $? > "$logs/processes.code"
}

beside & others=$!
# files in the order of their names: the longest, among the first and the last ones, are then not all left for the end
run spark -n 2 --dist loadfile --no-loadscope-reorder -m "(spark or airflow) and not (deep or kill or cluster)"; finish spark $?
wait $others
finish unit "$(cat "$logs/unit.code")"
finish processes "$(cat "$logs/processes.code")"
python -m scripts.deep_run report

printf '\n'
[ $failed = 0 ] && echo "all suites passed" || echo "a suite failed; see above"
exit $failed
