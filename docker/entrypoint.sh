#!/bin/sh
# Runs the command. Spark reads the secret that its processes share only from a file, so this script writes the secret
# to a file in memory that only this user can read. Without SPARK_SECRET, Spark's processes trust each other.
set -eu
if [ -n "${SPARK_SECRET:-}" ]; then
    umask 077
    mkdir -p "$SPARK_CONF_DIR"
    printf '%s\n' 'spark.authenticate true' "spark.authenticate.secret $SPARK_SECRET" 'spark.network.crypto.enabled true' \
        'spark.master.rest.enabled false' > "$SPARK_CONF_DIR/spark-defaults.conf"  # it checks no secret
    umask 022
    unset SPARK_SECRET
fi
exec "$@"
