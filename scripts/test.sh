#!/usr/bin/env bash
# All tests but the deep ones: those that need no JVM beside the one Spark run, then those that start and kill processes of their own.
set -uo pipefail
cd "$(dirname "$0")/.."

# Tests are many small Spark jobs: a JVM that does not stop to optimise needs a third less CPU.
export SPARK_SUBMIT_OPTS=${SPARK_SUBMIT_OPTS:--XX:TieredStopAtLevel=1}

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
failed=0

run() { # name, then pytest's arguments; a group without tests is no failure
    local code=0
    python -m pytest --durations=5 "${@:2}" > "$logs/$1" 2>&1 || code=$?
    [ $code = 5 ] && code=0
    return $code
}

finish() { # name, exit code
    printf '\n=== %s\n' "$1"
    cat "$logs/$1"
    [ "$2" = 0 ] || failed=1
}

run unit -n 2 -m "not (deep or spark or airflow or kill or cluster)" & unit=$!
run spark -m "(spark or airflow) and not (deep or kill or cluster)"; finish spark $?
wait $unit; finish unit $?
run processes -m "(kill or cluster) and not deep"; finish processes $?

printf '\n'
[ $failed = 0 ] && echo "all suites passed" || echo "a suite failed; see above"
exit $failed
