"""Pattern table of credentials: vendor prefixes, keyword and value, URLs, keys, random tokens."""

# ruff: noqa: PLR2004 - the numbers here are those of the heuristics, explained where they stand.

import re
from itertools import pairwise

from classifiers.pii.credentials import prefixes
from classifiers.pii.numerals import validators
from classifiers.pii.rules import Rule


_KEYWORD = (
    r"(?:pass(?:word|wd|phrase|code)|pwd|secret|token|(?:api|access|account)[_\- ]?key"
    r"|auth|credential|private[_\- ]?key|client[_\- ]?id|signing|encryption|bearer|session|cookie"
    r"|\bkey|_key|kennwort|passwort)"
)
_VENDOR = (
    r"(?:adafruit|adobe|airtable|algolia|alibaba|aliyun|amazon|artifactory|asana|atlassian|auth0|aws|azure"
    r"|beamer|bitbucket|bittrex|braintree|circleci|clojars|cloudflare|codecov|cohere|coinbase|confluent"
    r"|contentful|databricks|datadog|digitalocean|discord|docker|doppler|dropbox|droneci|dynatrace|easypost"
    r"|clickhouse|duffel|elastic|etsy|facebook|fastly|figma|finicity|finnhub|flickr|flutterwave|freshbooks|gemini|github"
    r"|gitlab|gitter|gocardless|google|grafana|harness|hashicorp|heroku|hubspot|intercom|jfrog|jenkins|jira"
    r"|kraken|kucoin|launchdarkly|linear|linkedin|lob|looker|mailchimp|mailgun|mapbox|mattermost|maxmind"
    r"|message[_\-]?bird|meraki|mongodb|netlify|new[_\-]?relic|notion|npm|nuget|nytimes|octopus|okta|openai|openshift"
    r"|pagerduty|paypal|plaid|planetscale|postman|prefect|privateai|pulumi|pypi|rapidapi|razorpay|readme"
    r"|rubygems|salesforce|scaleway|sendbird|sendgrid|sentry|shippo|shopify|sidekiq|slack|snowflake|snyk"
    r"|sonar|sourcegraph|spotify|square|squarespace|stripe|sumo|supabase|telegram|terraform|travis|trello"
    r"|twilio|twitch|twitter|typeform|vault|vercel|wakatime|yandex|zendesk|zoom)"
)
_OPERATOR = r"[ \t\"'`]{0,4}(?:=>|:=|\|{1,2}|[?]?={1,2}|:{1,3}=?|,|>|\x1f)[ \t\"'`=>:|?(\[]{0,6}"
_ASSIGNED = r"[ \t\"'`]{0,3}(?:=>|:=|\|\||[?=:>]{1,3}|,)[ \t\"'`=]{0,5}"
# Names of values that are random but not secret.
_NO_SECRETS = (
    "commit", "sha", "md5", "hash", "digest", "checksum", "etag", "rev", "trace", "span", "request",
    "uuid", "guid", "build", "image", "nonce", "correlation", "integrity", "fingerprint", "version",
    "color", "colour", "order", "invoice", "sku", "serial", "isbn", "http", "file", "path", "tag",
    "tracking",
)  # fmt: skip
_LONG_VALUE = r"[A-Za-z0-9][A-Za-z0-9_\-+/=.~$!@#%^&*]{9,150}"
_PREFIXED_GATE = (
    r"(?:gh[pousr]_[A-Za-z0-9]|github_pat_|gl[a-z]{2,8}-|GR1348941|gw_(?:live|test)_"
    r"|xox[a-z][.\-]|xapp-|[srpw]k_(?:live|test|prod)_|whsec_|sk-[A-Za-z0-9]|AIza|GOCSPX"
    r"|ya29\.|A(?:KIA|SIA|BIA|CCA|ROA|IDA|GPA)[A-Z0-9]|ABSK|bedrock-api|LTAI|8Q~"
    r"|hf_[A-Za-z0-9]|api_org_|npm_[A-Za-z0-9]|pypi-|do[opr]_v1_|SG\.|shp[acps]{2}_"
    r"|lin_api_|hv[sb]\.|gl(?:c|sa)_|dapi[a-f0-9]|pul-[a-f0-9]|PMAK-|NR(?:AK|II|JS|RA)-"
    r"|EZ[AT]K|dp\.[a-z]{2,5}\.|pscale_|SK[0-9a-fA-F]|key-[a-f0-9]|dckr_pat|figd_|sha256~"
    r"|FLWSECK|ico-[A-Za-z0-9]|CLOJARS_|p8e-|pat\.|sntr[yu]s_|tfp_|sq0[a-z]{3}-|dnkey-"
    r"|f(?:o1|m[12][ar]?)_[A-Za-z0-9+/]|access-(?:sandbox|development|production)-"
    r"|AT[AC]TT3|ATBB[A-Za-z0-9]|AKC[A-Za-z0-9]|EAA[A-Za-z0-9]|pplx-|xkeysib-|rdme_|rubygems_|ntn_|secret_[A-Za-z0-9]"
    r"|pnu_|HRKU-|shippo_|duffel_|fio-u-|dt0[a-z][0-9]{2}\.|AGE-SECRET|A3-[A-Z0-9]{6}|ops_eyJ|sgp_|sq[uap]_[a-f0-9]"
    r"|tk-us-|s-s4t2|FLWPUBK|API-[A-Z0-9]|oy2[a-z0-9]|k\.eyJ|v1\.0-[a-f0-9]|atlasv1|CFPAT|lin_oauth_"
    r"|pat-(?:na|eu)[0-9]|sb[pst]_[A-Za-z0-9_\-]|r8_[A-Za-z0-9]|gsk_|xai-[A-Za-z0-9]|nvapi-|tvly-|AQVN"
    r"|t1\.[A-Z0-9a-z_\-]{5}|sl\.[A-Za-z0-9_\-]|sm_[a-z]at_|[0-9]:AA|-us[0-9]|AC[a-f0-9]|\.[A-Za-z0-9_\-]{6}\."
    r"|[0-9]{6}-[A-Za-z0-9]|1//0|(?:live|test)_[a-z]{0,3}_?[a-f0-9]|eyJrIjoi)"
)
_MNEMONIC = r"(?:mnemonic|(?:seed|recovery|backup)[ _\-]?(?:phrase|words?))"
# Words of three to eight letters that sentences have and BIP39's English list lacks: the list has
# "have", "into" and "they".
_OF_SENTENCES = frozenset(
    """
    the and for are was were with from your our has had not but which would should been than
    them their these those its his her who
    """.split()  # noqa: SIM905 - a list literal would fill a screen.
)
_MNEMONIC_WORDS = 12
_TEMPLATE_MARKS = (
    "your", "xxxx", "example", "placeholder", "changeme", "redacted", "****", "....", "<", "${",
    "{{", "os.environ", "getenv", "process.env",
)  # fmt: skip
_DUMMY_MARKS = ("dummy", "insert", "replace", "abcdef", "123456789", "sample", "my_", "test_key")


_MARKS = re.compile("|".join(map(re.escape, (*_TEMPLATE_MARKS, *_DUMMY_MARKS))), re.IGNORECASE)
_LETTERS = re.compile("[A-Za-z]+")
_LEAST_BESIDE = 32


def is_template(text: str) -> bool:
    """A text that stands for a value: nobody's password looks like that."""
    lowered = text.lower()
    return any(mark in lowered for mark in _TEMPLATE_MARKS)


def is_placeholder(text: str) -> bool:
    """A template, or an invented value in documentation where a random one belongs."""
    lowered = text.lower()
    if is_template(lowered) or len(set(lowered)) < 5:
        return True
    return any(mark in lowered for mark in _DUMMY_MARKS)


def _switches(text: str) -> int:
    """How often letters alternate with digits: in words and versions, seldom."""
    kinds = [char.isdigit() for char in text if char.isalnum()]
    return sum(a != b for a, b in pairwise(kinds))


def prefixed_secret(text: str) -> bool:
    if is_placeholder(text):
        return _is_random_beside_marks(text)
    least = 2.5 if text.isupper() or any(map(str.isdigit, text)) else 3.7
    return validators.entropy(text) > least


def _is_random_beside_marks(text: str) -> bool:
    """Whether a key remains beside the mark of a placeholder, as in "ghp_…EXAMPLE"."""
    rest = _MARKS.sub("", text)
    digits = sum(map(str.isdigit, rest))
    return (
        len(rest) < len(text)
        and len(rest) >= _LEAST_BESIDE
        and 3 <= digits <= len(rest) * 0.6
        and _switches(rest) >= len(rest) // 9
        and validators.entropy(rest) > 4.2
    )


def keyed_secret(text: str) -> bool:
    """A value behind a keyword: long, mixed, and not a word, path, number or expression."""
    if is_placeholder(text) or text.count("/") > 3 or "://" in text:
        return False
    digits = sum(map(str.isdigit, text))
    letters = sum(map(str.isalpha, text))
    if len(text) < 14 or "(" in text:
        return False
    if not letters or digits < 2:
        return digits >= 15 or (letters >= 20 and _mixed_case(text))
    return _switches(text) >= max(3, len(text) // 10) and validators.entropy(text) > 3.0


def vendor_secret(text: str) -> bool:
    """A value after a vendor's name: shorter ones and UUIDs count, words and versions do not."""
    body = text.strip("=_-./+")
    if keyed_secret(text):
        return True
    if is_placeholder(body) or "/" in body or "." in body:
        return False
    if _UUID.fullmatch(body) is not None:
        return True
    letters = sum(map(str.isalpha, body))
    if len(body) >= 20 and body.isalnum():
        return validators.entropy(body) > 3.2 and (letters < len(body) or _unpronounceable(body))
    return (
        len(body) >= 13
        and body.isalnum()
        and _switches(body) >= 2
        and validators.entropy(body) > 3.0
    )


_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


def _unpronounceable(text: str) -> bool:
    """Letters without the vowels that words have."""
    return sum(char in "aeiou" for char in text.lower()) < len(text) * 0.27


_PERCENT = re.compile("%[0-9A-Fa-f]{2}")


def assigned_secret(text: str) -> bool:
    """A value assigned to a name that nobody listed: random, and not short.

    Percent-encoded text is decoded elsewhere; here it separates words of a path.
    """
    body = _PERCENT.sub("/", text).strip("=_-./+")
    if len(body) < 16 or is_placeholder(body) or body.count("/") > 2 or "." in body:
        return False
    digits = sum(map(str.isdigit, body))
    if not 2 <= digits <= len(body) * 0.7:
        return False
    return _switches(body) >= max(4, len(body) // 6) and validators.entropy(body) > 3.1


def _mixed_case(text: str) -> bool:
    """Case changes as often as by chance; in camelCase the runs of lower case are longer."""
    turns = sum(a.islower() != b.islower() for a, b in pairwise(text))
    longest = max(map(len, _words(text)), default=0)
    return turns > len(text) // 3 and longest <= 5 and validators.entropy(text) > 3.8


def random_token(text: str) -> bool:
    """Random characters without a keyword near: not hexadecimal (a hash), not words or paths."""
    body = text.strip("=_-./+")
    if len(body) < 24 or body.count("/") > 3 or is_placeholder(body) or _is_hex(body):
        return False
    digits = sum(map(str.isdigit, body))
    longest_word = max(map(len, _words(body)), default=0)
    return (
        3 <= digits <= len(body) * 0.6
        and longest_word <= 9 + len(body) // 40
        and _switches(body) >= len(body) // 6
        and validators.entropy(body) > 3.7
    )


def _words(text: str) -> list[str]:
    """Runs of letters of one case: in random text they are short."""
    runs: list[str] = []
    current = ""
    for char in text:
        if char.isalpha() and (not current or current[-1].islower() == char.islower()):
            current += char
        else:
            runs.append(current)
            current = char if char.isalpha() else ""
    return [*runs, current]


def _is_hex(text: str) -> bool:
    return not text.lower().strip("0123456789abcdef-")


def short_token(text: str) -> bool:
    """The tail mixes lower case, capitals and digits as no word does."""
    tail = text.replace("-", "_").rpartition("_")[2]
    digits = sum(map(str.isdigit, tail))
    return not is_placeholder(text) and digits >= 1 and tail != tail.lower() and _mixed_case(tail)


def dotted_token(text: str) -> bool:
    """`vendor_RANDOM` of a vendor that nobody listed: the part after the last mark is random."""
    tail = text
    for mark in "_-.~":
        tail = tail.rpartition(mark)[2]
    if len(tail) < 20 or is_placeholder(text):
        return False
    digits = sum(map(str.isdigit, tail))
    if _is_hex(tail) and text.lower().startswith(("sha", "md5", "commit", "rev", "0x", "git")):
        return False
    if _mixed_case(tail):
        return True
    return digits >= 3 and _switches(tail) >= len(tail) // 6 and validators.entropy(tail) > 2.9


def mnemonic(text: str) -> bool:
    """At least twelve lower-case words that are not a sentence."""
    words = _LETTERS.findall(text)[:_MNEMONIC_WORDS]
    return len(set(words)) > 5 and all(w.islower() and w not in _OF_SENTENCES for w in words)


SECRETS: tuple[Rule, ...] = (
    Rule(
        "JWT",
        "jwt",
        r"\bey[A-Za-z0-9_\-]{10,}\.[A-Za-z0-9_\-]{6,}\.[A-Za-z0-9_\-]*",
        0.95,
        validators.jwt_header,
        gate=r"\bey[A-Za-z0-9_\-]{10}",
    ),
    Rule(
        "JWT",
        "jwt-shaped",
        r"\bey[A-Za-z0-9_\-]{14,}\.ey[A-Za-z0-9_\-/\\]{14,}\.[A-Za-z0-9_\-/\\]*",
        0.7,
        gate=r"\bey[A-Za-z0-9_\-]{10}",
    ),
    Rule(
        "SECRET",
        "prefix",
        rf"(?:^|[^A-Za-z0-9])({prefixes.HEADS})",
        0.9,
        prefixed_secret,
        gate=_PREFIXED_GATE,
        whole=prefixes.WHOLE,
    ),
    Rule(
        "SECRET",
        "webhook",
        r"(?i)hooks.slack.com/(?:services|workflows|triggers)/[A-Za-z0-9+/]{30,80}"
        r"|discord(?:app)?\.com/api/webhooks/[0-9]{10,20}/[A-Za-z0-9_\-]{30,80}"
        r"|webhook\.office\.com/webhookb2/[A-Za-z0-9@/\-]{40,250}",
        0.9,
    ),
    Rule(
        "SECRET",
        "azure",
        r"(?i)(?:accountkey|sharedaccesskey|sharedaccesssignature)=([A-Za-z0-9+/=%&]{20,200})",
        0.95,
        gate=r"(?i)(?:accountkey|sharedaccess(?:key|signature))=",
    ),
    Rule(
        "SECRET",
        "keyword",
        rf"(?i){_KEYWORD}[\w.\-]{{0,20}}{_OPERATOR}({_LONG_VALUE})",
        0.8,
        keyed_secret,
        gate=rf"(?i){_KEYWORD}[\w.\-]{{0,20}}{_OPERATOR}[A-Za-z0-9]",
    ),
    Rule(
        "SECRET",
        "vendor",
        rf"(?i){_VENDOR}[\w.\- ]{{0,20}}{_OPERATOR}({_LONG_VALUE})",
        0.75,
        vendor_secret,
        gate=rf"(?i){_VENDOR}[\w.\- ]{{0,20}}{_OPERATOR}[A-Za-z0-9\-]",
    ),
    Rule(
        "SECRET",
        "bearer",
        r"(?i)\b(?:bearer|basic) ([A-Za-z0-9_\-+/=.~]{16,300})",
        0.85,
        keyed_secret,
        gate=r"(?i)\b(?:bearer|basic) [A-Za-z0-9_\-+/=.~]{16}",
    ),
    Rule(
        "SECRET",
        "unlisted-prefix",
        r"(?:^|[^A-Za-z0-9_\-.~/])([A-Za-z0-9]{2,12}(?:[_\-.~][A-Za-z0-9]{1,10}){0,3}[_\-.~][A-Za-z0-9]{20,120})",
        0.6,
        dotted_token,
        gate=r"[A-Za-z0-9][_\-.~][A-Za-z0-9]{20}",
    ),
    Rule(
        "SECRET",
        "assigned",
        rf"(?i)[a-z0-9][\w.\-]{{2,40}}{_ASSIGNED}({_LONG_VALUE})",
        0.55,
        assigned_secret,
        gate=rf"(?i)[a-z0-9_.\-]{_ASSIGNED}[A-Za-z0-9][A-Za-z0-9_\-+/=.~$!@#%^&*]{{9}}",
        veto=_NO_SECRETS,
    ),
    Rule(
        "SECRET",
        "manifest",
        r"(?is)\bkind:[ \t\"']{0,12}secret\b.{0,160}?\bdata:(.{8,160}?)(?:\n\n|kind:|$)"
        r"|\bdata:[^\x1f]{8,160}?\bkind:[ \t\"']{0,12}secret",
        0.8,
        gate=r"(?i)kind:[ \t\"']{0,12}secret",
    ),
    Rule(
        "SECRET",
        "short-prefix",
        r"(?:^|[^A-Za-z0-9_\-.~/])([a-z]{2,10}[_\-][a-z]{2,8}[_\-][A-Za-z0-9]{14,19})"
        r"(?:[^A-Za-z0-9_\-]|$)",
        0.55,
        short_token,
        gate=r"[a-z][_\-][A-Za-z0-9]{14}",
    ),
    Rule(
        "SECRET",
        "random",
        r"(?:^|[^A-Za-z0-9_\-+/=.])([A-Za-z0-9_\-+/=]{24,200})",
        0.55,
        random_token,
        gate=r"[A-Za-z0-9_\-+/=]{24}",
    ),
    Rule(
        "SECRET",
        "mnemonic",
        # Twelve to twenty-four words of three to eight letters, from which a wallet can be
        # restored.
        rf"(?i){_MNEMONIC}(?:[^\n:]{{0,24}}(?::| is| are| was| were))?[\s\"'`*:\-0-9.)]{{1,8}}"
        r"((?:[a-z]{3,8}[ ,.\t\n0-9)]{1,6}){11,23}[a-z]{3,8})(?:[^A-Za-z]|$)",
        0.85,
        mnemonic,
        gate=rf"(?i){_MNEMONIC}",
    ),
    Rule(
        "USERNAME",
        "url",
        r"\b[A-Za-z][A-Za-z0-9+.\-]{1,20}://([^\s:/@\"'\x1f]{2,64}):[^\s/\"'\x1f]{2,128}@",
        0.7,
        gate=r"://[^\s:/@\"'\x1f]{0,64}:[^\s/\"'\x1f]{1,128}@",
    ),
)
PRIVATE_KEY_HEAD = r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
