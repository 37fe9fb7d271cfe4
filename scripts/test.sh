#!/usr/bin/env bash
# All tests but the deep ones, in two lanes that take about as long: most of those that need Spark; beside them those that need no JVM, those
# that start and kill processes of their own, and four long ones with a Spark of their own.
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

long="tests/functions tests/queries tests/truth tests/jobs/gate"

beside() { # one after the other
    run unit -n 2 -m "not (deep or spark or airflow or kill or cluster)"; echo $? > "$logs/unit.code"
    run processes -m "(kill or cluster) and not deep"; echo $? > "$logs/processes.code"
    run views -m "spark and not deep" $long; echo $? > "$logs/views.code"
}

beside & others=$!
run spark -m "(spark or airflow) and not (deep or kill or cluster)" $(printf -- "--ignore=%s " $long); finish spark $?
wait $others
finish unit "$(cat "$logs/unit.code")"
finish processes "$(cat "$logs/processes.code")"
finish views "$(cat "$logs/views.code")"

printf '\n'
[ $failed = 0 ] && echo "all suites passed" || echo "a suite failed; see above"
exit $failed
