"""Catalogs of Iceberg tables, opened by pyiceberg's names and properties, and the errors of pyiceberg.

A catalog has a name. pyiceberg finds its properties in the environment (`PYICEBERG_CATALOG__<NAME>__URI`) and in
`.pyiceberg.yaml`; options of a source add to them. Credentials come from the
environment only. pyiceberg opens SQL catalogs (such as SQLite files), REST catalogs and Glue.

The package is imported at the first use, since it takes half a second.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tussock.jobs.iceberg.iceberg_errors import (
    CatalogAccessError,
    CatalogAwayError,
    IcebergMetadataError,
    MissingIcebergTableError,
    NoCatalogError,
)
from tussock.jobs.settings.cause import cause_of
from tussock.statestore.errors import TussockError
from tussock.statestore.extras import MissingExtraError, extras_named

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

_SQLITE = "sqlite:///"
_DENIED_CODES = frozenset(
    {
        "AccessDenied",
        "AccessDeniedException",
        "ExpiredToken",
        "ExpiredTokenException",
        "Forbidden",
        "InvalidAccessKeyId",
        "InvalidSignatureException",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
        "403",
    }
)


@dataclass(frozen=True)
class CatalogAddress:
    """A catalog: its name, and the properties that add to those that pyiceberg finds by the name."""

    name: str
    properties: Mapping[str, str] = field(default_factory=dict)

    def open_catalog(self) -> "Catalog":
        """Open the catalog.

        Raises: NoCatalogError, CatalogAccessError, CatalogAwayError, MissingExtraError.
        """
        with extras_named():
            from pyiceberg.catalog import load_catalog
            from pyiceberg.utils.config import Config
        with self.translating_errors("open it"):
            self._require_database()
            # The package reads the environment and its file once per process, so corrected credentials would not count.
            present: Mapping[str, Any] = Config().get_catalog_config(self.name) or {}
            return load_catalog(self.name, **{**present, **self.properties})

    def load_table(self, name: str) -> "Table":
        """Load the present metadata of a table.

        Args:
            name: its namespaces and its name, joined by dots.

        Raises: as `open_catalog`; MissingIcebergTableError, IcebergMetadataError.
        """
        catalog = self.open_catalog()
        with self.translating_errors(f"load the table {name}", name):
            return catalog.load_table(name)

    @contextmanager
    def translating_errors(self, action: str, table: str = "") -> Iterator[None]:
        """Turn errors of pyiceberg, and of the packages that it uses, into errors of the catalog or of a table.

        Args:
            action: of the calls in this context, as a verb with its object.
            table: that the action concerns; empty: none.
        """
        try:
            yield
        except TussockError:
            raise
        except Exception as err:
            if (translated := self._translate(err, action, table)) is None:
                raise
            raise translated from err

    def _require_database(self) -> None:
        """Require the file of a SQLite catalog: SQLite would create an empty one. Raises NoCatalogError."""
        uri = self.properties.get("uri", "")
        if uri.startswith(_SQLITE) and self.properties.get("init_catalog_tables", "true") == "false":
            path = Path(uri.removeprefix(_SQLITE).partition("?")[0])
            if not path.exists():
                raise NoCatalogError(self.name, f"the file {path} does not exist")

    def _translate(self, err: Exception, action: str, table: str) -> TussockError | None:
        from pyiceberg import exceptions as of

        name, reason = self.name, cause_of(err)
        match err:
            case of.NoSuchTableError() | of.NoSuchNamespaceError() | of.NoSuchIdentifierError():
                return MissingIcebergTableError(name, table, reason)
            case of.UnauthorizedError() | of.ForbiddenError() | of.OAuthError() | of.AuthorizationExpiredError():
                return CatalogAccessError(name, action, reason)
            case (
                of.ServiceUnavailableError()
                | of.ServerError()
                | of.TooManyRequestsError()
                | of.CommitStateUnknownException()
            ):
                return CatalogAwayError(name, action, reason)
            case of.NotInstalledError():
                return MissingExtraError("pyiceberg", "iceberg")
            case of.NoSuchPropertyException():
                return NoCatalogError(name, reason)
            case PermissionError():
                return CatalogAccessError(name, action, reason)
            case FileNotFoundError() if table:
                return IcebergMetadataError(table, f"a file is gone: {reason}")
        return self._translate_foreign(err, action, table, reason)

    def _translate_foreign(self, err: Exception, action: str, table: str, reason: str) -> TussockError | None:
        """Translate the errors of requests, sqlalchemy and botocore, without an import of packages that are unused."""
        module, kind = type(err).__module__.partition(".")[0], type(err).__name__
        if module == "botocore":
            code = str((getattr(err, "response", None) or {}).get("Error", {}).get("Code", ""))
            if code in _DENIED_CODES or "Credentials" in kind:
                return CatalogAccessError(self.name, action, reason)
            return CatalogAwayError(self.name, action, reason)
        if module == "requests":
            no_address = kind in ("MissingSchema", "InvalidSchema", "InvalidURL")
            return (NoCatalogError(self.name, reason)) if no_address else CatalogAwayError(self.name, action, reason)
        if module == "sqlalchemy" or module == "sqlite3":
            if "no such table" in reason or kind in ("ArgumentError", "NoSuchModuleError"):
                return NoCatalogError(self.name, reason)
            return CatalogAwayError(self.name, action, reason)
        if isinstance(err, ValueError) and not table:
            return NoCatalogError(self.name, reason)
        if isinstance(err, OSError):
            denied = "ACCESS_DENIED" in reason or "Forbidden" in reason
            return (CatalogAccessError if denied else CatalogAwayError)(self.name, action, reason)
        return None
