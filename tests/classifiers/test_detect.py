"""Detection: what must be found is found wherever it stands; clean texts stay clean."""

import base64
import json
import random
import string
from collections.abc import Callable

import pytest
import re2
from hypothesis import given, settings
from hypothesis import strategies as st

from classifiers.pii import detect, gate, patterns
from classifiers.pii.credentials import passwords, secrets
from classifiers.pii.detect import find
from classifiers.pii.findings import Finding
from classifiers.pii.labels import LABELS, DataClass, data_class_of
from tests.classifiers import samples


SEEDS = st.integers(0, 2**32)
GENERATED: tuple[tuple[str, Callable[[random.Random], str]], ...] = (
    ("CREDIT_CARD", samples.card),
    ("IN_AADHAAR", samples.aadhaar),
    ("IBAN", samples.iban),
    ("US_SSN", samples.ssn),
    ("IN_GSTIN", samples.gstin),
)


def labels_at(text: str, value: str) -> set[str]:
    start = text.index(value)
    return {
        finding.label
        for finding in find(text)
        if finding.start <= start and finding.end >= start + len(value)
    }


@given(SEEDS, st.sampled_from(GENERATED))
def test_a_valid_identifier_in_clean_text_is_found_at_its_place(
    seed: int, kind: tuple[str, Callable[[random.Random], str]]
) -> None:
    rng = random.Random(seed)
    value = kind[1](rng)
    text = f"{samples.clean_text(rng)} {value} {samples.clean_text(rng)}"
    assert kind[0] in labels_at(text, value)


@given(SEEDS, st.sampled_from([" ", "-", ".", "/"]))
def test_separators_inside_a_card_do_not_hide_it(seed: int, separator: str) -> None:
    rng = random.Random(seed)
    value = samples.grouped(samples.card(rng), separator)
    text = f"{samples.clean_text(rng)} {value} {samples.clean_text(rng)}"
    assert "CREDIT_CARD" in labels_at(text, value)


@given(seed=SEEDS, count=st.integers(2, 12), spaced=st.booleans())
def test_every_card_of_a_list_is_found(seed: int, count: int, *, spaced: bool) -> None:
    rng = random.Random(seed)
    cards = [samples.with_luhn("4" + samples.digits(rng, 14)) for _ in range(count)]
    text = " ".join(samples.grouped(card, " ") if spaced else card for card in cards)
    covered = {i for f in find(text) if f.label == "CREDIT_CARD" for i in range(f.start, f.end)}
    assert {i for i, char in enumerate(text) if char.isdigit()} <= covered


@given(SEEDS)
def test_a_card_written_together_with_a_word_is_found(seed: int) -> None:
    card = samples.card(random.Random(seed))
    for text in (f"card{card}", f"cc_{card}_x", f"my number {card}thanks", f"(no{card})nox{card}"):
        assert "CREDIT_CARD" in {finding.label for finding in find(text)}


@given(SEEDS)
def test_disguised_digits_are_found_at_their_original_place(seed: int) -> None:
    rng = random.Random(seed)
    card = samples.card(rng)
    for value in (
        "\u200b".join(card),
        "".join(chr(ord(char) - 0x30 + 0xFF10) for char in card),
        "".join(chr(ord(char) - 0x30 + 0x0966) for char in card),
        card[:4] + "\u2009" + card[4:],
    ):
        text = f"\u0928\u092e\u0938\u094d\u0924\u0947 card {value}, thanks"
        assert "CREDIT_CARD" in labels_at(text, value)


def key_samples(rng: random.Random) -> list[tuple[str, str]]:
    token = samples.token
    header = base64.urlsafe_b64encode(b'{"alg":"HS256","typ":"JWT"}').decode().rstrip("=")
    claims = base64.urlsafe_b64encode(b'{"sub":"42"}').decode().rstrip("=")
    mixed = string.ascii_lowercase + 2 * string.digits
    upper = string.ascii_uppercase + string.digits
    word = token(rng, 6, string.ascii_lowercase) + "7" + token(rng, 4, "!@#") + "Z"
    return [
        ("SECRET", "gw_live_" + token(rng, 32)),
        ("SECRET", "AKIA" + token(rng, 16, upper)),
        ("SECRET", "AIza" + token(rng, 35)),
        ("SECRET", "ghp_" + token(rng, 36)),
        ("SECRET", "github_pat_" + token(rng, 60)),
        ("SECRET", "xoxb-" + token(rng, 40)),
        ("SECRET", "sk_live_" + token(rng, 24)),
        ("SECRET", "sk-proj-" + token(rng, 48)),
        ("SECRET", "sk-ant-api03-" + token(rng, 80)),
        ("SECRET", "glpat-" + token(rng, 20)),
        ("SECRET", "AccountKey=" + token(rng, 86) + "=="),
        ("JWT", f"{header}.{claims}.{token(rng, 43)}"),
        ("PASSWORD", f"postgres://app:{word}@db.internal/orders"),
        ("PASSWORD", f"password = '{word}'"),
        ("SECRET", "client_secret: " + token(rng, 32, mixed)),
        ("SECRET", "acmecorp_" + token(rng, 36, mixed)),
    ]


@settings(max_examples=30)
@given(SEEDS)
def test_keys_and_passwords_built_at_random_are_found(seed: int) -> None:
    rng = random.Random(seed)
    for label, value in key_samples(rng):
        text = f"{samples.clean_text(rng)} {value} and {samples.clean_text(rng)}"
        start = text.index(value)
        found = {f.label for f in find(text) if f.start < start + len(value) and f.end > start}
        assert found & {label, "SECRET"}, (label, seed)


@pytest.mark.parametrize("first", ["a", "Z", "7"])
def test_a_key_behind_the_number_of_its_owner_is_found_whatever_it_begins_with(first: str) -> None:
    rng = random.Random(4)
    key = f"1{samples.digits(rng, 15)}-{first}{samples.token(rng, 27, string.ascii_lowercase)}"
    assert [finding.label for finding in find(f"we use {key} for it")] == ["SECRET"]


def test_a_private_key_block_is_one_finding_even_when_torn() -> None:
    rng = random.Random(5)
    body = "\n".join(samples.token(rng, 64) for _ in range(8))
    head, tail = "-----BEGIN RSA PRIVATE KEY-----", "-----END RSA PRIVATE KEY-----"
    whole = f"please convert\n{head}\n{body}\n{tail}\nthanks"
    (finding,) = find(whole)
    assert (finding.label, whole[finding.start : finding.end]) == (
        "PRIVATE_KEY",
        f"{head}\n{body}\n{tail}",
    )
    (torn,) = find(f"{head}\n{body}")
    assert torn.end == len(head) + 1 + len(body)


@pytest.mark.parametrize("torn_length", [0, 500, 9_000, 15_900])
def test_keys_behind_a_torn_one_are_found_whole(torn_length: int) -> None:
    rng = random.Random(7)
    head, tail = "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----"

    def body(length: int) -> str:
        return "\n".join(samples.token(rng, 64) for _ in range(length // 65))

    whole = f"{head}\n{body(12_000)}\n{tail}"
    text = f"see\n{head}\n{body(torn_length)}\n{whole}\nand\n{whole}\nthanks"
    spans = [(f.start, f.end) for f in find(text) if f.label == "PRIVATE_KEY"]
    second = text.index(whole)
    third = text.index(whole, second + 1)
    assert spans == [(4, second), (second, second + len(whole)), (third, third + len(whole))]


def test_a_very_long_key_is_found_to_its_end_and_prose_between_two_mentions_is_not() -> None:
    rng = random.Random(8)
    head, tail = "-----BEGIN PGP PRIVATE KEY BLOCK-----", "-----END PGP PRIVATE KEY BLOCK-----"
    body = "\n".join(samples.token(rng, 64) for _ in range(800))
    (key,) = (f for f in find(f"{head}\n{body}\n{tail}\nbye") if f.label == "PRIVATE_KEY")
    assert key.end == len(head) + 2 + len(body) + len(tail)
    prose = "this is how the file begins, and in the end there is another line " * 600
    (mention,) = (f for f in find(f"{head} {prose} {tail}") if f.label == "PRIVATE_KEY")
    assert mention.end < 20_000


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("write to jane.doe+news@corp-mail.co.in today", "EMAIL"),
        ("call me on +49 40 4084502", "PHONE"),
        ("mobile 98765 43210", "PHONE"),
        ("fax: 463-612-6138x036", "PHONE"),
        ("connect to 160.219.105.202 please", "IP_ADDRESS"),
        ("ip=2a02:b562:678::b658", "IP_ADDRESS"),
        ("pay 500 to somebody@okicici now", "IN_UPI"),
        ("verify PAN ABCPE1234F", "IN_PAN"),
        ("passport no. X8844788, name", "PASSPORT"),
        ("NI number TL 12 50 63 D", "UK_NINO"),
        ("My voter ID is BKE8754953", "IN_VOTER_ID"),
        ("device 51-af-ef-43-e2-8a", "MAC_ADDRESS"),
        ("MRN: 939-95-169.", "MRN"),
        ("account 29510345889", "BANK_ACCOUNT"),
        ("DOB 01.06.1973", "DOB"),
        ("\u0906\u0927\u093e\u0930 \u0928\u0902\u092c\u0930 123412341234", "IN_AADHAAR"),
    ],
)
def test_an_identifier_with_its_usual_words_gets_its_label(text: str, label: str) -> None:
    assert label in {finding.label for finding in find(text)}


@pytest.mark.parametrize(
    "text",
    [
        "someone@example.com and admin@localhost and logo@2x.png",
        "Server listens on 0.0.0.0:8000 and localhost 127.0.0.1, docs use 192.0.2.7",
        "api_key = os.environ['OPENAI_API_KEY']; token = get_token(user, 3600)",
        "api_key = '<YOUR_API_KEY>'",
        "Why does commit 7cd611da8b8bc0fb4d931f3ec856472d4552fca5 break the build?",
        "Trace id 82437052-eee7-64e5-0d25-c93bfac41800 shows a 502",
        "created_at > '2023-07-15 10:11:12' and the loss went from 3.68571234 to 1.75261111",
        "ISBN 978-9-394-81323-2 is out of print; version 10.4.1; SKU VL-31101-B",
        "std::vector<int> a::b c; for (int i = 0; i < 100000000; ++i) { x[i] ^= 0xdeadbeef; }",
        "def validate(password: str, confirm_password: str) -> bool: return password == other",
        "netmask 255.255.255.224 and rows 15 16   17 18   19 20   21 22   23 24   25 26   27",
        "SELECT count(*) FROM orders WHERE amount > 1500000 LIMIT 1000",
        "import numpy as np\nx = np.linspace(0.0, 1.0, 1000000)\nprint(x.mean(), x[:10])",
    ],
)
def test_clean_code_and_prose_have_no_findings(text: str) -> None:
    assert find(text) == ()


@given(SEEDS)
def test_random_clean_prose_has_no_findings(seed: int) -> None:
    assert find(samples.clean_text(random.Random(seed), 200)) == ()


@given(st.text(max_size=400))
def test_any_text_gives_ordered_disjoint_findings_inside_it(text: str) -> None:
    reached = 0
    for finding in find(text):
        assert reached <= finding.start < finding.end <= len(text)
        assert finding.label in LABELS
        assert 0.5 <= finding.score <= 1
        reached = finding.end


FRAGMENTS = st.sampled_from(
    [
        *("a@b.io", "key=", "password ", "4111 1111", "eyJhbGci", ".", "://", "u:p@", "GB82WEST"),
        *("-----BEGIN PRIVATE KEY-----", "-----END", "+49 ", "\x1f", "\u200b", "\uff11", "AKIA"),
        *("1", "12-", "0x", "aZ9", " ", "\n", "sk-", "bearer ", "account ", "id"),
    ]
)


@given(st.lists(FRAGMENTS, max_size=60))
def test_fragments_of_patterns_never_break_detection(parts: list[str]) -> None:
    text = "".join(parts)
    assert find(text) == find(text)
    assert all(0 <= f.start < f.end <= len(text) for f in find(text))


@given(st.lists(FRAGMENTS, max_size=40), SEEDS)
def test_the_gate_opens_wherever_a_rule_would_match(parts: list[str], seed: int) -> None:
    rng = random.Random(seed)
    values = [value for _, value in key_samples(rng)] + [make(rng) for _, make in GENERATED]
    data = "".join([*parts, *rng.sample(values, 3)]).encode("ascii", "replace")
    for rule in (*patterns.PATTERNS, *secrets.SECRETS, *passwords.PASSWORDS):
        if re2.compile(rule.regex.encode(), gate.options()).search(data):
            trigger = re2.compile(gate.trigger_of(rule).encode(), gate.options())
            assert trigger.search(data), rule.name


def test_every_label_of_a_rule_is_described_and_unknown_labels_are_most_sensitive() -> None:
    for rule in (*patterns.PATTERNS, *secrets.SECRETS, *passwords.PASSWORDS):
        assert rule.label in LABELS
    assert data_class_of("SOMETHING_NEW") is DataClass.S4


@pytest.mark.parametrize(
    "unit",
    [
        "1",
        "1 ",
        "a@",
        "key=",
        "eyAAAAAAAAAAAA.",
        "-----BEGIN PRIVATE KEY-----",
        "a://b:",
        "\u200b4",
    ],
)
def test_a_flood_of_candidates_ends_and_is_complete_or_says_that_it_is_not(unit: str) -> None:
    scanned = detect.scan(unit * (300_000 // len(unit)))
    assert scanned.complete or len(scanned.findings) <= detect.MAX_CANDIDATES


def test_too_many_candidates_are_reported_as_an_incomplete_scan() -> None:
    assert not detect.scan("a.b@c.io " * (detect.MAX_CANDIDATES + 1)).complete


def test_a_finding_shows_no_value() -> None:
    text = json.dumps({"note": "mail jane@corp.io"})
    assert "jane" not in repr(find(text))
    assert isinstance(find(text)[0], Finding)


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("cfg = q7$Rk2!v9@Wd4#z8%Lp3", "SECRET"),
        ("AB1234<<<1D<<8001014<2501017<<<", "PASSPORT"),
    ],
)
def test_no_rule_waits_for_a_longer_word_than_it_reads(text: str, label: str) -> None:
    """Rules that count characters are asked of texts with nine in a row that any of them reads."""
    assert [f.label for f in find(text)] == [label]
