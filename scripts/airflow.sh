#!/usr/bin/env bash
# Runs `airflow` for this checkout: sets its home and PATH, and prepares its database and connection.
#
#     scripts/airflow.sh up                run all of Airflow, until Ctrl-C
#     scripts/airflow.sh ARGUMENT …        run one command of Airflow
set -euo pipefail
cd "$(dirname "$0")/.."

export AIRFLOW_HOME=${AIRFLOW_HOME:-$PWD}
export PATH="$PWD/.venv/bin:$PATH"
STATE=$AIRFLOW_HOME/.airflow
MARK=$STATE/prepared
PASSWORDS=$STATE/passwords.json

# Only this user may read passwords, keys, logs and the database. So the folder and the files are created here, closed to
# others, before Airflow fills them. Other files, such as stores and data that jobs write, follow the user's umask.
(umask 077 && mkdir -p "$STATE" && touch "$PASSWORDS" "$STATE/airflow.db")
chmod 700 "$STATE"
find "$STATE" -maxdepth 1 -type f -exec chmod go= {} +  # files of an earlier release

# Create the admin's password here, since Airflow prints the passwords that it creates, and logs may keep that output.
[ -s "$PASSWORDS" ] || python -c 'import json, secrets; print(json.dumps({"admin": secrets.token_urlsafe(16)}))' > "$PASSWORDS"

# Create the keys once per checkout, so that separately started processes trust each other. They are never committed.
for secret in JWT_SECRET:API_AUTH SECRET_KEY:API; do
    file=$STATE/${secret%%:*}
    [ -s "$file" ] || (umask 077 && python -c 'import secrets; print(secrets.token_urlsafe(48))' > "$file")
    export "AIRFLOW__${secret##*:}__${secret%%:*}=$(cat "$file")"
done

wanted=$(cat airflow.cfg requirements.lock scripts/prepare_airflow.py | sha256sum)
if [ "$(cat "$MARK" 2>/dev/null)" != "$wanted" ]; then
    (umask 077 && : > "$STATE/prepare.log" && : > "$MARK")
    airflow db migrate >"$STATE/prepare.log" 2>&1 || { cat "$STATE/prepare.log" >&2; exit 1; }
    python scripts/prepare_airflow.py >>"$STATE/prepare.log" 2>&1 || { cat "$STATE/prepare.log" >&2; exit 1; }
    echo "$wanted" > "$MARK"
fi

# Run Airflow's four processes, until Ctrl-C or until one of them ends. `airflow standalone` is not used: its log servers
# listen on all interfaces, whatever the configuration. On one machine they are not needed, since logs are files.
up() {
    local name
    declare -A arguments=([api-server]="" [scheduler]=--skip-serve-logs [dag-processor]="" [triggerer]=--skip-serve-logs)
    for name in "${!arguments[@]}"; do
        # Each has its own session, so that Ctrl-C reaches only this script, which passes it on once. A scheduler that is
        # stopped twice never ends.
        # shellcheck disable=SC2086  # without arguments, pass none
        setsid airflow "$name" ${arguments[$name]} > >(sed -u "s/^/$(printf '%-13s' "$name") | /") 2>&1 &
        children+=($!)
    done
    show_address & helper=$!
    trap stop EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    wait -n "${children[@]}"
}

children=()
STOP_TIMEOUT_S=30

stop() {
    trap - EXIT
    kill "$helper" "${children[@]}" 2>/dev/null || true
    for ((second = 0; second < STOP_TIMEOUT_S; second++)); do
        kill -0 "${children[@]}" 2>/dev/null || break
        sleep 1
    done
    for child in "${children[@]}"; do kill -KILL -- "-$child" 2>/dev/null || true; done  # and its remaining children
}

show_address() { # once the API server answers; prints the password only to a terminal
    local port=${AIRFLOW__API__PORT:-8080} login="in $PASSWORDS"
    until (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do sleep 1; done
    if [ -t 1 ]; then login=$(cat "$PASSWORDS"); fi
    printf '\nAirflow: %s   user and password: %s\n\n' "${AIRFLOW__API__BASE_URL:-http://localhost:$port}" "$login"
}

if [ "${1:-}" = up ]; then up; else exec airflow "$@"; fi
