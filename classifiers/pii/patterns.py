"""Pattern table of identifiers and contacts that contain letters or punctuation.

Numbers that are only digits and separators are judged in `numbers`, credentials in `secrets`.
"""

from collections.abc import Callable

from classifiers.pii.numerals import validators
from classifiers.pii.rules import Rule


# What may stand between a keyword and its value: "passport no. is: '", `"passport_no": "`, …
# \x1f is the seam between a JSON key and its value in the joined text of a request.
_FILLER = (
    r"(?:[ \t:=#\"'\x1f._\-(>|*`]|no\b|nos?\.|num(?:ber)?|nr|id\b|is\b|was\b|card|details|code"
    r"|for|verification|purposes|of|the|my|value)"
)
_FILL = _FILLER + "{1,10}"
_PLACEHOLDER_DOMAINS = (
    "example.com",
    "example.org",
    "example.net",
    "example.edu",
    "localhost",
)
_PLACEHOLDER_SUFFIXES = (".example", ".test", ".invalid", ".localhost", ".local")
_MACHINES = frozenset(
    {"noreply", "no-reply", "no_reply", "donotreply", "do-not-reply", "mailer-daemon", "git"}
)
"""Mailboxes that nobody reads, and the user name with which everybody reaches a repository."""
_FILE_SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".svg", ".webp", ".css", ".js", ".py", ".ts")
UPI_HANDLES = (
    "ok(?:icici|sbi|axis|hdfcbank)|ybl|ibl|axl|apl|paytm|pt(?:axis|hdfc|sbi|yes)|upi|sbi|icici"
    "|hdfcbank|axisbank|axisb|kotak|pnb|barodampay|cnrb|idfcbank|idfcfirst|indus|federal|rbl|yesbank"
    "|yapl|rapl|airtel|freecharge|jupiteraxis|fam|slice|naviaxis|superyes|timecosmos|waicici|wa(?:axis|hdfcbank|sbi)"
    "|abfspay|ikwik|postbank|kbl|dbs|citi|hsbc|sc|unionbank|uboi|boi|centralbank|mahb|aubank|equitas|jio"
)
_INDIAN_STATES = (
    "AN|AP|AR|AS|BR|CG|CH|DD|DL|DN|GA|GJ|HP|HR|JH|JK|KA|KL|LA|LD|MH|ML|MN|MP|MZ|NL|OD|OR|PB|PY|RJ"
    "|SK|TN|TR|TS|UK|UP|WB"
)
_MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6}"
_DATE = (
    r"[0-3]?[0-9][./\- ][01]?[0-9][./\- ](?:19|20)?[0-9]{2}|(?:19|20)[0-9]{2}[./\-][01]?[0-9][./\-]"
    r"[0-3]?[0-9]|[0-3]?[0-9](?:st|nd|rd|th)?[ .]{1,2}"
    + _MONTH
    + r",? (?:19|20)[0-9]{2}|"
    + _MONTH
    + r" [0-3]?[0-9](?:st|nd|rd|th)?,? (?:19|20)[0-9]{2}"
)


def real_email(text: str) -> bool:
    """A person's: not of a documentation domain, a machine, or a file like `logo@2x.png`."""
    local, _, domain = text.lower().rpartition("@")
    if local.strip("'") in _MACHINES:
        return False
    if domain.endswith(_PLACEHOLDER_SUFFIXES) or domain.endswith(_FILE_SUFFIXES):
        return False
    return not any(domain == name or domain.endswith("." + name) for name in _PLACEHOLDER_DOMAINS)


def _compact(check: Callable[[str], bool]) -> Callable[[str], bool]:
    """Let a validator see the text without its separators."""
    return lambda text: check("".join(filter(str.isalnum, text)))


def _has_digits(least: int) -> Callable[[str], bool]:
    return lambda text: sum(map(str.isdigit, text)) >= least


def _labelled(words: str, value: str) -> str:
    """A keyword, a little filler, and the value as capture group 1."""
    return rf"(?i)(?:{words}){_FILL}({value})(?:[^A-Za-z0-9]|$)"


def _apart(value: str) -> str:
    """A value without a letter or digit beside it: file names have underscores there."""
    return rf"(?:^|[^A-Za-z0-9])({value})(?:[^A-Za-z0-9]|$)"


# In Korean, Chinese and Japanese, too.
_OF_ORDERS = ("order", "invoice", "ticket", "receipt", "batch", "build", "version", "no.", "lot")
# A blank inside a value is followed by a digit or two letters and a digit, never by a word.
_REST = r"(?:[\-./]?[A-Z0-9]| [A-Z]{0,2}[0-9])"
_VALUE = rf"[A-Z]{{0,6}}[ _\-]?[0-9]{_REST}{{3,19}}"
_LONG_VALUE = rf"(?:[A-Z]{{1,6}}[ :_\-]{{0,2}})?[A-Z0-9]{_REST}{{4,19}}"

PATTERNS: tuple[Rule, ...] = (
    Rule(
        "EMAIL",
        "email",
        # Whole: the rest of an address that is nobody's would be taken for one.
        r"(?:^|[^A-Za-z0-9._%+'\-])"
        r"([A-Za-z0-9._%+'\-]+@(?:[A-Za-z0-9\-]{1,63}\.){1,5}[A-Za-z]{2,24})",
        0.9,
        real_email,
        gate=r"[A-Za-z0-9._%+'\-]@[A-Za-z0-9\-]{1,63}\.[A-Za-z0-9]",
    ),
    Rule(
        "IN_UPI",
        "upi",
        rf"\b([A-Za-z0-9._\-]{{2,64}}@(?:{UPI_HANDLES}))(?:[^A-Za-z0-9.@\-]|\.?$|\.[^A-Za-z0-9])",
        0.8,
        gate=rf"@(?:{UPI_HANDLES})\b",
    ),
    Rule(
        "IP_ADDRESS",
        "ipv4",
        r"(?:^|[^0-9A-Za-z._\-])((?:[0-9]{1,3}\.){3}[0-9]{1,3})(?:[^0-9A-Za-z._\-]|\.?$|\.[^0-9]|\.?\s)",
        0.7,
        validators.public_ip,
    ),
    Rule(
        "IP_ADDRESS",
        "ipv6",
        r"(?:^|[^0-9A-Za-z:.])((?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4})(?:[^0-9A-Za-z:]|$)",
        0.8,
        validators.ipv6,
        gate=r"[0-9A-Fa-f]:[0-9A-Fa-f]{0,4}:[0-9A-Fa-f]{0,4}:[0-9A-Fa-f]",
    ),
    Rule(
        "MAC_ADDRESS",
        "mac",
        r"\b([0-9A-Fa-f]{2}(?:[:\-][0-9A-Fa-f]{2}){5})(?:[^0-9A-Za-z:\-]|$)",
        0.85,
        _has_digits(1),
    ),
    Rule(
        "IN_PAN",
        "pan",
        _apart(r"[A-Za-z]{5}[0-9]{4}[A-Za-z]"),
        0.85,
        validators.pan,
        context=("pan", "tax", "permanent"),
    ),
    Rule(
        "IN_PAN",
        "pan-labelled",
        r"(?i)(?:\b|_)pan" + _FILL + r"([A-Z]{5}(?:[0-9A-Z]{4,8}|[ \-][0-9]{4}[ \-])[A-Z])\b",
        0.6,
        _has_digits(2),
    ),
    Rule(
        "US_SSN",
        "ssn-without-nought",
        # Spreadsheets and JSON take the first nought of a number away.
        r"(?i)(?:(?:^|[^i])ssn|social[ _\-]?security)" + _FILL + r"([0-9]{8})(?:[^0-9A-Za-z]|$)",
        0.75,
        validators.ssn_without_nought,
        gate=r"(?i)(?:ssn|social[ _\-]?security)" + _FILL + "[0-9]",
    ),
    Rule(
        "IN_GSTIN",
        "gstin",
        _apart(r"(?i:[0-9]{2}[A-Z]{5}[0-9]{4}[A-Z][0-9A-Z]Z[0-9A-Z])"),
        0.95,
        validators.gstin,
    ),
    Rule(
        "IN_VOTER_ID",
        "voter",
        r"\b[A-Z]{3}[0-9]{7}\b",
        0.75,
        context=("voter", "epic", "elector", "\u092e\u0924\u0926\u093e\u0924\u093e"),
        needs_context=True,
    ),
    Rule("IN_VOTER_ID", "voter-labelled", _labelled("voter", _VALUE), 0.7, _has_digits(6)),
    Rule(
        "IN_IFSC",
        "ifsc",
        r"\b[A-Z]{4}0[A-Z0-9]{6}\b",
        0.8,
        _has_digits(4),
        context=("ifsc", "neft", "bank", "a/c"),
    ),
    Rule(
        "SWIFT_BIC",
        "swift",
        r"(?:(?i:swift|bic)" + _FILL + r")([A-Z]{6}[A-Z0-9]{2}(?:[A-Z0-9]{3})?)\b",
        0.8,
    ),
    Rule(
        "UK_NINO",
        "nino",
        _apart(r"(?i:[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z][ .\-]?(?:[0-9][ .\-]?){6}[A-D])"),
        0.85,
        gate=_apart(r"(?i:[A-Z]{2}[ .\-]?(?:[0-9][ .\-]?){6}[A-D])"),
    ),
    Rule(
        "VEHICLE_REG",
        "vehicle",
        rf"\b(?:{_INDIAN_STATES})[ \-]?[0-9]{{1,2}}[ \-]?[A-Z]{{1,3}}[ \-]?[0-9]{{4}}\b",
        0.7,
    ),
    Rule(
        "CRYPTO_WALLET", "segwit", r"\bbc1[ac-hj-np-z02-9]{25,62}\b", 0.9, gate=r"\bbc1[a-z0-9]{20}"
    ),
    Rule("CRYPTO_WALLET", "ethereum", r"\b0x[0-9a-fA-F]{40}\b", 0.85, gate=r"\b0x[0-9a-fA-F]{40}"),
    Rule(
        "CRYPTO_WALLET",
        "bitcoin",
        r"\b[13][1-9A-HJ-NP-Za-km-z]{25,34}\b",
        0.9,
        validators.bitcoin,
        gate=r"\b[13][1-9A-HJ-NP-Za-km-z]{25}",
    ),
    Rule(
        "IBAN",
        "iban",
        r"(?:^|[^A-Za-z0-9])([A-Za-z]{2}[0-9]{2}(?:[ .\-]?[A-Za-z0-9]){11,40})",
        0.95,
        gate=r"(?:^|[^A-Za-z0-9])[A-Za-z]{2}[0-9]{2}(?:[ .\-]?[A-Za-z0-9]){11}",
    ),
    Rule(
        "CREDIT_CARD",
        "track",
        # What a card's chip and stripe tell: its number, the year and month of its end.
        r"(?:^|[^A-Za-z0-9])([0-9]{13,19})D[0-9]{7}",
        0.95,
        validators.card,
    ),
    Rule(
        "PASSPORT",
        "passport",
        _labelled("passport|reisepass|pasaporte|passeport", _VALUE),
        0.8,
        _has_digits(5),
    ),
    Rule(
        "PASSPORT",
        "machine-readable",
        # The line of a passport or a card that machines read: number, nation, birth, end.
        r"(?:^|[^A-Z0-9<])([A-Z0-9<]{9}[0-9][A-Z<]{3}[0-9]{7}[MFX<][0-9]{7}[A-Z0-9<]{0,16})",
        0.95,
        validators.machine_readable,
    ),
    Rule(
        "DRIVER_LICENSE",
        "driver-licence",
        _labelled(
            r"driv(?:er|ing)(?:'?s|s')?[ _\-]?licen[cs]e|\bdl(?:[ _]no|[ _]number|:)|f.hrerschein",
            _LONG_VALUE,
        ),
        0.75,
        _has_digits(4),
    ),
    Rule(
        "MRN",
        "mrn",
        _labelled(
            r"\bmrn|medical[ _\-]record|patient[ _\-]?(?:id|no|number)|hospital[ _\-]?(?:id|no)",
            _VALUE,
        ),
        0.75,
        _has_digits(5),
    ),
    Rule(
        "EMPLOYEE_ID",
        "employee",
        _labelled(
            r"\b(?:staff|employee|emp|personnel|payroll)[ _\-]?(?:id|no|number|code)", _VALUE
        ),
        0.7,
        _has_digits(4),
    ),
    Rule(
        "NATIONAL_ID",
        "national-id",
        _labelled(
            r"tax[ _\-]?(?:payer )?id(?:entifier|entification)?|national[ _\-]?id(?:entity)?"
            r"|\bnric|\bfin|\bdni|\bnie|\bnif|\bcpf|\bpesel|\bbsn|\bcurp|codice fiscale"
            r"|steuer[ \-]?(?:id|nummer)|personnummer",
            _LONG_VALUE,
        ),
        0.75,
        _has_digits(5),
    ),
    Rule(
        "NATIONAL_ID",
        "cpf",
        r"\b[0-9]{3}\.[0-9]{3}\.[0-9]{3}-[0-9]{2}\b",
        0.9,
        _compact(validators.cpf),
    ),
    Rule(
        "NATIONAL_ID",
        "chinese",
        _apart(r"[1-9][0-9]{5}[ \-]?(?:18|19|20)[0-9]{2}[01][0-9][0-3][0-9][ \-]?[0-9]{3}[0-9Xx]"),
        0.9,
        _compact(validators.chinese_id),
    ),
    Rule(
        "NATIONAL_ID",
        "korean",
        _apart(r"[0-9]{2}[01][0-9][0-3][0-9] ?[\-] ?[1-8][0-9]{6}"),
        0.75,
        _compact(validators.korean_id),
        veto=_OF_ORDERS,
    ),
    Rule(
        "NATIONAL_ID",
        "korean-called",
        _apart(r"[0-9]{2}[01][0-9][0-3][0-9](?: ?[\-] ?| )?[1-8][0-9]{6}"),
        0.8,
        _compact(validators.korean_id_shape),
        context=("\uc8fc\ubbfc", "\uc678\uad6d\uc778\ub4f1\ub85d", "rrn", "resident reg", "jumin"),
        needs_context=True,
    ),
    Rule(
        "NATIONAL_ID",
        "my-number",
        _apart(r"[0-9]{4}[ \-]?[0-9]{4}[ \-]?[0-9]{4}"),
        0.8,
        _compact(validators.my_number),
        context=(
            *(
                "\u30de\u30a4\u30ca\u30f3\u30d0\u30fc",
                "\u500b\u4eba\u756a\u53f7",
                "my number",
                "mynumber",
            ),
            *("my_number", "kojin bang", "individual number"),
        ),
        needs_context=True,
    ),
    Rule(
        "NATIONAL_ID",
        "hong-kong",
        r"(?:^|[^A-Za-z0-9])([A-Z]{1,2}[0-9]{6} ?\([0-9A]\))",
        0.75,
        _compact(validators.hong_kong_id),
    ),
    Rule(
        "NATIONAL_ID",
        "hong-kong-called",
        _apart(r"(?i:[A-Z]{1,2}[0-9]{6}[0-9A])"),
        0.8,
        _compact(validators.hong_kong_id),
        context=("hkid", "hong kong id", "\u8eab\u4efd", "identity card"),
        needs_context=True,
    ),
    Rule(
        "BANK_ACCOUNT",
        "account-labelled",
        _labelled(r"\baccount|\bacct|\ba/c", r"[A-Z]{0,4}[0-9](?:[ \-]?[0-9]){6,17}[A-Z]?"),
        0.7,
        _has_digits(7),
    ),
    Rule(
        "DOB",
        "birth",
        r"(?i)(?:\bborn|(?:\b|_)dob|birth[ _\-]?(?:day|date)|date[ _\-]?of[ _\-]?birth"
        r"|geburtsdatum|geboren)"
        rf"(?:[ \t:=\"'\x1f,(>|*`_]|on|is|was|am){{1,8}}({_DATE})(?:\b|T|_)",
        0.8,
    ),
    Rule(
        "USERNAME",
        "login",
        r"(?i)\b(?:login|log-in|user[ _]?name|user|userid)[\"']?\s?[:=\x1f]\s?[\"']?"
        r"([A-Z][A-Z0-9._\-]{2,31}[0-9][A-Z0-9._\-]{0,8})(?:[^A-Za-z0-9@._\-]|$)",
        0.6,
    ),
)
