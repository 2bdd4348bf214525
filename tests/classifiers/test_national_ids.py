"""Numbers of residents of China, Japan, Korea and Hong Kong, by check digits and by words."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from classifiers.pii.detect import find
from classifiers.pii.numerals import validators
from tests.classifiers import samples


RANDOM = random.Random(61)
SEEDS = st.integers(0, 2**32)


def chinese(rng: random.Random) -> str:
    """As ISO 7064 says it: the sum of all digits, each times its place's power of two, is one."""
    born = f"{rng.randint(1900, 2023)}{rng.randint(1, 12):02}{rng.randint(1, 28):02}"
    body = f"{rng.choice(['110105', '310104', '440303', '650104'])}{born}{rng.randint(0, 999):03}"
    for check in "0123456789X":
        values = [10 if char == "X" else int(char) for char in body + check]
        if sum(value * 2 ** (17 - at) for at, value in enumerate(values)) % 11 == 1:
            return body + check
    raise AssertionError


def korean(rng: random.Random) -> str:
    born = f"{rng.randint(30, 99)}{rng.randint(1, 12):02}{rng.randint(1, 28):02}"
    body = f"{born}{rng.choice('12')}{samples.digits(rng, 5)}"
    total = sum(int(d) * w for d, w in zip(body, (2, 3, 4, 5, 6, 7, 8, 9, 2, 3, 4, 5), strict=True))
    return f"{born}-{body[6:]}{(11 - total % 11) % 10}"


def my_number(rng: random.Random) -> str:
    body = samples.digits(rng, 11)
    rest = sum(int(d) * (at + 2 if at < 6 else at - 4) for at, d in enumerate(body[::-1])) % 11
    return f"{body}{0 if rest < 2 else 11 - rest}"


def hong_kong(rng: random.Random) -> str:
    letter, body = rng.choice("ABCDEGHKMPRVYZ"), samples.digits(rng, 6)
    total = 9 * 36 + 8 * (ord(letter) - 55) + sum(int(d) * (7 - at) for at, d in enumerate(body))
    check = -total % 11
    return f"{letter}{body}({'A' if check == 10 else check})"


CHINESE, KOREAN, MY_NUMBER, HONG_KONG = (
    make(RANDOM) for make in (chinese, korean, my_number, hong_kong)
)


def labels(text: str) -> list[str]:
    return [f.label for f in find(text)]


@given(SEEDS)
def test_what_is_made_by_the_rules_is_one_and_its_neighbour_is_none(seed: int) -> None:
    rng = random.Random(seed)
    for number, accepts in (
        (chinese(rng), validators.chinese_id),
        (korean(rng).replace("-", ""), validators.korean_id),
        (my_number(rng), validators.my_number),
        (hong_kong(rng).replace("(", "").replace(")", ""), validators.hong_kong_id),
    ):
        assert accepts(number), number
        # Of a My Number two sums have one check digit, so only that one is changed.
        at = 11 if accepts is validators.my_number else 7
        wrong = "0123456789".replace(number[at], "")[rng.randrange(9)]
        assert not accepts(number[:at] + wrong + number[at + 1 :]), number


@given(st.text("0123456789XA()- ", max_size=20))
def test_any_text_has_an_answer(text: str) -> None:
    validators.national_id(text)


@pytest.mark.parametrize(
    "text",
    [
        CHINESE, f"身份证号 {CHINESE}", f"id: {CHINESE.lower()}",
        f"{CHINESE[:6]} {CHINESE[6:14]} {CHINESE[14:]}",
        f"身份证：{CHINESE.translate({ord(str(d)): 0xFF10 + d for d in range(10)})}。",
        KOREAN, f"주민등록번호 {KOREAN}", f"주민등록번호: {KOREAN.replace('-', '')}",
        f"주민번호는 {KOREAN[:-1]}7입니다",
        "RRN 211105-3000000", HONG_KONG, f"身份證號碼：{HONG_KONG}",
        f"HKID {HONG_KONG[:-3]}{HONG_KONG[-2]}",
        f"マイナンバー {MY_NUMBER}", f"個人番号：{MY_NUMBER[:4]} {MY_NUMBER[4:8]} {MY_NUMBER[8:]}",
        f"My Number: {MY_NUMBER[:4]}-{MY_NUMBER[4:8]}-{MY_NUMBER[8:]}",
    ],
)  # fmt: skip
def test_a_residents_number_is_found(text: str) -> None:
    assert labels(text) == ["NATIONAL_ID"]


@pytest.mark.parametrize(
    "text",
    [
        f"{CHINESE[:17]}{'1' if CHINESE[17] != '1' else '2'}", "订单 202411302359591234",
        f"a{CHINESE}",
        f"900101-123456{(int(KOREAN[-1]) + 1) % 10}"[:12], "991301-1234567", "900101-9234567",
        "주문번호 240115-0000123", "f(A1234567)", "A123456(4)", "part B200145(7)",
        MY_NUMBER[:-1] + str((int(MY_NUMBER[-1]) + 1) % 10),
        f"マイナンバー {MY_NUMBER[:-1]}{(int(MY_NUMBER[-1]) + 1) % 10}",
    ],
)  # fmt: skip
def test_other_numbers_are_none(text: str) -> None:
    assert "NATIONAL_ID" not in labels(text)
