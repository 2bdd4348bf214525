"""Turns of agents, code, logs and manuals: what is nobody's secret or number is taken for none."""

import random
import uuid
from typing import Any

import pytest

from benchmarks import technical
from classifiers.inspection import inspect
from classifiers.pii.credentials.own_forms import without_own_forms
from classifiers.pii.labels import DataClass, data_class_of
from classifiers.pii.names.witnesses import speaks_for
from classifiers.pii.scanner import load
from tests.identifiers import aadhaar


SCANNER = load()
RANDOM = random.Random(7)
DIGEST = "kXXoiPVVGQcnIYGOeaovwOURpniDBpSq4A03qkQBMQqtGG6HYap3xne9C1O1yo4TR3qxlCX5IqqmX6fFo2Lqgw"
RESOURCE = "0ed1a426e96a68374"
ONE = "67da4ec9-92a3-4d95-886a-5d6772c24063"
OTHER = "20bcc812-8a94-4cd7-920c-0ff742111424"
MODULE = '''
class KeyTable:
    """What is kept of each key, by name."""

    def __init__(self, places: Mapping[str, Place], names: dict[str, tuple[int, str]]) -> None:
        self._open: dict[str, list[str]] = {}

    async def set_password(self, name: str, password: Secret[str]) -> None:
        self.password: SecretReference | None = None
        os.close(child_w)
        await asyncio.to_thread(hash_password, password)
'''
INSTRUCTIONS = """
You are a coding agent in a terminal. Similarly, debug what fails before you change it. Larger
changes come with a plan. Use `/tmp/work` for files that do not last, and the instructions below.

- Search with `grep` or `find`, never with `cat`, `head`, `tail`, `sed` or `awk`.
- Output token budget. Defaults to 10000 tokens; larger requests may be capped.
- Timeout in milliseconds. Defaults to 30000, min 10000, max 3600000.
- Wait before yielding output. Defaults to 10000 ms; effective range is 250-30000 ms.
- You can provide a one-time password with --otp=<code>.
"""
MANUAL = """
You edit the files of one repository \u2014 plan, then act.
- api-notes: Reference for the vendor's code \u2014 model ids, streaming, tool use, MCP, agents.
- Removes it from the list \u2192 "57 8 <day> <month> *" (durable jobs survive; others do not).
- End commit messages with:
Co-Authored-By: Assistant <noreply@assistant.dev>
git clone git@code.acme.dev:platform/gateway.git
"""
LOG = f"""
-rw-r--r-- 1 root root 30736 2026-01-31 00:10 /bin/ping
{{"createdAt": 1563908363.999, "eventId": "{ONE}", "threadId": "{OTHER}"}}
"SubnetId": "subnet-{RESOURCE}",
"integrity": "sha512-{DIGEST}==",
arn:aws:ssm-contacts:us-east-2:111122223333:contact/akuam/{ONE}
--account-id 111122223333, SID S-1-5-21-5567891234-5678912345-1107
MIT License (MIT). Copyright (c) 2014-2020. As RFC 5424 says, U+0460-0463 and U+2118-U+211A.
apt install libgcrypt20 libgnutls28-dev on amd64
"""


def sensitive(text: str) -> list[str]:
    """What keeps a text at home, or makes it personal."""
    found = SCANNER.scan(text).findings
    return [
        f"{each.label}: {text[each.start : each.end]}"
        for each in found
        if data_class_of(each.label) >= DataClass.S2
    ]


@pytest.mark.parametrize("text", [MODULE, INSTRUCTIONS, LOG], ids=["code", "instructions", "log"])
def test_code_instructions_and_logs_name_nobody_and_hold_no_secret(text: str) -> None:
    assert sensitive(text) == []


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("Sign in with password Winter#2031 and tell nobody.", "PASSWORD"),
        ("Officer Barnes noted licence number D245-938-19-203 in the report.", "DRIVER_LICENSE"),
        ("Please pay from account 40817 2210 9954 at your bank.", "BANK_ACCOUNT"),
        ("She lives at 48 Orchard Lane, Leeds LS6 3AB.", "ADDRESS"),
        ("Call me on +44 20 7946 0958 tonight.", "PHONE"),
        ("Ship to our office (48 Orchard Lane, Leeds LS6 3AB) by Monday.", "ADDRESS"),
        ("<address>48 Orchard Lane, Leeds LS6 3AB</address>", "ADDRESS"),
        ("street=Baker Street 12;city=London", "ADDRESS"),
        ('{"to": "48 Orchard Lane\\nLeeds LS6 3AB"}', "ADDRESS"),
        ('{"account_id": "408172210994", "holder": "Ingrid Halvorsen"}', "BANK_ACCOUNT"),
        ("Login rdeshpande / Winter2031", "PASSWORD"),
        ("Wohnhaft Lindenstra\u00dfe 14, 50674 K\u00f6ln.", "ADDRESS"),
    ],
)
def test_what_something_speaks_for_is_still_found(text: str, label: str) -> None:
    assert label in [each.label for each in SCANNER.scan(text).findings]


@pytest.mark.parametrize(
    "text",
    [
        "ship to (48 orchard lane, leeds ls6 3ab)",
        '{"to": "9 church lane, bristol bs1 4qd", "slot": "am"}',
        "we moved to 7 rose crescent, york yo1 7hh last week",
    ],
)
def test_an_address_in_small_letters_is_found_by_its_number_and_kind_of_street(text: str) -> None:
    assert any("ADDRESS" in each for each in sensitive(text))


@pytest.mark.parametrize(
    "text", ["parse 20 lane markings and drive home", "drive 4 of 10 is full", "a square 5 by 5"]
)
def test_a_number_beside_a_word_that_streets_have_is_no_address(text: str) -> None:
    assert sensitive(text) == []


@pytest.mark.parametrize("name", ["api_key", "client_secret", "access token", "password", "auth"])
def test_a_uuid_behind_the_name_of_a_credential_is_a_secret(name: str) -> None:
    assert any("SECRET" in each for each in sensitive(f'"{name}": "{OTHER}"'))


@pytest.mark.parametrize("name", ["session_id", "turn_id", "installation_id", "prompt_cache_key"])
def test_a_uuid_behind_the_name_of_a_thing_is_none(name: str) -> None:
    assert sensitive(f'{{"{name}": "{OTHER}", "since": 12}}') == []


def test_a_number_that_a_check_digit_proves_is_found_in_any_form() -> None:
    number = aadhaar(7)
    assert sensitive(f"Aadhaar {number} of subnet-{RESOURCE}")
    card = "4111111111111111"
    assert sensitive(f"arn:aws:pay:us-east-2:111122223333:card/{card}")


@pytest.mark.parametrize(
    "text",
    [
        "We moved to AWS in spring. The customer gave account_id: 408172210994, see below.",
        'aws s3api list-buckets\n{"account_id": "408172210994", "holder": "Ingrid Halvorsen"}',
    ],
)
def test_an_account_is_no_clouds_because_its_text_mentions_one(text: str) -> None:
    assert any("BANK_ACCOUNT" in each for each in sensitive(text))


@pytest.mark.parametrize(
    "text",
    [
        "aws glacier describe-vault \\\n    --account-id 408172210994 \\\n    --vault-name old",
        '{"Region": "eu-west-1", "OwnerAccountId": "408172210994"}',
        '{"AccountId": "408172210994", "Bucket": "arn:aws:s3:::old-logs"}',
    ],
)
def test_an_account_beside_what_a_clouds_tools_write_is_that_clouds(text: str) -> None:
    assert sensitive(text) == []


def test_of_a_long_text_full_of_forms_each_finding_is_looked_up_once() -> None:
    text = " ".join(f"id={uuid.UUID(int=RANDOM.getrandbits(128), version=4)}" for _ in range(4_000))
    found = [each for each in SCANNER.scan(text).findings if each.label == "SECRET"]
    assert found == []


def test_findings_that_are_no_guess_are_left_as_they_are() -> None:
    found = list(SCANNER.scan("Write to Ingrid Halvorsen at ingrid@northwind.example.").findings)
    assert without_own_forms("x", found) is found


def test_dates_of_birth_are_found_in_every_row_below_their_heading() -> None:
    days = ("1959-06-17", "1994-06-03", "1974-02-16", "1978-01-19")
    names = ("Rohan Deshpande", "Ingrid Halvorsen", "Chiara Marchetti", "Karthik Iyer")
    rows = ", ".join(f"('{name}', '{day}', 'x')" for name, day in zip(names, days, strict=True))
    text = f"(name, dob, ssn) VALUES {rows}"
    found = [text[f.start : f.end] for f in SCANNER.scan(text).findings if f.label == "DOB"]
    assert found == list(days)


@pytest.mark.parametrize(
    "text",
    [
        "Today's date is 2026-11-24.",
        "The current date is 2026-11-24",
        "Today's date: Tue Nov 24 2026",
        "- Review the pending changes on the current branch\n\nToday's date is 2026-11-24.\n",
    ],
)
def test_the_day_that_a_program_tells_a_model_is_nobodys_birthday(text: str) -> None:
    assert not sensitive(text)


@pytest.mark.parametrize(
    "text",
    [
        "Anna Schmidt, 1984-11-24, Berlin. Today's date is 2026-11-24.",
        "Today's date is 2026-11-24. Anna Schmidt, born 1984-11-24, is here.",
        "The current date of birth in the file is 1984-11-24.",
    ],
)
def test_a_birthday_beside_that_day_is_still_found(text: str) -> None:
    (found,) = (each for each in sensitive(text) if each.startswith("DOB"))
    assert "2026" not in found


def test_in_other_scripts_the_tagger_is_believed() -> None:
    text = "\u0915\u0943\u092a\u092f\u093e 5512 \u092a\u0930 \u0915\u0949\u0932"
    assert speaks_for(text, "USERNAME", 7, 11)
    assert not speaks_for("effective from 5512 on", "USERNAME", 15, 19)


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("\u041c\u043e\u0439 \u043f\u0430\u0440\u043e\u043b\u044c: Winter#2031", True),
        ('phone: "E.164 \u043d\u043e\u043c\u0435\u0440", json: "JSON"', False),
    ],
)
def test_a_password_is_called_one_in_other_scripts_too(text: str, is_one: bool) -> None:
    start = text.index("Winter" if is_one else "E.164")
    end = start + len("Winter" if is_one else "E.164")
    assert speaks_for(text, "PASSWORD", start, end) is is_one


def test_a_licence_without_a_number_is_a_programs() -> None:
    for text in ("Driver license: MIT", "\u03bd\u03b1 license"):
        assert not speaks_for(text, "DRIVER_LICENSE", 0, len(text))


def test_technical_texts_that_name_people_are_read_as_well_as_was_measured() -> None:
    counts = technical.counted(SCANNER, technical.read(), show=False)
    assert counts.found.total() >= 145, counts
    assert counts.needless.total() <= 22, counts


def turn_of_an_agent() -> dict[str, Any]:
    """One turn as coding agents send it to the Responses API: ids of their own in every place."""

    def one() -> str:
        return str(uuid.UUID(int=RANDOM.getrandbits(128), version=4))

    thread = one()
    metadata = f'{{"installation_id":"{one()}","session_id":"{thread}","thread_id":"{thread}"}}'
    said = [{"type": "input_text", "text": INSTRUCTIONS}]
    return {
        "model": "auto",
        "input": [
            {"type": "message", "id": f"msg_{one()}", "role": "developer", "content": said},
            {"type": "message", "id": f"msg_{one()}", "role": "user", "content": "Mend the test."},
            {"type": "function_call", "id": f"fc_{one()}", "call_id": "call_Ab12Cd34Ef56Gh78",
             "name": "exec_command", "arguments": '{"cmd": "ls"}'},
            {"type": "function_call_output", "id": f"fco_{one()}",
             "call_id": "call_Ab12Cd34Ef56Gh78", "output": "tests\\nREADME.md"},
        ],
        "prompt_cache_key": thread,
        "client_metadata": {"x-turn-metadata": metadata, "session_id": thread},
        "store": False,
        "stream": True,
    }  # fmt: skip


def turn_of_a_messages_agent() -> dict[str, Any]:
    """One turn as coding agents send it to the Messages API: its session in `user_id`, tools."""
    device, session = f"{RANDOM.getrandbits(256):064x}", uuid.UUID(int=RANDOM.getrandbits(128))
    schema = {"type": "object", "properties": {"command": {"type": "string"}}}
    return {
        "model": "auto",
        "max_tokens": 32000,
        "metadata": {
            "user_id": f'{{"device_id":"{device}","account_uuid":"","session_id":"{session}"}}'
        },
        "system": [
            {"type": "text", "text": MANUAL, "cache_control": {"type": "ephemeral"}},
            {"type": "text", "text": INSTRUCTIONS},
        ],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Mend the test."}]},
            {"role": "system", "content": "Today is a Tuesday \u2014 the tree is clean."},
        ],
        "tools": [{"name": "Bash", "description": MANUAL, "input_schema": schema}],
        "thinking": {"type": "adaptive"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "stream": True,
    }


def test_a_turn_of_an_agent_that_speaks_messages_may_leave() -> None:
    result = inspect(turn_of_a_messages_agent(), frozenset(), SCANNER)
    assert result.complete
    assert result.data_class < DataClass.S2, result.counts


@pytest.mark.parametrize("mark", ["\u2014", "\u201c", "\u2192", "\u2026", "\N{ROBOT FACE}"])
def test_a_dash_or_a_picture_beside_a_guess_is_no_other_script(mark: str) -> None:
    text = f"Reference for the code {mark} model ids, tool use, MCP, agents"
    start = text.index("MCP")
    assert not speaks_for(text, "PASSWORD", start, start + 3)


@pytest.mark.parametrize(
    "address", ["noreply@acme.dev", "No-Reply@acme.dev", "git@code.acme.dev", "donotreply@acme.dev"]
)
def test_an_address_that_no_person_reads_is_nobodys(address: str) -> None:
    assert not sensitive(f"Written by {address} at night.")
    assert sensitive(f"Written by anna.{address} at night.")


def test_a_turn_of_a_coding_agent_may_leave() -> None:
    result = inspect(turn_of_an_agent(), frozenset(), SCANNER)
    assert result.complete
    assert result.data_class < DataClass.S2, result.counts


def test_a_secret_in_such_a_turn_keeps_it_home() -> None:
    turn = turn_of_an_agent()
    turn["client_metadata"]["api_key"] = f"{uuid.UUID(int=RANDOM.getrandbits(128), version=4)}"
    assert inspect(turn, frozenset(), SCANNER).data_class is DataClass.S4
