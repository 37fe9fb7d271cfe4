"""Remove credentials from texts that leave the process: errors, records of runs, log lines and pages.

Libraries quote what they were given: a presigned address, the options of a server, the address of a database with its
password. Everyone who sees a pipeline reads such a text. The edges apply `without_secrets` to every text, so that no
library has to be known. It recognises a credential by

    its value            a variable of this process's environment has this value, and the name of a credential
    its own shape        a private key in PEM, an access key of AWS, a token of GitHub, a JWT, a webhook of Slack
    its place            the user info of an address, a header of HTTP, a parameter of a signed address, mysql -p…
    the name of a value  password=…, 'secret': '…', --api-key …, ('password', '…'), <password>…</password>

A name such as `password` makes any value a credential. A name such as `token` has other meanings too, so its value must
look random. So must a value that follows its name in a sentence: "the password … is wrong". A random value that stands
alone, or has another name, stays: nothing distinguishes it from a digest.
"""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from tussock.jobs.settings.object_ticket import with_object_names

HIDDEN = "***"
_WORD_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")

# --- credentials with a shape of their own ----------------------------------------------------------------------------

_OWN_SHAPE = re.compile(
    r"(?P<keep>"
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY[A-Z ]{0,40}-----(?=(?s:.))"
    r"|hooks\.slack\.com/(?:services|workflows|triggers)/"
    r"|discord(?:app)?\.com/api/webhooks/\d{1,30}/"
    r"|(?:webhook|outlook)\.office\.com/webhook(?:b2)?/"
    r"|api\.telegram\.org/(?:file/)?bot"
    r")(?:(?<=-----)(?s:.*?)(?P<end>-----END [A-Z0-9 ]{0,40}PRIVATE KEY[A-Z ]{0,40}-----|\Z)|[^\s'\"<>]+)"
    r"|\b(?:"
    r"(?:A3T[A-Z0-9]|AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}"  # AWS
    r"|GOOG[A-Z0-9]{20,60}|AIza[\w-]{35}|ya29\.[\w-]{20,}"  # Google
    r"|gh[pousr]_[A-Za-z0-9]{36,}|github_pat_\w{22,}|gl(?:pat|dt|rt|cbt|ft|oas|ptt|soat|agent)-[\w.-]{20,}"
    r"|xox[abeoprs]-[\w-]{10,}|xapp-[\w-]{10,}"  # Slack
    r"|[sr]k_(?:live|test)_[A-Za-z0-9]{10,}|whsec_[\w+/=]{20,}|sk-(?:[a-z]+-)*[A-Za-z0-9_-]{20,}"
    r"|dapi[a-f0-9]{32}|hf_[A-Za-z]{30,}|hv[sbr]\.[\w-]{20,}|SG\.[\w-]{16,}\.[\w-]{16,}"
    r"|npm_[A-Za-z0-9]{36}|pypi-[\w-]{50,}|dckr_pat_[\w-]{20,}|do[opr]_v1_[a-f0-9]{64}|AKCp\w{60,}|NRAK-[A-Z0-9]{20,}"
    r"|AGE-SECRET-KEY-1[0-9A-Z]{50,}|LTAI[A-Za-z0-9]{12,30}|gls?[ac]_[\w+/=]{30,}|SK[a-f0-9]{32}"
    r"|shp(?:at|ca|pa|ss)_\w{32}|(?:ops_eyJ|dp\.(?:pt|st|ct)\.|pul-|pscale_\w{1,5}_|ntn_|lin_api_)[\w.=-]{30,}"
    r"|(?:sntry[su]_|xkeysib-|pnu_|PMAK-|ABSK)[\w.=-]{30,}"
    r"|eyJ[\w-]{8,}\.eyJ[\w-]{8,}(?:\.[\w-]*)?"  # JWT
    r")"
)

# --- credentials by their place ---------------------------------------------------------------------------------------

_ADDRESS = re.compile(
    r"(?P<scheme>\b[A-Za-z][\w+.-]{0,30}://)(?P<user>[^\s/:'\"<>\[\]]{0,200}):"
    r"(?!\d{1,5}(?:[/?#,\s'\"]|$))"  # a port
    # The second form has a slash or a question mark in its password, which should have been escaped.
    r"(?:[^\s/?#'\"<>]{1,500}|[^\s'\"<>]{1,500})(?=@)"
    r"|(?P<token>\bhttps?://)(?P<lone>[\w.%~+-]{12,300})(?=@)"
    r"|(?P<oracle>\bjdbc:oracle:\w{1,10}:[^\s/'\"@]{1,200}/)[^\s'\"@]{1,200}(?=@)"
    r"|(?P<encoded>\b[A-Za-z][\w+.-]{0,30}%3[Aa]%2[Ff]%2[Ff][^\s/:'\"<>%]{0,200}%3[Aa])"
    r"(?:(?!%40)[^\s'\"<>&]){1,500}(?=%40)"  # in a parameter of another address
)
#: An address that is no part of a text. So digits and a slash after the user are no port if an `@` follows.
_LONE_ADDRESS = re.compile(r"(?P<keep>^\s*[A-Za-z][\w+.-]*://[^\s/:@?]*:)[^\s?]*(?=@)")
#: With any value except a reference to the environment, a file or a connection, and a comparison of columns in SQL.
_PASSWORD_SETTING = re.compile(r"password\s*=(?!\s*(?:['\"]?\$\{|\w+\.\w*password\b))", re.IGNORECASE)
_PARAMETER = re.compile(
    r"(?P<keep>(?:[?&;]|&amp;)(?:X-(?:Amz|Goog|Oss|Cos)-(?:Signature|Credential|Security-Token)|(?:q-)?Signature"
    r"|(?:AWS|OSS)AccessKeyId|GoogleAccessId|security-token|sig|token|auth)=)[^\s&'\"<>]+",
    re.IGNORECASE,
)
_QUERY_KEY = re.compile(r"(?P<keep>[?&](?:key|code|auth_?key)=)(?P<value>[^\s&'\"<>]+)", re.IGNORECASE)
_HEADER = re.compile(
    r"(?P<keep>\b(?:(?:proxy-)?authorization|(?:set-)?cookie)\\?['\"]?\s?[:=,]\s?\\?['\"]?)(?P<value>[^\n'\"\\]+)",
    re.IGNORECASE,
)
_SCHEME = re.compile(r"(?P<keep>\b(?:Bearer|Basic)\s+)(?P<value>[A-Za-z0-9+/_.=~-]{4,})", re.IGNORECASE)
_AUTHORIZATION = re.compile(
    r"(?:basic|bearer|digest|token|negotiate|ntlm|apikey|shared\w{0,20}|(?:aws|goog|hmac)\S{0,30})\s+\S{3,}",
    re.IGNORECASE,
)
_LOGIN = re.compile(
    r"(?P<keep>\b(?:identified\s+by|(?:login\s+\S{1,100}\s+)password)\s+|\s--?u(?:ser)?[ =]['\"]?[^\s:'\"]{1,100}:)"
    r"(?P<value>'[^'\n]+'|\"[^\"\n]+\"|[^\s'\"]+)",
    re.IGNORECASE,
)
_COMMAND = re.compile(
    r"(?P<keep>\b(?:mysql|mariadb)[\w-]{0,20}\s(?:[^\n|;&]{0,300}?\s)?-p"
    r"|\b(?:sshpass|snowsql|(?:docker|podman|skopeo|helm|oc|cf|az)\s(?:[^\n|;&]{0,99}?\s)?login)\s"
    r"(?:[^\n|;&]{0,300}?\s)?-p\s?"
    r"|\bredis-cli\s(?:[^\n|;&]{0,300}?\s)?-a\s|\bldap[a-z]{3,9}\s(?:[^\n|;&]{0,300}?\s)?-w\s"
    r"|\s-pass(?:in|out)?\spass:|\bsqlplus\s[\w$]{1,100}/)"
    r"(?P<value>'[^'\n]+'|\"[^\"\n]+\"|[^\s'\"@;|&-][^\s'\"@]*)"
)

# --- credentials by the name of their value ---------------------------------------------------------------------------

_STRONG_NAME = (
    r"pass[._ -]?(?:word|wd|w(?![a-z])|phrase|code)|pswd|(?<![a-zA-Z])pwd|(?<=[a-z])Pwd"
    r"|(?<![a-zA-Z])pw(?![a-zA-Z])|(?-i:(?<=[a-z])Pw(?![a-z]))|(?<!\d{12}:)secret(?!ar|smanager)"
    r"|(?:access|account|api|app|private|encryption|signing|master|storage|subscription|service|customer|license|shared"
    r"|auth|publish|ingest|function|fernet)[._-]?key|(?:access|api) (?:key|token)"
    r"|(?:session|security|access|refresh|auth|oauth|api|bot|sas|bearer|vault|csrf)[._-]?token"
    r"|shared[._-]?access[._-]?signature|encoded[._-]?credentials?|session[._-]?key"
    r"|(?:key|trust)[._-]?store[._-]?pass|(?<=-)(?:store|key)pass(?![a-z])"
    r"|(?:db|user|admin|root|ftp|smtp|ssh)[._-]?pass(?![A-Za-z])"
)
_WEAK_NAME = (
    r"token|credentials?|bearer|(?<![a-zA-Z])(?:auth|pass|jwt|sig|signature|dsn)(?![a-zA-Z])|(?<=[a-z])(?:Pass|Sig)\b"
)
_NAMED = re.compile(
    rf"(?P<strong>(?i:{_STRONG_NAME}))(?P<rest>[\w.-]{{0,120}})"
    rf"|(?P<weak>(?i:{_WEAK_NAME}))(?P<rest_of_weak>[\w.-]{{0,120}})"
)
_QUOTED = r"\\*['\"`]"
_SEPARATOR = re.compile(
    rf"(?P<ends>{_QUOTED})?(?:"
    r"(?P<sets>\s?(?:=>|->|:=|==|=|%3[Dd])\s?)"
    r"|(?P<tells>\s?:\s?|:\s{1,8})"
    r"|</name>\s{0,20}<value>(?P<in_xml>)"
    r"|(?P<pairs>(?:,\s{0,20}|\s{1,20})(?:\\*['\"])?value(?:\\*['\"])?\s?[:=]\s?)"
    r"|(?P<passes>\()(?=\\*['\"])"
    r"|(?P<closes>>)(?=[^<\s]+</)"
    r"|(?P<lists>,\s?)(?=[bru]?\\*['\"])"
    r"|(?P<follows>\s{1,4})(?=\\*['\"])"
    r"|(?P<argues>\s(?:(?:is|was)\s)?)(?=[^\s-])"
    r")(?:Some\()?(?:[bruBRU](?=['\"]))?"
)
_NOT_A_VALUE = re.compile(
    r"(?:count|name|names|type|policy|length|file|path|location|provider|class|column"
    r"|columns|url|uri|hint|required|enabled|expiry|expires|ttl|version|arn|field"
    r"|fields|regex|pattern|manager|variable|label|mode|format|conf|env|ini|json"
    r"|md|properties|py|toml|txt|xml|yaml|yml)"
)
"""The last part of a name: `password_file=/run/x`, `secret_name=shop/db`."""
_HARMLESS = re.compile(
    r"(?:\*+|none|null|nil|true|false|undefined|empty|unset|missing|required|optional|invalid|wrong|expected|yes|no"
    r"|str|string|text|bytes|binary|(?:var)?char(?:\(\d+\))?|int|integer|bigint|object|any|\.{2,}|…|[?%]s?|:\w+"
    r"|\$\{[^}]*\}.*|\$[A-Z_][A-Z0-9_]*|\{\{.*|<[^>]*>?|\[\w*\]?|\(\w*\)?"
    r"|os\.(?:environ|getenv).*|(?:id|type|src)=.*)[.:!?]?",
    re.IGNORECASE,
)
_UNQUOTED = re.compile(
    # A separator belongs to the value unless the name of the next value, a blank or a quote follows.
    r"\$?\{[^}\n:'\"]{1,500}\}|(?![\[({])(?:[^\s'\",;&)}\]<>|]"
    r"|[,;&](?=[^\s,;&='\":(){}\[\]]{1,100}(?:[,;&\s)}\]]|$))|[)}\]](?=\w))+"
)
_WEAK_VALUE = re.compile(r"[\w+/.=~%-]{12,300}")
_RANDOM = re.compile(r"(?=[^A-Za-z]*[A-Za-z])(?=\D*\d)(?![\d:.TZ+-]*$)(?!.*://)[^/].*", re.DOTALL)
_PLAIN_WORD = re.compile(r"[A-Z]?[a-z]{1,24}[.,;:!?]?")
_IN_SENTENCE = re.compile(r"(?=[^\d\s]*\d)(?=[^A-Z\s]*[A-Z])(?=[^a-z\s]*[a-z])[\w+/=~!#$%^&*-]{8,300}")
_WORDS_OF_NAMES = ("pass", "pw", "pswd", "secret", "key", "token", "credential", "bearer", "sig", "auth", "jwt", "dsn")
_LEAST_CHARACTERS = 8  # of a variable's value; a shorter one may be a part of any text
_FOLDERS_OF_SHELL = ("PWD", "OLDPWD")  # `pwd` is a name of passwords too
_LINE_OF_ENVIRONMENT = re.compile(r"(?:^|\n)(?:export |declare -x )?[A-Z][A-Z0-9_]*=$")


def without_secrets(text: str) -> str:
    """Return the text with HIDDEN in the place of passwords, keys, tokens and signatures.

    The address of a ticket becomes the name of its object. Names of settings stay. A second call changes nothing.

    Cost: linear in the text.
    """
    text = _OWN_SHAPE.sub(_hide_credential, _without_variables(with_object_names(text)))
    lower = text.lower()
    for places in _PLACES:
        if any(word in lower for word in places.words):
            text = places.pattern.sub(places.hide, text)
    return _hide_named(text) if any(word in lower for word in _WORDS_OF_NAMES) else text


def has_credential(value: str) -> bool:
    """Return whether the value of a setting or option, such as an address, contains a credential.

    Settings are stored and shown, so this is the rule for all sources and sinks. Also finds a password with a slash or
    a question mark that should have been escaped, which libraries read as a host.
    """
    return without_password(value) != value or _PASSWORD_SETTING.search(value) is not None


def without_password(address: str) -> str:
    """Return an address for messages. It hides more than `without_secrets`, since no other text is around it."""
    return without_secrets(_LONE_ADDRESS.sub(rf"\g<keep>{HIDDEN}", address))


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Return whether the value of a setting, option or variable of this name is a credential."""
    match = _NAMED.search(name)
    return match is not None and match["strong"] is not None and not _names_no_value(match["rest"])


def _without_variables(text: str) -> str:
    """Hide the values of the environment's credentials, in whatever shape the text quotes them."""
    for name, value in os.environ.items():
        if (
            is_secret_name(name)
            and name not in _FOLDERS_OF_SHELL
            and len(value) >= _LEAST_CHARACTERS
            and not _PLAIN_WORD.fullmatch(value)
        ):
            text = text.replace(value, HIDDEN)
    return text


def _names_no_value(rest: str) -> bool:
    parts = _WORD_PARTS.findall(rest)
    return bool(parts) and _NOT_A_VALUE.fullmatch(parts[-1].lower()) is not None


def _hide_credential(match: re.Match[str]) -> str:
    """Keep the part that makes the credential known: a name, or the first line of a key."""
    return (match["keep"] or "") + HIDDEN + ((match.groupdict().get("end")) or "")


def _hide_in_address(match: re.Match[str]) -> str:
    if kept := match["oracle"] or match["encoded"]:
        return kept + HIDDEN
    if match["token"]:
        return match["token"] + (HIDDEN if _is_random(match["lone"]) else match["lone"])
    user = HIDDEN if len(match["user"]) >= 16 and _is_random(match["user"]) else match["user"]
    return f"{match['scheme']}{user}:{HIDDEN}"


def _hide_random(match: re.Match[str]) -> str:
    return match["keep"] + HIDDEN if len(match["value"]) >= 12 and _is_random(match["value"]) else match[0]


def _hide_in_header(match: re.Match[str]) -> str:
    value = match["value"]
    is_cookie = "cookie" in match["keep"].lower()
    hidden = "=" in value if is_cookie else _AUTHORIZATION.match(value) or _is_random(value.strip())
    if not hidden or value == HIDDEN:
        return match[0]
    scheme = re.match(r"[A-Za-z][\w-]{2,30}\s+(?=\S)", value)
    return match["keep"] + (scheme[0] if scheme and not is_cookie else "") + HIDDEN


def _hide_unless_word(match: re.Match[str]) -> str:
    value = match["value"]
    return match[0] if _PLAIN_WORD.fullmatch(value) or value.isdigit() else match["keep"] + HIDDEN


def _is_random(value: str) -> bool:
    """Return whether a value looks like a token: letters and digits, and neither a path, an address nor a time."""
    return HIDDEN not in value and _RANDOM.fullmatch(value) is not None


def _hide_named(text: str) -> str:
    """Hide the values whose names are names of credentials."""
    pieces: list[str] = []
    copied = at = 0
    while (name := _NAMED.search(text, at)) is not None:
        at = name.end()
        separator = _SEPARATOR.match(text, name.end())
        if separator is None or (span := _value_span(text, name, separator)) is None:
            continue
        first, end = span
        pieces += (text[copied:first], HIDDEN)
        copied = at = end
    return "".join((*pieces, text[copied:]))


def _value_span(text: str, name: re.Match[str], separator: re.Match[str]) -> tuple[int, int] | None:
    """Return the place of the value if it is a credential."""
    strong = name["strong"] is not None
    first = separator.end()
    if _names_no_value(name["rest"] if strong else name["rest_of_weak"]) or not _is_setting(text, name, separator):
        return None
    if separator["argues"] and not _is_option(text, name):
        said = _IN_SENTENCE.match(text, first)
        return said.span() if said and strong and _is_random(said[0]) else None
    quote = re.compile(_QUOTED).match(text, first)
    if quote is not None and quote[0] == "`" and text[quote.end() : quote.end() + 1] in " .,;:)":
        return None  # the end of `password=` in a sentence
    if not strong:
        if text[max(0, name.start() - 1) : name.start()] == "/":  # the folder of a partition
            return None
        return _weak_span(text, quote.end() if quote else first)
    if quote is not None:
        first = quote.end()
        end = _end_of_quoted(text, first, quote[0])
    elif separator["closes"] or separator["in_xml"] is not None:
        end = text.find("<", first) if "<" in text[first : first + 10_000] else len(text)
    elif _LINE_OF_ENVIRONMENT.search(text[max(0, name.start() - 200) : first]):
        end = first + len(text[first:].split("\n", 1)[0])
    else:
        end = match.end() if (match := _UNQUOTED.match(text, first)) else first
    value = text[first:end]
    if not value or _HARMLESS.fullmatch(value) or _refers_to_name(name, value):
        return None
    if quote is None and _is_prose(text, separator, value, end):
        return None
    return first, end


def _is_setting(text: str, name: re.Match[str], separator: re.Match[str]) -> bool:
    """Return whether name and separator belong together: a quoted name has two quotes."""
    before = text[max(0, name.start() - 130) : name.start()]
    if separator["argues"]:
        return not separator["ends"] and (name[0].lower() != "secret" or _is_option(text, name))
    if separator["pairs"]:
        return re.search(r"(?i:\b(?:name|key)\\*['\"]?\s?[:=]\s?(?:\\*['\"])?)[\w.-]*$", before) is not None
    if separator["passes"]:
        return re.search(r"(?i:set|with)_?$", before) is not None
    if separator["lists"]:
        return bool(separator["ends"]) and re.search(r"(?:\(\s?[bru]?\\*['\"]|['\"]--?)[\w.-]*$", before) is not None
    if separator["follows"]:
        if re.search(r"(?:^|\s)--?[\w.-]*$", before) is not None:  # --password 'x'
            return True
        return bool(separator["ends"]) or (name[0].lower() == "password" and before[-1:].isspace())
    if separator["closes"]:
        return re.search(r"<[\w:.-]*$", before) is not None
    return True


def _is_option(text: str, name: re.Match[str]) -> bool:
    """Return whether the name begins with a dash, as an option of a command."""
    return re.search(r"(?:^|[\s'\"])--?[\w.-]*$", text[max(0, name.start() - 130) : name.start()]) is not None


def _weak_span(text: str, first: int) -> tuple[int, int] | None:
    value = _WEAK_VALUE.match(text, first)
    return value.span() if value is not None and _is_random(value[0]) else None


def _end_of_quoted(text: str, first: int, quote: str) -> int:
    """Return where a quoted value ends. Quotes within it are doubled, or follow a backslash."""
    mark = quote[-1]
    escaped = rf"\\.|{mark}{mark}|[^{mark}\\\n]" if len(quote) == 1 else rf"(?!{re.escape(quote)})[^\n]"
    match = re.compile(rf"(?:{escaped})*").match(text, first)
    return match.end() if match else first


def _refers_to_name(name: re.Match[str], value: str) -> bool:
    """Return whether the value is a name that ends like this one: `a.password = b.password`."""
    own = (name["strong"] + name["rest"]).lower()
    return re.fullmatch(r"[A-Za-z_.]+", value) is not None and value.lower().endswith(own)


def _is_prose(text: str, separator: re.Match[str], value: str, end: int) -> bool:
    """Return whether a sentence goes on after the name, as in `password: expected a string`."""
    if not (separator["tells"] or separator["argues"]) or _PLAIN_WORD.fullmatch(value) is None:
        return False
    return bool(separator["argues"]) or re.match(r"[ ,;]\s?\w", text[end : end + 3]) is not None


@dataclass(frozen=True, slots=True)
class _Places:
    """Places of credentials. A text without any of the `words`, in lower case, has none: most texts cost no search."""

    words: tuple[str, ...]
    pattern: re.Pattern[str]
    hide: Callable[[re.Match[str]], str]


_PLACES = (
    _Places(("@", "%40"), _ADDRESS, _hide_in_address),
    _Places(("?", "&", ";"), _PARAMETER, _hide_credential),
    _Places(("?", "&"), _QUERY_KEY, _hide_random),
    _Places(("authorization", "cookie"), _HEADER, _hide_in_header),
    _Places(("bearer", "basic"), _SCHEME, _hide_unless_word),
    _Places(("identified", "login", " -u", "--u"), _LOGIN, _hide_unless_word),
    _Places((" -p", " -a", " -w", "sqlplus "), _COMMAND, _hide_credential),
)
