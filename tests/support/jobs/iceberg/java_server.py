"""Iceberg's Java behind lines of JSON, in an environment of its own: no release of it supports the engine's Spark.

<python with pyspark 4.1> tests/support/jobs/iceberg/java_server.py <folder> [<address of a REST catalog>]

Each line of stdin is a command, each line of stdout that starts with `>` its answer:

    {"sql": "…"}                                          run a statement in the catalog `java`; its rows
    {"read": "…metadata.json", "snapshot": 1}             rows of a table, or of a metadata table (…json#files)
    {"tables": ["…metadata.json"]}                        the rows of several tables, as one query
    {"equal": "db.t", "columns": ["id"], "rows": [[1]]}   commit an equality delete
    {"metadata": "db.t"}                                  the table's metadata file

This file imports neither Tussock nor the packages of its tests.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any

from pyspark.sql import SparkSession

PACKAGE = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0"


def open_session(folder: str, rest: str = "") -> SparkSession:
    """Start Spark with a catalog of folders, and the catalog `rest` at an address."""
    settings = {
        "spark.jars.packages": PACKAGE,
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        # Statements over a few rows cost less if nothing is compiled for them.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.adaptive.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.java": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.java.type": "hadoop",
        "spark.sql.catalog.java.warehouse": folder,
        "spark.sql.catalog.java.cache-enabled": "false",
        "spark.sql.defaultCatalog": "java",
    }
    if rest:
        settings |= {
            "spark.sql.catalog.rest": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.rest.type": "rest",
            "spark.sql.catalog.rest.uri": rest,
            "spark.sql.catalog.rest.cache-enabled": "false",
        }
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


class Server:
    """Answers commands."""

    def __init__(self, folder: str, rest: str = "") -> None:
        self._spark: Any = open_session(folder, rest)

    def _load(self, table: str) -> Any:
        return self._spark._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(self._spark._jsparkSession, table)

    def answer(self, command: dict[str, Any]) -> Any:
        """Run a command."""
        if "sql" in command:
            return [list(map(str, row)) for row in self._spark.sql(command["sql"]).collect()]
        if "read" in command:
            reader = self._spark.read.format("iceberg")
            if command.get("snapshot"):
                reader = reader.option("snapshot-id", command["snapshot"])
            frame = reader.load(command["read"])
            texts = _texts(command.get("columns", frame.columns))
            return [list(row) for row in frame.selectExpr(*texts).collect()]
        if "tables" in command:
            return self._read_tables(command["tables"])
        if "metadata" in command:
            return self._load(command["metadata"]).operations().current().metadataFileLocation()
        return self._delete_equal(command["equal"], command["columns"], command["rows"])

    def _read_tables(self, files: list[str]) -> list[list[list[str | None]]]:
        every, parts = [list[list[str | None]]() for _ in files], []
        for place, file in enumerate(files):
            frame = self._spark.read.format("iceberg").load(file)
            parts.append(frame.selectExpr(f"{place} AS place", f"array({', '.join(_texts(frame.columns))}) AS row"))
        for row in reduce(lambda one, other: one.union(other), parts).collect():
            every[row.place].append(list(row.row))
        return every

    def _delete_equal(self, name: str, columns: list[str], rows: list[list[Any]]) -> str:
        jvm, table = self._spark._jvm, self._load(name)
        iceberg = jvm.org.apache.iceberg
        chosen = jvm.java.util.ArrayList()
        for column in columns:
            chosen.add(column)
        schema = table.schema().select(chosen)
        ids = self._spark._sc._gateway.new_array(jvm.int, len(columns))
        for place, column in enumerate(columns):
            ids[place] = table.schema().findField(column).fieldId()
        factory = iceberg.data.GenericAppenderFactory(table.schema(), table.spec(), ids, schema, None)
        path = f"{table.location()}/data/equal-{jvm.java.util.UUID.randomUUID()}.parquet"
        output = iceberg.encryption.EncryptedFiles.plainAsEncryptedOutput(table.io().newOutputFile(path))
        writer = factory.newEqDeleteWriter(output, iceberg.FileFormat.PARQUET, None)
        for row in rows:
            record = iceberg.data.GenericRecord.create(schema)
            for column, value in zip(columns, row, strict=True):
                record.setField(column, jvm.java.lang.Long.valueOf(value) if isinstance(value, int) else value)
            writer.write(record)
        writer.close()
        table.newRowDelta().addDeletes(writer.toDeleteFile()).commit()
        return path


def _texts(names: Sequence[str]) -> list[str]:
    return [f"CAST(`{name}` AS STRING)" for name in names]


def commands() -> Iterator[dict[str, Any]]:
    for line in sys.stdin:
        yield json.loads(line)


def main(folder: str, rest: str = "") -> None:
    server = Server(folder, rest)
    print("> ready", flush=True)
    for command in commands():
        try:
            print("> " + json.dumps({"ok": server.answer(command)}), flush=True)
        except Exception as err:
            print("> " + json.dumps({"error": f"{type(err).__name__}: {str(err)[:2000]}"}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
