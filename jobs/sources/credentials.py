"""Refusal of credentials in the options of a source.

Options are stored, and `SHOW CREATE`, `tussock plan` and the pages show them. So a reader whose server wants a
credential names another way to give it (`SourceDescriber.login`).
"""

import os
import re
from collections.abc import Collection
from pathlib import Path

from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.settings.redaction import is_secret_name, without_secrets
from tussock.jobs.sources.errors import CredentialInOptionError
from tussock.statestore.errors import InputError

#: For readers of files, in a folder or in S3.
FILES_LOGIN = (
    "Credentials for S3 come from boto3's standard chain, for example from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
)
#: For readers that resolve references.
REFERENCES_LOGIN = (
    "Write ${env:NAME} for a variable of the environment, or ${file:/a/path} for the content of a file. The "
    "process that runs epochs needs it"
)
_REFERENCE = "${"
_RESOLVED = re.compile(r"\$\{(env|file):([^}]+)\}")


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
        if named or without_secrets(value) != value:
            raise CredentialInOptionError(source.name, option, login)


def resolve_references(source: CreateSource, options: Collection[str]) -> dict[str, str]:
    """Return those of a source's options, with credentials of the environment or of files in place of references.

    Raises MissingReferenceError.
    """
    return {name: _resolve(source, name, value) for name, value in source.options.items() if name in options}


def _resolve(source: CreateSource, option: str, value: str) -> str:
    def replace_reference(match: re.Match[str]) -> str:
        kind, name = match.groups()
        try:
            return os.environ[name] if kind == "env" else Path(name).read_text().strip()
        except (KeyError, OSError) as err:
            what = f"the environment variable {name}" if kind == "env" else f"the file {name}"
            raise MissingReferenceError(source.name, option, what) from err

    return _RESOLVED.sub(replace_reference, value)
