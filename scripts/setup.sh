#!/usr/bin/env bash
# Creates .venv from requirements.lock, finds or installs Java, and archives Spark's classes. Skips the steps that are done.
# `setup.sh python [MODULE…]` only creates .venv, and installs all packages again if one of the modules is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

UV_VERSION=0.13.8
VENV=.venv
STAMP=$VENV/.tussock-stamp

say() { printf 'setup: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

find_python() {
    local candidate
    for candidate in ${PYTHON:-} python3 python3.11 python3.12 python3.13; do
        if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    fail "no Python 3.11, 3.12 or 3.13 with its venv module found. Install one (Debian: apt-get install python3 python3-venv) or set PYTHON."
}

java_major() { # 17 for "17.0.15", 8 for "1.8.0"; 0 if $1 is not a java
    local version
    version=$("$1" -version 2>&1 | sed -n 's/.* version "\([0-9.]*\).*/\1/p' | head -1) || true
    version=${version#1.}
    echo "${version%%.*}" | grep -E '^[0-9]+$' || echo 0
}

have_java() { # pyspark checks JAVA_HOME before PATH, so this does too
    local java=${JAVA_HOME:+$JAVA_HOME/bin/java}
    [ "$(java_major "${java:-java}")" -ge 17 ]
}

ensure_java() {
    if have_java; then return; fi
    if [ -n "${JAVA_HOME:-}" ]; then
        fail "JAVA_HOME ($JAVA_HOME) holds no Java 17 or later, which Spark 4 needs. Point it to one, or unset it."
    fi
    if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
        fail "Java 17 or later is missing, and it cannot be installed from here (apt-get and root are needed)." \
             "Install a JRE (Debian: openjdk-17-jre-headless; Fedora: java-17-openjdk-headless; macOS: openjdk@17) or set JAVA_HOME."
    fi
    say "installing Java"
    apt-get update -qq >&2
    local package
    for package in openjdk-17-jre-headless openjdk-21-jre-headless; do
        if DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >&2; then break; fi
    done
    have_java || fail "apt-get did not bring a Java 17 or later; install one by hand and run this again."
}

# Compare the Python and the folder too: the scripts of a copied or moved .venv point to its old place.
wanted() { { cat requirements.lock scripts/setup.sh pyproject.toml; pwd; } | sha256sum | cut -d' ' -f1; }

have_modules() { # a .venv of another origin, such as an image's, may lack packages although its stamp is current
    [ $# = 0 ] || $VENV/bin/python -c 'import sys; from importlib.util import find_spec as find
sys.exit(not all(map(find, sys.argv[1:])))' "$@" 2>/dev/null
}

ensure_venv() { # arguments: modules that must be there
    if [ "$(cat $STAMP 2>/dev/null)" = "$(wanted)" ] && have_modules "$@"; then return; fi
    local python
    if [ ! -x $VENV/bin/python ] || ! $VENV/bin/python -c pass 2>/dev/null; then
        python=$(find_python)
        say "creating $VENV with $python"
        "$python" -m venv --clear $VENV
    fi
    if [ "$($VENV/bin/uv --version 2>/dev/null | cut -d' ' -f2)" != $UV_VERSION ]; then
        $VENV/bin/python -m pip --version >/dev/null 2>&1 || $VENV/bin/python -m ensurepip >/dev/null
        $VENV/bin/python -m pip install --quiet --disable-pip-version-check "uv==$UV_VERSION"
    fi
    say "installing $(grep -c '^[a-zA-Z0-9]' requirements.lock) locked packages (a few minutes the first time)"
    # Compile byte code now: with PYTHONDONTWRITEBYTECODE set, as in many containers, each process would compile its imports.
    $VENV/bin/uv pip install --quiet --compile-bytecode --python $VENV/bin/python --require-hashes -r requirements.lock
    $VENV/bin/uv pip install --quiet --python $VENV/bin/python --no-deps --no-build-isolation --editable .
    wanted > $STAMP
}

make_archive() { # classes of Spark's JVM (jobs/spark/class_archive.py), once per Java, Spark and .venv
    [ -e jobs/submitted.py ] || return 0  # an image with only the packages has no code to run
    $VENV/bin/python -m tussock.jobs.submitted class-archive --missing >/dev/null 2>&1 || say "could not create the archive; Spark starts some seconds slower without it"
}

if [ "${1:-}" = python ]; then
    ensure_venv "${@:2}"
else
    ensure_java
    ensure_venv
    make_archive
fi
