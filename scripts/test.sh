#!/usr/bin/env bash
# All tests but the deep ones: one Spark run; beside it those that need no JVM, then those that start and kill processes of their own.
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

beside() { # beside the one Spark run: first what needs no JVM, then what starts and kills processes of its own
    run unit -n 2 -m "not (deep or spark or airflow or kill or cluster)"; echo $? > "$logs/unit.code"
    run processes -m "(kill or cluster) and not deep"; echo $? > "$logs/processes.code"
}

beside & others=$!
run spark -m "(spark or airflow) and not (deep or kill or cluster)"; finish spark $?
wait $others
finish unit "$(cat "$logs/unit.code")"
finish processes "$(cat "$logs/processes.code")"

printf '\n'
[ $failed = 0 ] && echo "all suites passed" || echo "a suite failed; see above"
exit $failed
