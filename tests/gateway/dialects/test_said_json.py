"""JSON that an answer says in a text: what would keep a decoder busy for long is not decoded."""

import msgspec
import pytest

from gateway.admission.answer_bounds import VALUES_MAX
from gateway.conversation import RAW_ARGUMENTS, ResponseFormat
from gateway.dialects.anthropic_messages.reply import as_object
from gateway.dialects.bodies.schema_check import TEXT_LENGTH_MAX, unmet
from gateway.dialects.counted import REPLY_BYTES_MAX, read_count
from gateway.dialects.openai_responses.built_in import SEARCH, call_fields
from gateway.errors import UpstreamMalformed


MUCH = msgspec.json.encode({str(at): 1 for at in range(VALUES_MAX + 1)}).decode()
LONG = msgspec.json.encode({"a": "b, " * 2 * VALUES_MAX}).decode()


def test_arguments_of_too_many_keys_are_told_as_a_text() -> None:
    assert msgspec.json.decode(as_object(MUCH)) == {RAW_ARGUMENTS: MUCH}
    assert as_object(LONG) == LONG


def test_a_search_for_too_many_keys_does_nothing() -> None:
    assert call_fields(SEARCH, MUCH)["status"] == "incomplete"
    assert call_fields(SEARCH, LONG)["status"] == "completed"


@pytest.mark.parametrize("text", [MUCH, '"%s"' % ("a" * TEXT_LENGTH_MAX)])
def test_what_is_too_much_to_compare_counts_as_met(text: str) -> None:
    asked = ResponseFormat("json_schema", schema={"type": "null"})
    assert unmet(asked, LONG) == "$"
    assert unmet(asked, text) == ""


def test_a_count_of_tokens_in_a_long_answer_is_not_looked_for() -> None:
    said = b'{"input_tokens":7,"more":"%b"}'
    assert read_count(said % b"").usage.input_tokens == 7
    with pytest.raises(UpstreamMalformed):
        read_count(said % (b"a" * REPLY_BYTES_MAX))
