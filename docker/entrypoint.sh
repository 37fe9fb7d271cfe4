#!/bin/sh
# Runs the command. Spark takes the secret that its processes ask each other for from a file alone, so it is written into one, in memory and for
# this user's eyes; without SPARK_SECRET there is none, and Spark's processes trust each other.
set -eu
if [ -n "${SPARK_SECRET:-}" ]; then
    umask 077
    mkdir -p "$SPARK_CONF_DIR"
    printf 'spark.authenticate true\nspark.authenticate.secret %s\nspark.network.crypto.enabled true\n' "$SPARK_SECRET" \
        > "$SPARK_CONF_DIR/spark-defaults.conf"
    umask 022
    unset SPARK_SECRET
fi
exec "$@"
