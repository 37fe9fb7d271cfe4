"""Errors of catalogs and of Iceberg tables, however they are used."""

from tussock.statestore.errors import InputError, RetryableError


class NoCatalogError(InputError):
    """The properties of a catalog are missing, or do not lead to a catalog."""

    catalog: str
    reason: str

    def __str__(self) -> str:
        name = self.catalog.upper().replace("-", "_")
        return (
            f"the Iceberg catalog {self.catalog!r} cannot be opened: {self.reason.rstrip('.')}. Give its properties, "
            f"by pyiceberg's names: as options of the source (`catalog.type`, `catalog.uri`, `catalog.warehouse`), as "
            f"environment variables (PYICEBERG_CATALOG__{name}__URI), or in the file .pyiceberg.yaml."
        )


class CatalogAccessError(InputError):
    """A catalog, or the storage of its tables, rejects the credentials, or denies an action to them."""

    catalog: str
    action: str
    reason: str

    def __str__(self) -> str:
        name = self.catalog.upper().replace("-", "_")
        return (
            f"the Iceberg catalog {self.catalog!r} denied access: it did not allow to {self.action}: "
            f"{self.reason.rstrip('.')}. Correct the credentials, which pyiceberg reads from the environment "
            f"(PYICEBERG_CATALOG__{name}__CREDENTIAL, __TOKEN; for Glue and S3, AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY) or from .pyiceberg.yaml, or grant them this right. The next run tries again."
        )


class CatalogAwayError(RetryableError):
    """A catalog does not answer."""

    catalog: str
    action: str
    reason: str

    def __str__(self) -> str:
        return (
            f"the Iceberg catalog {self.catalog!r} does not answer: it failed to {self.action}: "
            f"{self.reason.rstrip('.')}. Nothing was changed. The next run tries again; if it fails too, check the "
            "property `uri` of the catalog, and whether its server runs."
        )


class MissingIcebergTableError(InputError):
    """A catalog contains no table of a name."""

    catalog: str
    table: str
    reason: str

    def __str__(self) -> str:
        return (
            f"the Iceberg catalog {self.catalog!r} has no table {self.table!r}: {self.reason.rstrip('.')}. Create "
            "the table, or correct its name (`namespace.table`). If the table was renamed, rename it back: a source "
            "belongs to one name."
        )


class IcebergMetadataError(InputError):
    """A metadata file, manifest list or manifest of a table cannot be read."""

    table: str
    reason: str

    def __str__(self) -> str:
        return (
            f"the metadata of the Iceberg table {self.table} cannot be read: {self.reason.rstrip('.')}. Views keep "
            "the rows already read. Restore the file that is named, or register the table's newest intact metadata "
            "file again in its catalog (`register_table`); the next run reads it."
        )


class UnsupportedIcebergFeatureError(InputError, hides_row_values=True):
    """A table uses a feature that this reader does not support."""

    table: str
    feature: str

    def __str__(self) -> str:
        return (
            f"the Iceberg table {self.table} has {self.feature}, which sources do not support. Rewrite these files as "
            "Parquet files in the table's folder (`CALL system.rewrite_data_files` in Spark with the property "
            "write.format.default = parquet), or copy the rows to another table and read that one."
        )
