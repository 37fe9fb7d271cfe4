"""Refusal of credentials in the options of a source.

Options are stored, and `SHOW CREATE`, `tussock plan` and the pages show them. So a reader whose server wants a
credential names another way to give it (`SourceDescriber.login`).
"""

import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path

from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.settings.connections import (
    CONNECTION_PARTS,
    UnreadableConnectionError,
    connection_variable,
    read_connection,
)
from tussock.jobs.settings.redaction import has_credential, is_secret_name
from tussock.jobs.sources.errors import CredentialInOptionError
from tussock.statestore.errors import InputError

#: For readers of files, in a folder or in S3.
FILES_LOGIN = (
    "Credentials for S3 come from boto3's standard chain, for example from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
)
#: For readers that resolve references.
REFERENCES_LOGIN = (
    "Write ${env:NAME} for a variable of the environment, ${file:/a/path} for the content of a file, or "
    "${airflow:NAME.password} for a connection of Airflow. The process that runs epochs needs it"
)
_REFERENCE = "${"
_RESOLVED = re.compile(r"\$\{(env|file|airflow):([^}]+)\}")


class MissingReferenceError(InputError):
    """An option of a source refers to a variable or a file that this process cannot read."""

    source: str
    option: str
    what: str

    def __str__(self) -> str:
        return (
            f"source {self.source!r}: option {self.option} refers to {self.what}, which cannot be read. Set it for the "
            "process that runs epochs. The next run tries again."
        )


def refuse_credentials(source: CreateSource, login: str) -> None:
    """Raise CredentialInOptionError for an option that contains a credential, by its name or by its value.

    A reference, such as `${env:NAME}`, is none.
    """
    for option, value in source.options.items():
        named = is_secret_name(option) and bool(value) and not value.startswith(_REFERENCE)
        if named or has_credential(value):
            raise CredentialInOptionError(source.name, option, login)


def resolve_references(source: CreateSource, options: Collection[str]) -> dict[str, str]:
    """Return those of a source's options, with credentials of the environment or of files in place of references.

    Raises MissingReferenceError.
    """
    return {name: _resolve(source, name, value) for name, value in source.options.items() if name in options}


def connections_named(options: Mapping[str, str]) -> frozenset[str]:
    """Return the Airflow connections that options refer to."""
    references = (match for value in options.values() for match in _RESOLVED.finditer(value))
    return frozenset(match[2].rpartition(".")[0] for match in references if match[1] == "airflow")


def _part_of_connection(name: str, part: str) -> str:
    """Return a part of a connection. Raises KeyError, UnreadableConnectionError."""
    if part not in CONNECTION_PARTS or not (value := getattr(read_connection(name), part)):
        raise KeyError(part)
    return str(value)


def _resolve(source: CreateSource, option: str, value: str) -> str:
    def replace_reference(reference: re.Match[str]) -> str:
        kind, name = reference.groups()
        try:
            match kind:
                case "env":
                    what = f"the environment variable {name}"
                    return os.environ[name]
                case "file":
                    what = f"the file {name}"
                    return Path(name).read_text().strip()
                case _:
                    connection, _, part = name.rpartition(".")
                    variable = connection_variable(connection)
                    what = (
                        f"the part {part!r} of the Airflow connection {connection} (variable {variable}; parts: "
                        f"{', '.join(CONNECTION_PARTS)})"
                    )
                    return _part_of_connection(connection, part)
        except (KeyError, OSError, ValueError, UnreadableConnectionError) as err:
            raise MissingReferenceError(source.name, option, what) from err

    return _RESOLVED.sub(replace_reference, value)
