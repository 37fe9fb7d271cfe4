#!/bin/sh
# Runs the command. Spark takes the secret that its processes ask each other for from a file alone, so it is written into one, in memory and for
# this user's eyes; without SPARK_SECRET there is none, and Spark's processes trust each other.
set -eu
if [ -n "${SPARK_SECRET:-}" ]; then
    umask 077
    mkdir -p "$SPARK_CONF_DIR"
    printf '%s\n' 'spark.authenticate true' "spark.authenticate.secret $SPARK_SECRET" 'spark.network.crypto.enabled true' \
        'spark.master.rest.enabled false' > "$SPARK_CONF_DIR/spark-defaults.conf"  # the REST server asks nobody for it
    umask 022
    unset SPARK_SECRET
fi
exec "$@"
