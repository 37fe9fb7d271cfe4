#!/bin/sh
# Create random secrets for docker/compose.yaml, unless they exist, in a file that only its user can read.
#
#     docker/secrets.sh [FILE]        FILE: docker/.env, the default of compose
set -eu
file=${1:-$(dirname "$0")/.env}
random() { od -An -N"$1" -tx1 /dev/urandom | tr -d ' \n'; }
if [ -e "$file" ]; then
    echo "$file exists and is kept"
    exit
fi
umask 077
# Write the file atomically: the next call would keep a partial file.
printf 'S3_ACCESS_KEY=%s\nS3_SECRET_KEY=%s\nSPARK_SECRET=%s\n' "$(random 10)" "$(random 32)" "$(random 32)" > "$file.part"
mv "$file.part" "$file"
echo "wrote $file(readable only by you)"
