#!/usr/bin/env bash
# record.sh LIB COUNT: record COUNT messages in each of messages.jsonl and messages_with_schema.jsonl. See README.md.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd) lib=$1
data=$(mktemp -d) port=54931
as_postgres() { if [ "$(id -u)" = 0 ]; then setpriv --reuid=postgres --regid=postgres --clear-groups "$@"; else "$@"; fi; }
[ "$(id -u)" != 0 ] || chown postgres "$data"
PATH=$PATH:$(dirname "$(readlink -f "$(command -v initdb)")")
as_postgres initdb -D "$data/db" -A trust -U postgres > "$data/initdb.txt"
options="-p $port -c wal_level=logical -c unix_socket_directories=$data -c fsync=off"
as_postgres pg_ctl -D "$data/db" -l "$data/postgres.txt" -o "$options" -w start > /dev/null
trap 'as_postgres pg_ctl -D "$data/db" -m immediate stop > /dev/null; rm -rf "$data"' EXIT
sql() { psql -q -h 127.0.0.1 -p $port -U postgres -v ON_ERROR_STOP=1 "$@"; }
for name in messages messages_with_schema; do
  schemas=$([ $name = messages ] && echo false || echo true)
  sql -c 'DROP TABLE IF EXISTS customers' -f "$here/before.sql"
  : > "$data/out.txt"
  java -cp "$lib/*" "$here/Record.java" $port $schemas "$name" "$here/$name.jsonl" "$2" > "$data/out.txt" 2> "$data/err.txt" &
  recorder=$!
  # The slot exists before the snapshot is read, so it keeps the changes that follow.
  until grep -q 'snapshot read' "$data/out.txt"; do kill -0 $recorder || { tail "$data/err.txt"; exit 1; }; sleep 0.2; done
  sql -f "$here/changes.sql"
  wait $recorder
  tail -1 "$data/out.txt"
done
