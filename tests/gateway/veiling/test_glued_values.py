"""What is found is replaced wherever it stands: beside letters, digits and marks, too."""

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from classifiers.complexity.model import load as load_complexity
from classifiers.pii.scanner import PATTERNS_ONLY, load
from gateway.clock import SystemClock
from gateway.configuration.sections import InspectionSettings
from gateway.dialects.registry import DIALECTS
from gateway.inspection.inspector import Inspector
from gateway.types import ChatRequest
from gateway.veiling.forms import whole_place
from gateway.veiling.veil import Veil, veiled
from tests.classifiers import samples


pytestmark = pytest.mark.anyio
RNG = random.Random(31)
CARD = samples.with_luhn("4" + samples.digits(RNG, 14))
IBAN = samples.iban(RNG)
PASSWORD = "Tr0ub4dor" + samples.token(RNG, 3) + "7"
LONG = "sk" + "-" + samples.token(RNG, 400)
GLUED = {
    "a word before a number": (f"card{CARD} is mine", CARD),
    "letters around a number": (f"my CC{CARD}x", CARD),
    "a name of a file": (f"file_{CARD}_scan.pdf", CARD),
    "lines below around an account": (f"IBAN_{IBAN}_x", IBAN),
    "stress in Markdown": ("Please greet _Ingrid Halvorsen_ from me", "Halvorsen"),
    "an address in a name": ("user_name=anna.berg@corp-mail.no_x", "anna.berg@corp-mail.no"),
    "a telephone in a name": ("Call_+47 22 85 50 50_now", "22 85 50 50"),
    "letters of a script without blanks": (
        "\u30e1\u30fc\u30eb\u306fanna@corp-mail.no\u3067\u3059",
        "anna@corp-mail.no",
    ),
    "a key longer than any that is read": (f"key: {LONG}.", LONG[250:]),
    "a password among letters of another script": (f"\u5bc6\u7801\u662f{PASSWORD}\u8bf7", PASSWORD),
}


def asked(text: str) -> ChatRequest:
    body = {"model": "auto", "messages": [{"role": "user", "content": text}]}
    return DIALECTS["openai_chat"].decode_request(msgspec.json.encode(body), "req_1")


def content_of(veil: Veil) -> str:
    return str(msgspec.json.decode(veil.request.raw)["messages"][0]["content"])


def inspector(scanner: Any) -> Inspector:
    return Inspector(InspectionSettings(), load_complexity(), SystemClock(), scanner)


@pytest.mark.parametrize("one_way", [False, True])
@pytest.mark.parametrize("name", GLUED)
async def test_a_value_leaves_in_no_company(name: str, *, one_way: bool) -> None:
    text, value = GLUED[name]
    request, adapter = asked(text), DIALECTS["openai_chat"]
    reader = inspector(load())
    found = await reader.locate(request, "acme")
    reader.close()
    assert found
    veil = veiled(request, [], adapter, found, b"k" * 32, one_way=one_way)
    assert value.encode() not in veil.request.raw
    sent = content_of(veil)
    if not one_way and not any(label in {"SECRET", "PASSWORD"} for label, _ in found):
        assert veil.names.restored(sent) == text


@given(st.text("ab1_ .-\u3042", max_size=6), st.text("ab1_ .-\u3042", max_size=6))
def test_whatever_stands_beside_a_place_all_of_it_is_replaced(before: str, after: str) -> None:
    for value in (CARD, "Lind", "a1b2c3d4e5"):
        text = f"{before}{value}{after}"
        start, end = whole_place(text, len(before), len(before) + len(value))
        assert value in text[start:end]
        found = [("MRN", text[start:end])]
        veil = veiled(asked(text), [], DIALECTS["openai_chat"], found, b"k" * 32, one_way=True)
        assert value not in content_of(veil)


async def test_content_that_is_kept_blackened_holds_no_glued_value() -> None:
    reader = inspector(PATTERNS_ONLY)
    answer = msgspec.json.encode({"content": f"It is card{CARD}, _anna@corp-mail.no_."})
    black = await reader.blackened(asked(f"my CC{CARD}"), "acme", answer)
    reader.close()
    assert msgspec.json.decode(black) == {
        "content": "It is card[REDACTED:CREDIT_CARD], [REDACTED:EMAIL]_."
    }
