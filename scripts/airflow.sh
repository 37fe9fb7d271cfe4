#!/usr/bin/env bash
# Runs `airflow` for this checkout: its home, its tools on PATH, its database, connection and pools in place.
set -euo pipefail
cd "$(dirname "$0")/.."

export AIRFLOW_HOME=${AIRFLOW_HOME:-$PWD}
export PATH="$PWD/.venv/bin:$PATH"
STATE=$AIRFLOW_HOME/.airflow
MARK=$STATE/prepared

mkdir -p "$STATE"
# Made once per checkout, so that processes that are started one by one trust each other; never in the repository.
for secret in JWT_SECRET:API_AUTH SECRET_KEY:API; do
    file=$STATE/${secret%%:*}
    [ -s "$file" ] || (umask 077 && python -c 'import secrets; print(secrets.token_urlsafe(48))' > "$file")
    export "AIRFLOW__${secret##*:}__${secret%%:*}=$(cat "$file")"
done

# The pools follow pipelines/, so a new pipeline gets its own.
wanted=$(cat airflow.cfg requirements.lock "${TUSSOCK_PIPELINES:-pipelines}"/*/pipeline.toml | sha256sum)
if [ "$(cat "$MARK" 2>/dev/null)" != "$wanted" ]; then
    airflow db migrate >"$STATE/prepare.log" 2>&1 || { cat "$STATE/prepare.log" >&2; exit 1; }
    python scripts/prepare_airflow.py >>"$STATE/prepare.log" 2>&1 || { cat "$STATE/prepare.log" >&2; exit 1; }
    echo "$wanted" > "$MARK"
fi

exec airflow "$@"
