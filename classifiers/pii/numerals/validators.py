"""Check digits and shapes of identifiers: each function judges one bare string.

All of them expect separators removed, take any string, never raise, and take time linear in it.
"""

# ruff: noqa: PLR2004 - the numbers here are those of the published standards.

import base64
import binascii
import hashlib
import ipaddress
from collections import Counter
from datetime import date
from math import log2

import msgspec


_DOUBLED = (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)
_VERHOEFF_D = tuple(
    tuple(int(digit) for digit in row)
    for row in (
        *("0123456789", "1234067895", "2340178956", "3401289567", "4012395678"),
        *("5987604321", "6598710432", "7659821043", "8765932104", "9876543210"),
    )
)
_VERHOEFF_P = tuple(
    tuple(int(digit) for digit in row)
    for row in (
        *("0123456789", "1576283094", "5803796142", "8916043527"),
        *("9453126870", "4286573901", "2793806415", "7046913258"),
    )
)
_BASE36 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
# Lengths of the ISO 13616 registry (SWIFT's IBAN registry, release 99).
_IBAN_LENGTHS = (
    "AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27 "
    "DK18 DO28 EE20 EG29 ES24 FI18 FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HN28 HR21 HU28 "
    "IE22 IL23 IQ23 IS26 IT27 JO30 KW30 KZ20 LB28 LC32 LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 "
    "MK19 MN20 MR27 MT31 MU30 NI28 NL18 NO15 OM23 PK24 PL28 PS29 PT25 QA29 RO24 RS22 RU33 SA24 "
    "SC31 SD18 SE24 SI19 SK24 SM27 SO23 ST25 SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20 YE30"
)
IBAN_LENGTH = {entry[:2]: int(entry[2:]) for entry in _IBAN_LENGTHS.split()}
# Countries whose accounts are digits alone, in the same registry: where a random id has a country's
# two letters, it hardly ever goes on like that.
_IBAN_OF_DIGITS = frozenset(
    {
        *("AE", "AT", "BA", "BE", "CZ", "DE", "DK", "EE", "ES", "FI", "HR", "HU", "IS", "LT"),
        *("NO", "PL", "PT", "SE", "SI", "SK"),
    }
)
_ITIN_GROUPS = frozenset({*range(50, 66), *range(70, 89), *range(90, 93), *range(94, 100)})


def luhn(digits: str) -> bool:
    """ISO/IEC 7812 check digit, and not one digit repeated."""
    if not _digits(digits) or digits == digits[0] * len(digits):
        return False
    total = sum(map(int, digits[-1::-2])) + sum(_DOUBLED[int(d)] for d in digits[-2::-2])
    return total % 10 == 0


def verhoeff(digits: str) -> bool:
    if not _digits(digits):
        return False
    state = 0
    for position, digit in enumerate(reversed(digits)):
        state = _VERHOEFF_D[state][_VERHOEFF_P[position % 8][int(digit)]]
    return state == 0


def card(digits: str) -> bool:
    """Luhn, and an issuer prefix that exists with this length.

    Cards of thirteen digits have not been issued for long, while every article number of Germany
    has as many digits and begins with a four: a number that may be an article's is not a card's.
    """
    return _issuer_fits(digits) and luhn(digits) and not _is_article(digits)


def _is_article(digits: str) -> bool:
    """The check digit of a GTIN-13 (GS1 General Specifications 7.9)."""
    return (
        len(digits) == 13
        and (sum(map(int, digits[::2])) + 3 * sum(map(int, digits[1::2]))) % 10 == 0
    )


def padded_card(digits: str) -> bool:
    """The same in a field of fixed width: after zeros, with which no issuer's prefix begins."""
    return card(digits.lstrip("0"))


def _issuer_fits(digits: str) -> bool:
    if not _digits(digits):
        return False
    length, two, four = len(digits), int(digits[:2]), int(digits[:4])
    if digits[0] == "4":
        return length in {13, 16, 19}
    if 51 <= two <= 55 or 2221 <= four <= 2720:
        return length == 16
    if two in {34, 37}:
        return length == 15
    if two in {36, 38, 39} or 3000 <= four <= 3059:
        return 14 <= length <= 16
    if 3528 <= four <= 3589:
        return 16 <= length <= 19
    return two in {50, 56, 57, 58, 60, 62, 63, 64, 65, 67, 68, 69, 81, 82} and 16 <= length <= 19


def aadhaar(digits: str) -> bool:
    return len(digits) == 12 and digits[0] not in "01" and verhoeff(digits)


def us_ssn(digits: str) -> bool:
    """Area, group and serial that the Social Security Administration can have issued."""
    if len(digits) != 9 or not _digits(digits):
        return False
    area = int(digits[:3])
    return area not in {0, 666} and area < 900 and digits[3:5] != "00" and digits[5:] != "0000"


def ssn_without_nought(digits: str) -> bool:
    """The same after a program has read it as a number, without leading zeros; not a date."""
    return us_ssn(f"0{digits}") and not digits.startswith(("19", "20"))


def us_itin(digits: str) -> bool:
    return (
        len(digits) == 9
        and _digits(digits)
        and digits[0] == "9"
        and int(digits[3:5]) in _ITIN_GROUPS
    )


def nhs(digits: str) -> bool:
    """NHS number: weights 10..2, check digit 11 - (sum mod 11), 10 is never issued."""
    if len(digits) != 10 or not _digits(digits) or digits == digits[0] * 10:
        return False
    total = sum((10 - index) * int(digits[index]) for index in range(9))
    check = 11 - total % 11
    return (0 if check == 11 else check) == int(digits[9])


def aba_routing(digits: str) -> bool:
    if len(digits) != 9 or not _digits(digits) or digits == "000000000":
        return False
    weights = (3, 7, 1, 3, 7, 1, 3, 7, 1)
    return sum(w * int(d) for w, d in zip(weights, digits, strict=True)) % 10 == 0


def npi(digits: str) -> bool:
    """US National Provider Identifier: Luhn over the health industry prefix and the number."""
    return len(digits) == 10 and digits[0] in "12" and luhn("80840" + digits)


def ca_sin(digits: str) -> bool:
    return len(digits) == 9 and digits[0] != "8" and luhn(digits)


def cpf(digits: str) -> bool:
    """Brazilian CPF: two check digits, weights counted down to 2."""
    if len(digits) != 11 or not _digits(digits) or digits == digits[0] * 11:
        return False
    for size in (9, 10):
        total = sum((size + 1 - index) * int(digits[index]) for index in range(size))
        if total * 10 % 11 % 10 != int(digits[size]):
            return False
    return True


def chinese_id(text: str) -> bool:
    """A resident's number: a province, a date of birth, and ISO 7064 mod 11-2."""
    upper = text.upper()
    if len(upper) != 18 or not _digits(upper[:17]) or upper[:2] not in _PROVINCES:
        return False
    total = sum(int(digit) * pow(2, 17 - at, 11) for at, digit in enumerate(upper[:17]))
    return _is_day(upper[6:14]) and "10X98765432"[total % 11] == upper[17]


_PROVINCES = frozenset(
    """
    11 12 13 14 15 21 22 23 31 32 33 34 35 36 37 41 42 43 44 45 46 50 51 52 53 54 61 62 63 64 65 71
    81 82 83
    """.split()  # noqa: SIM905 - a list literal would fill a screen.
)


def _is_day(digits: str) -> bool:
    try:
        return 1880 <= date(int(digits[:4]), int(digits[4:6]), int(digits[6:])).year <= 2100
    except ValueError:
        return False


def my_number(digits: str) -> bool:
    """A person's number in Japan: weights 2 to 7 from the right, check digit 11 - (sum mod 11)."""
    if len(digits) != 12 or not _digits(digits) or len({*digits}) < 3:
        return False
    weights = (6, 5, 4, 3, 2, 7, 6, 5, 4, 3, 2)
    rest = sum(w * int(d) for w, d in zip(weights, digits[:11], strict=True)) % 11
    return int(digits[11]) == (0 if rest < 2 else 11 - rest)


def korean_id(digits: str) -> bool:
    """A resident's number: date of birth and check digit, which those since 2020 lack."""
    if not korean_id_shape(digits):
        return False
    if digits[6] in "3478" and digits[:6] >= "201005":
        return True
    weights = (2, 3, 4, 5, 6, 7, 8, 9, 2, 3, 4, 5)
    total = sum(w * int(d) for w, d in zip(weights, digits[:12], strict=True))
    wanted = 11 if digits[6] in "1234" else 13  # Of foreigners' it is moved by two.
    return (wanted - total % 11) % 10 == int(digits[12])


def korean_id_shape(digits: str) -> bool:
    """The same, by its date and the digit for century and sex."""
    if len(digits) != 13 or not _digits(digits) or digits[6] not in "12345678":
        return False
    return _is_day(("19" if digits[6] in "1256" else "20") + digits[:6])


def hong_kong_id(text: str) -> bool:
    """One or two letters, six digits and a check digit; 10 is written A."""
    body = text.upper().rjust(9)
    if len(text) not in {8, 9} or not _digits(body[2:8]) or body[8] not in "0123456789A":
        return False
    values = [36 if char == " " else int(char, 36) for char in body]
    return sum(v * w for v, w in zip(values, range(9, 0, -1), strict=True)) % 11 == 0


def national_id(text: str) -> bool:
    """A person's number in some nation whose numbers have a check digit."""
    return any(proves(text) for proves in (cpf, chinese_id, my_number, korean_id, hong_kong_id))


def iban(text: str) -> bool:
    """Known country, its length, only digits if that is its rule, and ISO 7064 mod 97-10."""
    upper = text.upper()
    if len(upper) != IBAN_LENGTH.get(upper[:2], -1) or not (upper.isascii() and upper.isalnum()):
        return False
    if not _digits(upper[2:] if upper[:2] in _IBAN_OF_DIGITS else upper[2:4]):
        return False
    return int("".join(str(int(char, 36)) for char in upper[4:] + upper[:4])) % 97 == 1


def pan(text: str) -> bool:
    """Indian permanent account number: the fourth letter names the kind of holder."""
    return (
        len(text) == 10
        and text[:5].isalpha()
        and text[3].upper() in "ABCEFGHJKLPT"
        and _digits(text[5:9])
        and text[9].isalpha()
    )


def gstin(text: str) -> bool:
    """Indian GST number: state code, PAN inside, weighted mod-36 check character."""
    upper = text.upper()
    if len(upper) != 15 or not (upper.isascii() and upper.isalnum()) or not _digits(upper[:2]):
        return False
    if not 1 <= int(upper[:2]) <= 38 and upper[:2] not in {"97", "99"}:
        return False
    total = 0
    for index, char in enumerate(upper[:14]):
        product = _BASE36.index(char) * (1 + index % 2)
        total += product // 36 + product % 36
    return _BASE36[(36 - total % 36) % 36] == upper[14]


def machine_readable(text: str) -> bool:
    """The second line of a travel document (ICAO 9303): three parts with a check digit each."""
    return _TRAVEL_CHARACTERS.issuperset(text) and all(
        _travel_check(text[start:end]) == text[end : end + 1] for start, end in _TRAVEL_PARTS
    )


_TRAVEL_CHARACTERS = frozenset(_BASE36 + "<")
_TRAVEL_PARTS = ((0, 9), (13, 19), (21, 27))
_TRAVEL_WEIGHTS = (7, 3, 1)


def _travel_check(part: str) -> str:
    values = (0 if char == "<" else _BASE36.index(char) for char in part)
    return str(sum(v * _TRAVEL_WEIGHTS[at % 3] for at, v in enumerate(values)) % 10)


def bitcoin(text: str) -> bool:
    """Base58Check of a legacy address: version byte, hash, four bytes of double SHA-256."""
    number = 0
    for char in text[:40]:
        value = _BASE58.find(char)
        if value < 0:
            return False
        number = number * 58 + value
    if number.bit_length() > 200:
        return False
    raw = number.to_bytes(25, "big")
    return hashlib.sha256(hashlib.sha256(raw[:21]).digest()).digest()[:4] == raw[21:]


def public_ip(text: str) -> bool:
    """An address that says something: not loopback, unspecified, broadcast or documentation.

    Three zeros at the end are the version of a browser, or an entire network.
    """
    if text.endswith(".0.0.0"):
        return False
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    if address.is_loopback or address.is_unspecified or address.is_multicast:
        return False
    return not any(
        address.version == net.version and address in net for net in _DOCUMENTATION_NETWORKS
    )


_DOCUMENTATION_NETWORKS = tuple(
    ipaddress.ip_network(net)
    for net in (
        "0.0.0.0/8",
        "192.0.2.0/24",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "240.0.0.0/4",
        "2001:db8::/32",
    )
)


def ipv6(text: str) -> bool:
    """A meaningful IPv6 address: more than one group, so not `std::a` or `a::b` in code."""
    groups = [group for group in text.split(":") if group]
    if len(groups) < 3 or not any(char.isdigit() for char in text):
        return False
    return public_ip(text)


def jwt_header(text: str) -> bool:
    """The first part decodes to a JSON object that names an algorithm or a type."""
    head = text.split(".", 1)[0][:4096]
    try:
        decoded = msgspec.json.decode(base64.urlsafe_b64decode(head + "=" * (-len(head) % 4)))
    except (binascii.Error, ValueError, RecursionError, msgspec.MsgspecError):
        return False
    return isinstance(decoded, dict) and bool({"alg", "typ", "enc", "kid"} & decoded.keys())


def entropy(text: str) -> float:
    """Shannon entropy of the character distribution, bits per character."""
    length = len(text)
    if not length:
        return 0.0
    return -sum(n / length * log2(n / length) for n in Counter(text).values())


def _digits(text: str) -> bool:
    return text.isascii() and text.isdigit()
