#!/usr/bin/env bash
# All tests except the deep ones, in three groups. `spark` is two processes with a JVM each, which share the test files.
# In parallel run `unit`, two processes without a JVM, and then `processes`: tests that start and kill processes, in turn.
set -uo pipefail
cd "$(dirname "$0")/.."

# The tests run many small Spark jobs. A JVM that does not optimize needs a third less CPU, and one that starts from an
# archive of its classes another third less. Serial GC saves a third of the rest (Arrow batches are humongous to G1, which
# marks the heap for each), as does a code cache that holds the code of all tests.
export SPARK_SUBMIT_OPTS=${SPARK_SUBMIT_OPTS:--XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:MetaspaceSize=384m -XX:ReservedCodeCacheSize=256m}
SPARK_SUBMIT_OPTS=$(python -c 'import os; from tussock.jobs.spark.class_archive import submit_options as o; print({**os.environ, **o()}["SPARK_SUBMIT_OPTS"])')

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
failed=0

# If a test hangs outside Python code, print the stacks of its threads (pytest-timeout's own limit needs Python's lock). If
# a group hangs between tests, stop it and show its output.
watched="-o faulthandler_timeout=700 -o faulthandler_exit_on_timeout=true"

run() { # name, then pytest's arguments; a group without tests does not fail
    local code=0
    timeout --kill-after=30 3000 python -m pytest --durations=5 $watched "${@:2}" > "$logs/$1" 2>&1 || code=$?
    [ $code = 124 ] && echo "stopped: still running after 50 minutes" >> "$logs/$1"
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
    # only the files with such tests, since collecting all files takes half a minute
    run processes -m "(kill or cluster) and not deep" $(grep -rlE "mark\.(kill|cluster)" tests --include=test_*.py); echo $? > "$logs/processes.code"
}

beside & others=$!
# in order of file names, so that the longest tests do not all run at the end
run spark -n 2 --dist loadfile --no-loadscope-reorder -m "(spark or airflow) and not (deep or kill or cluster)"; finish spark $?
wait $others
finish unit "$(cat "$logs/unit.code")"
finish processes "$(cat "$logs/processes.code")"
python -m scripts.deep_run report

printf '\n'
[ $failed = 0 ] && echo "All suites passed." || echo "A suite failed; see above."
exit $failed
