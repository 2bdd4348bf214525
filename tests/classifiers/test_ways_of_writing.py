"""Identifiers and passwords as programs, models and file names write them."""

import quopri
import random
from collections.abc import Iterable

import pytest

from classifiers.inspection import inspect
from classifiers.pii.detect import find
from tests.classifiers import samples


RANDOM = random.Random(12)
CARD = samples.with_luhn("4" + samples.digits(RANDOM, 14))
SSN = samples.ssn(RANDOM)
BARE_SSN = SSN.replace("-", "")
PAN = f"ABCPE{samples.digits(RANDOM, 4)}F"
GSTIN = samples.gstin(RANDOM)
PASSWORD = f"Tr0ub{samples.digits(RANDOM, 3)}or"
WORDS = "legal winner thank year wave sausage worth useful legal winner thank yellow"
PASSPORT = "C01X00T47"
NINO = "AB123456C"
BORN = "1984-03-07"


def travel_digit(part: str) -> str:
    """As the standard for travel documents says it: weights of seven, three and one."""
    alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    values = [0 if char == "<" else alphabet.index(char) for char in part]
    weights = [7, 3, 1] * len(part)
    return str(sum(a * b for a, b in zip(values, weights, strict=False)) % 10)


def travel_line(number: str, born: str, ends: str) -> str:
    parts = ((number, "D<<"), (born, "F"), (ends, "<" * 14))
    return "".join(f"{part}{travel_digit(part)}{behind}" for part, behind in parts) + "<4"


LINE = travel_line(PASSPORT, "640812", "270228")
WRITTEN = {
    "IN_PAN": [
        f"PAN_{PAN}.pdf",
        f"scans/x_{PAN}_2.png",
        f"my pan {PAN[:5]} {PAN[5:9]} {PAN[9]}",
        f"PAN: {PAN[:5]}-{PAN[5:9]}-{PAN[9]}",
    ],
    "IN_GSTIN": [f"gst_{GSTIN}.xlsx", f"my gstin is {GSTIN.lower()}"],
    "UK_NINO": [f"nino_{NINO}.pdf", f"{NINO}_scan.jpg"],
    "PASSPORT": [
        f"<person><passportNumber>{PASSPORT}</passportNumber></person>",
        f"| Passport | {PASSPORT} |",
        f"- **Passport number:** {PASSPORT}",
        f"Passport: `{PASSPORT}`",
        f"P<D<<MUSTERMANN<<ERIKA<<<<<<<<<<<<<<<<<<<<<<<<\n{LINE}",
    ],
    "DOB": [
        f'{{"birthdate": "{BORN}T00:00:00Z"}}',
        f"<dateOfBirth>{BORN}</dateOfBirth>",
        f"my_dob_{BORN}.pdf",
        f"**Date of birth:** {BORN}",
        f"| DOB | {BORN} |",
        f"date-of-birth: {BORN}",
    ],
    "US_SSN": [
        f'{{"socialSecurityNumber": "{BARE_SSN}"}}',
        f'{{"social-security-number": "{BARE_SSN}"}}',
        f"SS# {BARE_SSN}",
        '{"userSsn": 78051120}',
        "name,ssn,age\nx,78051120,44",
        f"Social: {BARE_SSN}",
        f"SSN {SSN[:7]}**{SSN[7:]}**",
        f"SSN **{SSN[:3]}**-{SSN[4:]}",
        quopri.encodestring(f"my ssn is {SSN}".encode(), quotetabs=True).decode(),
    ],
    "PHONE": [
        "\u8bf7\u62e8\u6253\u624b\u673a13812345678\u8054\u7cfb\u6211\u3002",
        "\uc804\ud654\ubc88\ud638\ub294 010-1234-5678 \uc785\ub2c8\ub2e4.",
        "\u0647\u0627\u062a\u0641 \u0660\u0665\u0660\u0661\u0662\u0663\u0664\u0665\u0666\u0667",
    ],
    "SECRET": [
        f"My seed phrase: {WORDS}",
        f"My seed phrase: they have into {WORDS}",
        f"wallet recovery words are {WORDS} keep them safe",
        "Recovery phrase:\n" + "\n".join(f"{i}. {w}" for i, w in enumerate(WORDS.split(), 1)),
    ],
    "CREDIT_CARD": [
        f"{CARD[:4]} {CARD[4:8]} {CARD[8:12]} **{CARD[12:]}**",
        f"{CARD[:6]}__{CARD[6:12]}__{CARD[12:]}",
        f"{CARD[:12]}`{CARD[12:]}`",
    ],
    "PASSWORD": [
        "password: secret!",
        "DB_PASSWORD='Strong!!'",
        f"<user><name>bob</name><password>{PASSWORD}</password></user>",
        f'<db:adminPassword xml:space="x">{PASSWORD}</db:adminPassword>',
        f'<input type="password" name="password" value="{PASSWORD}">',
        f"CREATE USER bob IDENTIFIED BY '{PASSWORD}';",
        f"ALTER USER bob IDENTIFIED WITH mysql_native_password BY '{PASSWORD}';",
        f"curl -s -u bob:{PASSWORD} https://api.corp.io/v1",
        f"curl -u bob:{PASSWORD} https://api.corp.io/v1",
        f"curl -ubob:{PASSWORD} https://api.corp.io/v1",
        f'{{"command": ["curl", "--user", "bob:{PASSWORD}", "https://api.corp.io/v1"]}}',
        f"mysql -h db -u root -p{PASSWORD} shop",
        f"mysql -p{PASSWORD} shop",
        f'["mysql", "-p{PASSWORD}", "shop"]',
        f'{{"host": "db1", "password": {{"value": "{PASSWORD}"}}}}',
        f'{{"password": {{\n    "value": "{PASSWORD}"\n  }}}}',
        f'{{"name": "password", "value": "{PASSWORD}"}}',
        f'{{"dbPass": "{PASSWORD}"}}',
        f"SMTP_PASS={PASSWORD}",
        f"**Password:** {PASSWORD}",
        f"- **Password**: `{PASSWORD}`",
        f"| Password | {PASSWORD} |",
        f"mein Passwort ist {PASSWORD}",
        f"mon mot de passe est {PASSWORD}",
        f"mi contrase\u00f1a es {PASSWORD}",
        "bob:$apr1$x8pQ2m1z$7vKq0mXcYd3nF5tJ8wLrE1",
        f"bob:$2y$05${'Qh8mV0zXc3bN7kLpR2tYw' * 2}OeQh8mV0zXc",
        f"bob:$6$rounds=5000$saltsalt12${'Zx8vQm2ttK7pLs2TnQeAc' * 4}.Q",
        f"Le mot de passe du wifi est {PASSWORD}",
        f"La contrase\u00f1a nueva es {PASSWORD}",
        f"Passwort f\u00fcr das WLAN ist {PASSWORD}",
        f"Das Passwort lautet {PASSWORD}",
        f"mot de passe provisoire : {PASSWORD}",
    ],
}


def each_of(written: dict[str, list[str]]) -> Iterable[tuple[str, str]]:
    return [(label, text) for label, texts in written.items() for text in texts]


@pytest.mark.parametrize(("label", "text"), each_of(WRITTEN))
def test_a_value_is_found_as_it_is_written(label: str, text: str) -> None:
    request = {"messages": [{"role": "user", "content": f"Look at this:\n{text}\nThank you."}]}
    assert inspect(request).counts.get(label) == 1


@pytest.mark.parametrize(
    "text",
    [
        "4111 **** **** 1111 and 411111******1111",
        "2**31 - 1 is 2147483647, 10**12 and x[3**5:7**9]",
        "The password is wrong! Das Passwort ist falsch! Is the password required?",
        "The password for the release notes is described in section4.",
        "a password > 8 characters, or if len(password) >min_length_8",
        '<label for="password">Choose12</label> <input name="password" value="">',
        "mysql -h db -u root -p shop1; mysql --print-defaults1; curl -u $USER:$TOKEN https://x.io",
        "curl -X POST -d build:Run123456 -H a:b9c8d7e6",
        '{"password": {"type": "string", "pattern": "^pw_8[a-z]{2}$"}}',
        "identified by the number 12345 in table 4",
        "post it to GL account 1207988 and to ledger account no. 1207989",
        "snowflake ids: 541298374652938475",
        "The seed phrase consists of twelve words chosen from lists that every wallet knows about.",
        "sed 's/(.*)/$1$abcdef$2/' file; echo $5$foo$6 costs $2$",
        "the tests pass: build_12 ok, first_pass = Run2x",
        "https://shop.io/?q=20123&size=20px&page=2045",
        f"{LINE[:9]}{(int(LINE[9]) + 1) % 10}{LINE[10:]}",
        "date of birth_date: unknown",
        "ISSN 03178471 and ISSN: 78051120",
        "ssn: 19840524",
        "Tracking: 1Z4F8B2A6997532481",
    ],
)
def test_what_only_looks_alike_is_left_alone(text: str) -> None:
    assert find(text) == ()


@pytest.mark.parametrize(
    "text",
    [
        f'{{"passwords": ["{PASSWORD}"]}}',
        f'{{"\u043f\u0430\u0440\u043e\u043b\u044c": ["{PASSWORD}"]}}',
        f'{{"api_key": ["{PASSWORD}{PASSWORD[::-1]}"]}}',
    ],
)
def test_a_secret_that_stands_in_a_list_is_found_in_arguments_of_a_call(text: str) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": text}}
    request = {"messages": [{"role": "assistant", "content": None, "tool_calls": [call]}]}
    assert inspect(request).data_class.name == "S4"
