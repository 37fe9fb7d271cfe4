#!/bin/sh
# Makes up the secrets of docker/compose.yaml where there are none yet: random, in a file that only its user reads.
#
#     docker/secrets.sh [FILE]        FILE: docker/.env, where compose finds it by itself
set -eu
file=${1:-$(dirname "$0")/.env}
random() { od -An -N"$1" -tx1 /dev/urandom | tr -d ' \n'; }
if [ -e "$file" ]; then
    echo "$file is there, and stays as it is"
    exit
fi
umask 077
# Whole or not at all: what is half there would be kept by the next call.
printf 'S3_ACCESS_KEY=%s\nS3_SECRET_KEY=%s\nSPARK_SECRET=%s\n' "$(random 10)" "$(random 32)" "$(random 32)" > "$file.part"
mv "$file.part" "$file"
echo "wrote $file, for your eyes alone"
