"""Refusal of credentials in the options of a source.

Options are stored, and `SHOW CREATE`, `tussock plan` and the pages show them. So a reader whose server wants a
credential names another way to give it (`SourceDescriber.login`).
"""

from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.settings.redaction import is_secret_name, without_secrets
from tussock.jobs.sources.errors import CredentialInOptionError

#: For readers of files, in a folder or in S3.
FILES_LOGIN = (
    "Credentials for S3 come from boto3's standard chain, for example from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
)
_REFERENCE = "${"


def refuse_credentials(source: CreateSource, login: str) -> None:
    """Raise CredentialInOptionError for an option that contains a credential, by its name or by its value.

    A reference, such as `${env:NAME}`, is none.
    """
    for option, value in source.options.items():
        named = is_secret_name(option) and bool(value) and not value.startswith(_REFERENCE)
        if named or without_secrets(value) != value:
            raise CredentialInOptionError(source.name, option, login)
