"""Remove credentials from texts that leave the process: errors, records of runs, log lines and pages.

Libraries quote what they were given: a presigned address, the options of a server, the address of a database with its
password. Everyone who sees a pipeline reads such a text. The edges apply `without_secrets` to every text, so that no
library has to be known.
"""

import re

from tussock.jobs.settings.object_ticket import with_object_names

HIDDEN = "***"
_NAME = r"(?:secret|password|passwd|access[._-]?key|session[._-]?token|security[._-]?token|access[._-]?token)"
_BY_SHAPE = re.compile(
    # a password in an address: scheme://user:password@host
    r"(?P<address>\b[A-Za-z][A-Za-z0-9+.-]{0,30}://[^\s/:@'\"]{0,200}:)[^\s/@'\"]{1,500}(?=@)"
    # a parameter of a presigned address of S3, GCS or Azure
    r"|(?P<parameter>[?&](?:X-(?:Amz|Goog)-(?:Signature|Credential|Security-Token)"
    r"|Signature|AWSAccessKeyId|sig|token)=)"
    r"[^\s&'\"<>]+"
    # a header of HTTP
    r"|(?P<header>\b(?:Bearer|Basic)\s+)[A-Za-z0-9+/_.=~-]{16,}"
    # a setting or an option: fs.s3a.secret.key=…, "aws_secret_access_key": "…"
    rf"|(?P<setting>(?<![\w.-])[\w.-]{{0,80}}{_NAME}[\w.-]{{0,40}}(?:=|['\"]\s?[:=]\s?)(?P<quote>['\"])?)"
    r"(?(quote)(?:(?!(?P=quote))[^\n])+|[^\s'\",;&)}\]]+)"
    # an access key of AWS
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
    re.IGNORECASE,
)


def without_secrets(text: str) -> str:
    """Return the text with HIDDEN in the place of passwords, keys, tokens and signatures.

    The address of a ticket becomes the name of its object. Names of settings stay. A second call changes nothing.

    Cost: linear in the text.
    """
    return _BY_SHAPE.sub(_hidden, with_object_names(text))


def _hidden(found: re.Match[str]) -> str:
    kept = next((found[name] for name in ("address", "parameter", "header", "setting") if found[name]), "")
    return kept + HIDDEN
