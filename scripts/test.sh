#!/usr/bin/env bash
# All tests except the deep ones. Each lane is a folder of tests/ (see tests/support/lanes.py) and a pytest of its own.
# `scripts/test.sh unit airflow` runs these lanes, one after the other. Without arguments, spark and then
# processes and airflow run beside unit. `spark` is two processes with a JVM each, which share the test files.
set -uo pipefail
cd "$(dirname "$0")/.."

# The tests run many small Spark jobs. A JVM that does not optimize needs a third less CPU, and one that starts from an
# archive of its classes another third less. Serial GC saves a third of the rest (Arrow batches are humongous to G1, which
# marks the heap for each), as does a code cache that holds the code of all tests.
export SPARK_SUBMIT_OPTS=${SPARK_SUBMIT_OPTS:--XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:MetaspaceSize=384m -XX:ReservedCodeCacheSize=256m}
SPARK_SUBMIT_OPTS=$(python -c 'import os; from tussock.jobs.spark.class_archive import submit_options as o; print({**os.environ, **o()}["SPARK_SUBMIT_OPTS"])')

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

# If a test hangs outside Python code, print the stacks of its threads (pytest-timeout's own limit needs Python's lock). If
# a lane hangs between tests, stop it and show its output.
watched="-o faulthandler_timeout=700 -o faulthandler_exit_on_timeout=true"

options() { # of pytest, by lane
    case $1 in
        unit) echo "-n 2" ;;
        # in order of file names, so that the longest tests do not all run at the end
        spark) echo "-n 2 --dist loadfile --no-loadscope-reorder" ;;
        airflow | processes) echo "" ;;
        *) echo "unknown lane $1: unit, spark, airflow or processes" >&2; return 1 ;;
    esac
}

run() { # lane
    local code=0 begin=$SECONDS chosen
    chosen=$(options "$1") || return 1
    timeout --kill-after=30 3000 python -m pytest --durations=8 $watched $chosen -m "not deep" "tests/$1" > "$logs/$1" 2>&1 || code=$?
    [ $code = 124 ] && echo "stopped: still running after 50 minutes" >> "$logs/$1"
    echo "lane $1: $((SECONDS - begin)) s" >> "$logs/$1"
    return $code
}

failed=()
finish() { # lane, exit code
    printf '\n=== %s\n' "$1"
    cat "$logs/$1"
    [ "$2" = 0 ] || failed+=("$1")
}

turn() { # lanes, one after the other
    for lane in "$@"; do
        run "$lane"; echo $? > "$logs/$lane.code"
    done
}

if [ $# = 0 ]; then
    turn spark processes airflow & beside=$!
    turn unit
    wait $beside
    set -- spark unit processes airflow
    python -m scripts.deep_run report
else
    turn "$@"
fi
for lane in "$@"; do
    finish "$lane" "$(cat "$logs/$lane.code")"
done

printf '\n'
[ ${#failed[@]} = 0 ] && echo "All tests passed." || echo "Failed lanes: ${failed[*]}; see above."
exit ${#failed[@]}
