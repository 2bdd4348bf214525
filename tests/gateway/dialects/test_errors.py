"""Errors: the envelope each SDK knows, and no more of an upstream's words than are safe."""

import json
from typing import Any

import pytest

from gateway import errors
from gateway.dialects.registry import DIALECTS
from gateway.errors import GatewrightError, UpstreamRefused
from tests.gateway.dialects.samples import ANTHROPIC, OPENAI


def refused(status: int, code: str = "") -> UpstreamRefused:
    return UpstreamRefused("text", upstream_status=status, upstream_code=code)


@pytest.mark.parametrize(
    ("error", "status", "kind", "code"),
    [
        (
            errors.RequestInvalid("m", parameter="n"),
            400,
            "invalid_request_error",
            "invalid_request",
        ),
        (errors.Unauthenticated("m"), 401, "invalid_request_error", "invalid_api_key"),
        (errors.PolicyDenied("m"), 403, "permission_error", "policy_denied"),
        (errors.ModelUnknown("m"), 404, "invalid_request_error", "model_not_found"),
        (errors.BodyTooLarge("m"), 413, "invalid_request_error", "request_too_large"),
        (errors.ContextTooLong("m"), 400, "invalid_request_error", "context_length_exceeded"),
        (errors.Exhausted("m"), 429, "rate_limit_error", "rate_limited"),
        (errors.BudgetExhausted("m"), 429, "insufficient_quota", "insufficient_quota"),
        (errors.AuditUnavailable("m"), 503, "server_error", "audit_unavailable"),
        (errors.NoTargetConfigured("m"), 503, "server_error", "no_target_configured"),
        (errors.UpstreamTimeout("m"), 504, "server_error", "upstream_timeout"),
        (errors.StreamBroken("m"), 502, "server_error", "stream_broken"),
        (refused(529), 503, "server_error", "upstream_refused"),
        (refused(401), 502, "server_error", "upstream_refused"),
        (
            refused(400, "context_length_exceeded"),
            400,
            "invalid_request_error",
            "context_length_exceeded",
        ),
        (refused(429, "tokens"), 429, "rate_limit_error", "upstream_refused"),
        (GatewrightError("m"), 500, "server_error", "internal_error"),
    ],
)
def test_rule_50_openai_envelopes(
    error: GatewrightError, status: int, kind: str, code: str
) -> None:
    sent, body = OPENAI.encode_error(error, "req_1")
    envelope = json.loads(body)
    assert set(envelope) == {"error"}
    assert (sent, envelope["error"]["type"], envelope["error"]["code"]) == (status, kind, code)
    said = envelope["error"]["message"]
    assert said == error.message or code == "context_length_exceeded"
    assert envelope["error"]["param"] == getattr(error, "parameter", None)


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (errors.RequestInvalid("m"), 400, "invalid_request_error"),
        (errors.Unauthenticated("m"), 401, "authentication_error"),
        (errors.BudgetExhausted("m"), 402, "billing_error"),
        (errors.ClosedByPolicy("m"), 403, "permission_error"),
        (errors.ModelUnknown("m"), 404, "not_found_error"),
        (errors.BodyTooLarge("m"), 413, "request_too_large"),
        (errors.Exhausted("m"), 429, "rate_limit_error"),
        (errors.NoTargetAvailable("m"), 529, "overloaded_error"),
        (errors.NoTargetConfigured("m"), 503, "api_error"),
        (errors.UpstreamTimeout("m"), 504, "timeout_error"),
        (errors.UpstreamUnreachable("m"), 502, "api_error"),
        (refused(402), 402, "billing_error"),
        (refused(403), 502, "api_error"),
        (refused(422), 422, "invalid_request_error"),
        (refused(500), 500, "api_error"),
        (refused(503), 529, "overloaded_error"),
        (GatewrightError("m"), 500, "api_error"),
    ],
)
def test_rule_50_anthropic_envelopes(error: GatewrightError, status: int, kind: str) -> None:
    sent, body = ANTHROPIC.encode_error(error, "req_1")
    envelope = json.loads(body)
    assert (sent, envelope["error"]["type"]) == (status, kind)
    assert (envelope["type"], envelope["request_id"]) == ("error", "req_1")


def decode(status: int, body: object) -> UpstreamRefused:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    error = OPENAI.decode_error(status, raw, 2.5)
    assert isinstance(error, UpstreamRefused)
    again = ANTHROPIC.decode_error(status, raw, 2.5)
    assert (error.message, error.http_status) == (again.message, again.http_status)
    waits_s = None if isinstance(error, errors.UpstreamUnpaid) else 2.5
    assert (error.upstream_status, error.retry_after_s) == (status, waits_s)
    return error


def test_the_words_of_either_vendor_reach_a_caller_who_can_mend_the_request() -> None:
    openai = {"error": {"message": "Bad 'stop'.", "type": "invalid_request_error", "code": "x_1"}}
    anthropic = {"type": "error", "error": {"type": "invalid_request_error", "message": "Bad."}}
    assert (decode(400, openai).message, decode(400, openai).upstream_code) == (
        "Bad 'stop'.",
        "x_1",
    )
    assert decode(413, anthropic).message == "Bad."
    assert decode(422, {"error": "plain words"}).message == "plain words"
    assert decode(400, {"message": "vLLM's words", "code": 400}).message == "vLLM's words"
    google: Any = [{"error": {"code": 400, "message": "Bad 'stop'.", "status": "INVALID_ARGUMENT"}}]
    assert decode(400, google).message == "Bad 'stop'."


UNKNOWN = {"type": "extra_forbidden", "msg": "Extra inputs are not permitted", "input": "secret"}
FLAW = UNKNOWN | {"loc": ["body", "stream_options", "include_usage"]}


@pytest.mark.parametrize(
    ("body", "message", "parameter"),
    [
        ({"detail": "No such engine."}, "No such engine.", ""),
        (
            {"detail": [FLAW, FLAW]},
            "stream_options.include_usage: Extra inputs are not permitted",
            "stream_options.include_usage",
        ),
        (
            {"object": "error", "message": {"detail": [FLAW]}, "type": "invalid_request_error"},
            "stream_options.include_usage: Extra inputs are not permitted",
            "stream_options.include_usage",
        ),
        (
            {"detail": [UNKNOWN | {"loc": ["body", "messages", 0, "content", "of a caller"]}]},
            "Extra inputs are not permitted",
            "",
        ),
        ({"detail": [{"loc": "body", "msg": 7}]}, "The upstream refused the request.", ""),
        ({"detail": []}, "The upstream refused the request.", ""),
        ({"message": {"detail": 7}}, "The upstream refused the request.", ""),
    ],
)
def test_the_words_of_servers_made_with_fastapi_reach_a_caller_who_can_mend_the_request(
    body: dict[str, Any], message: str, parameter: str
) -> None:
    error = decode(422, body)
    assert (error.message, error.upstream_parameter) == (message, parameter)
    assert "secret" not in error.message


def told_of(field: str, code: str = "extra_forbidden", status: int = 422) -> UpstreamRefused:
    return UpstreamRefused(
        "m", upstream_status=status, upstream_code=code, upstream_parameter=field
    )


USAGE = {"stream_options": {"include_usage": True}}
MORE = {"stream": True, "stream_options": {"include_usage": True, "extra": 1}}


@pytest.mark.parametrize(
    ("sent", "error", "mended"),
    [
        ({"stream_options": {}, "n": 1}, told_of("stream_options"), {"n": 1}),
        (USAGE | {"stream": True}, told_of("stream_options.include_usage", "x"), {"stream": True}),
        # These are one caller's own, and no reason to leave everybody without a usage.
        (USAGE, told_of("stream_options", "", 400), None),
        (USAGE, told_of("stream_options", "unsupported_parameter", 400), None),
        (MORE, told_of("stream_options.extra"), None),
        (MORE, told_of("stream_options", "invalid_value", 400), None),
        ({"user": {"id": 1}}, told_of("user.id"), None),
        ({"max_completion_tokens": 7}, told_of("max_completion_tokens"), {"max_tokens": 7}),
        (
            {"max_tokens": 7},
            told_of("max_tokens", "unsupported_parameter", 400),
            {"max_completion_tokens": 7},
        ),
        ({"max_tokens": 7}, told_of("max_tokens", "invalid_value", 400), None),
        ({"max_tokens": 7, "max_completion_tokens": 7}, told_of("max_tokens"), None),
        ({"stream_options": {}}, told_of("stream_options", status=429), None),
        ({"n": 1}, told_of("stream_options"), None),
        ({"n": 1}, told_of("n"), None),
        ({"user": "u", "n": 1}, told_of("user"), {"n": 1}),
        ({"user": "u"}, told_of("user", "invalid_value"), None),
        ({"prompt_cache_key": "k"}, told_of("prompt_cache_key"), {}),
        ({"n": 1}, GatewrightError("m"), None),
    ],
)
def test_rule_62_what_servers_of_the_dialect_do_not_know_is_left_out_or_said_otherwise(
    sent: dict[str, Any], error: GatewrightError, mended: dict[str, Any] | None
) -> None:
    made = OPENAI.mend_request(json.dumps(sent).encode(), error)
    assert (None if made is None else json.loads(made.body)) == mended
    assert made is None or made.dropped == ()


def test_rule_62_ids_of_calls_are_short_where_a_server_takes_no_others() -> None:
    """Mistral's API and engines that run its models, behind a history of another vendor's."""
    said = "Tool call id was toolu_1 but must be a-z, A-Z, 0-9, with a length of 9."
    error = decode(400, {"object": "error", "message": said, "param": None, "code": "3280"})
    assert decode(400, {"error": {"message": said, "code": 400}}).upstream_code == "3280"
    function = {"name": "f", "arguments": '{"id": "toolu_1"}'}
    calls = [
        {"id": id_, "type": "function", "function": function} for id_ in ("toolu_1", "aB3xYzq9k")
    ]
    messages = [
        {"role": "user", "content": "toolu_1"},
        {"role": "assistant", "content": None, "tool_calls": calls},
        *({"role": "tool", "tool_call_id": call["id"], "content": "ok"} for call in calls),
        {"role": "assistant", "content": "Hi", "tool_calls": None},
    ]
    made = OPENAI.mend_request(json.dumps({"messages": messages}).encode(), error)
    assert made is not None
    user, asked, *results, _ = json.loads(made.body)["messages"]
    ids = [call["id"] for call in asked["tool_calls"]]
    assert ids == [each["tool_call_id"] for each in results]
    assert len(ids[0]) == 9
    assert ids[0].isalnum()
    assert ids[1] == "aB3xYzq9k"
    assert [call["function"] for call in asked["tool_calls"]] == [function, function]
    assert (user["content"], made.dropped) == ("toolu_1", ())
    assert OPENAI.mend_request(made.body, error) is None


def _place(*steps: str | int) -> dict[str, Any]:
    """As FastAPI's servers tell a flaw."""
    return {
        "type": "extra_forbidden",
        "loc": ["body", *steps],
        "msg": "Extra inputs are not permitted",
    }


@pytest.mark.parametrize(
    "told",
    [
        {"detail": [_place("messages", 1, "assistant", "reasoning_content")]},
        {"message": {"detail": [_place("messages", 1, "assistant", "reasoning_content")]}},
        {
            "error": {
                "message": "'messages.1' : for 'role:assistant' the following must be satisfied"
                "[('messages.1' : property 'reasoning_content' is unsupported)]",
                "type": "invalid_request_error",
            }
        },
        {
            "error": {
                "message": "Unknown parameter: 'messages[1].reasoning_content'.",
                "param": "messages[1].reasoning_content",
                "code": "unknown_parameter",
            }
        },
    ],
)
def test_rule_62_what_another_model_thought_is_left_out_where_a_server_takes_no_thoughts(
    told: dict[str, Any],
) -> None:
    """Mistral's, Groq's and OpenAI's, behind a history of an engine's that clients send back."""
    said = {"role": "assistant", "content": "reasoning_content", "reasoning_content": "Hm."}
    sent = {"model": "m", "messages": [{"role": "user", "content": "x"}, said]}
    error = decode(422, told)
    made = OPENAI.mend_request(json.dumps(sent).encode(), error)
    assert made is not None
    assert json.loads(made.body)["messages"][1] == {
        "role": "assistant",
        "content": "reasoning_content",
    }
    assert OPENAI.mend_request(made.body, error) is None


def call_with(**more: Any) -> dict[str, Any]:
    return {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}} | more


SEAL = {"google": {"thought_signature": "c2VhbA=="}}


@pytest.mark.parametrize(
    "told",
    [
        {"detail": [_place("messages", 1, "assistant", "tool_calls", 0, "extra_content")]},
        {"error": {"message": "property 'extra_content' is unsupported"}},
        {
            "error": {
                "message": "Unknown parameter: 'messages[1].tool_calls[0].extra_content'.",
                "param": "messages[1].tool_calls[0].extra_content",
            }
        },
    ],
)
def test_rule_62_seals_of_calls_are_left_out_where_a_server_takes_none(
    told: dict[str, Any],
) -> None:
    """What Gemini's callers send back, to a model of somebody else's."""
    calls = [call_with(extra_content=SEAL), call_with(), call_with(extra_content=SEAL)]
    said = {"role": "assistant", "content": None, "tool_calls": calls}
    talk = [{"role": "user", "content": "extra_content"}, said]
    error = decode(422, told)
    made = OPENAI.mend_request(json.dumps({"messages": talk}).encode(), error)
    assert made is not None
    assert json.loads(made.body)["messages"] == [talk[0], said | {"tool_calls": [call_with()] * 3}]
    assert OPENAI.mend_request(made.body, error) is None


@pytest.mark.parametrize(
    "words",
    [
        "Function call is missing a thought_signature in functionCall parts. This is required",
        "Unable to submit request because function call `f` is missing a `thought_signature`.",
    ],
)
def test_rule_62_calls_of_another_model_are_sealed_by_googles_own_word_where_it_wants_that(
    words: str,
) -> None:
    """A conversation that moves to Gemini in the middle of its calls."""
    error = decode(400, [{"error": {"code": 400, "message": words, "status": "INVALID_ARGUMENT"}}])
    sealed = {"role": "assistant", "tool_calls": [call_with(extra_content=SEAL), call_with()]}
    foreign = {"role": "assistant", "tool_calls": [call_with(), call_with()]}
    plain = {"role": "assistant", "content": "tool_calls", "tool_calls": None}
    made = OPENAI.mend_request(json.dumps({"messages": [sealed, foreign, plain]}).encode(), error)
    assert made is not None
    first, second, last = json.loads(made.body)["messages"]
    word = {"google": {"thought_signature": "skip_thought_signature_validator"}}
    assert (first, last) == (sealed, plain)
    assert second["tool_calls"] == [call_with(extra_content=word), call_with()]
    assert OPENAI.mend_request(made.body, error) is None
    assert OPENAI.mend_request(b'{"messages": "tool_calls"}', error) is None


@pytest.mark.parametrize(
    "words",
    [
        "Missing `reasoning_content` field in the assistant message at message index 2.",
        "thinking is enabled but reasoning_content is missing in assistant tool call message",
    ],
)
def test_rule_62_who_wants_a_thought_that_is_not_there_is_not_sent_less(words: str) -> None:
    sent = {"messages": [{"role": "assistant", "content": "x", "reasoning_content": "Hm."}]}
    error = decode(400, {"error": {"message": words, "type": "invalid_request_error"}})
    assert OPENAI.mend_request(json.dumps(sent).encode(), error) is None


@pytest.mark.parametrize(
    "messages",
    [
        '[{"role": "assistant", "tool_calls": [ {"id": "abcdef123"} ]}]',
        '[{"role": "assistant", "tool_calls": [ {"id": 5} ]}]',
        '[{"role": "assistant", "tool_calls": {"id": "call_of_many_letters"}}]',
        '["\\"tool_calls"]',
        '"\\"tool_calls"',
    ],
)
def test_rule_62_where_no_id_is_to_be_shortened_nothing_is_sent_again(messages: str) -> None:
    error = told_of("", "3280", 400)
    for dialect in (OPENAI, DIALECTS["openai_completions"]):
        assert dialect.mend_request(b'{"messages": %b}' % messages.encode(), error) is None


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (402, {"message": "Insufficient Balance", "type": "unknown_error"}),
        (402, {"message": "odd"}),
        (429, {"message": "You exceeded.", "type": "x", "code": "insufficient_quota"}),
        (429, {"message": "You exceeded.", "type": "insufficient_quota", "code": None}),
        (429, {"message": "Not active.", "type": "x", "code": "billing_not_active"}),
        (429, {"message": "Recharge.", "type": "exceeded_current_quota_error"}),
        (400, {"message": "Limit.", "type": "x", "code": "billing_hard_limit_reached"}),
        (
            400,
            {
                "type": "invalid_request_error",
                "message": "Your credit balance is too low to access the Anthropic API.",
            },
        ),
        (429, {"message": "Your team has used all available credits or reached its limit."}),
    ],
)
def test_an_account_without_money_is_no_limit_of_rate_and_no_fault_of_the_callers(
    status: int, error: dict[str, str]
) -> None:
    decoded = decode(status, {"error": error})
    assert isinstance(decoded, errors.UpstreamUnpaid)
    assert (decoded.http_status, decoded.retryable, decoded.is_callers_fault) == (503, False, False)
    assert error["message"] not in decoded.message
    sent, body = OPENAI.encode_error(decoded, "req_1")
    told = json.loads(body)["error"]
    assert (sent, told["type"], told["code"]) == (503, "server_error", "upstream_unpaid")
    sent, body = ANTHROPIC.encode_error(decoded, "req_1")
    assert (sent, json.loads(body)["error"]["type"]) == (503, "api_error")


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (429, "You exceeded your current quota, please check your plan and billing details."),
        (429, "Rate limit reached for requests"),
        (500, "The credit balance is too low"),
    ],
)
def test_a_limit_that_passes_is_not_taken_for_an_empty_account(status: int, message: str) -> None:
    decoded = decode(status, {"error": {"message": message, "code": status}})
    assert not isinstance(decoded, errors.UpstreamUnpaid)
    assert decoded.retryable


@pytest.mark.parametrize("status", [401, 403, 402, 404, 429, 500, 502, 503, 529, 418, 599])
def test_rule_61_what_concerns_only_us_is_said_in_our_words(status: int) -> None:
    error = decode(status, {"error": {"message": "key sk-abc123 at https://inner.example"}})
    assert "sk-" not in error.message
    assert "inner" not in error.message
    assert error.message.endswith(".")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"<html><h1>nginx</h1></html>",
        b"\xff\xfe",
        b"[1]",
        b"[]",
        b'{"error":7}',
        b"null",
        b'{"error":{"message":"<html>proxy</html>"}}',
        b"[" * 100_000,
    ],
)
def test_junk_gives_a_generic_sentence(raw: bytes) -> None:
    for status in (400, 500):
        assert "<" not in decode(status, raw).message
        assert decode(status, raw).message


def test_addresses_hosts_and_keys_are_taken_out_and_the_rest_is_one_short_line() -> None:
    words = (
        "See https://inner.example/x or vllm-0.pool.svc:8000, 10.0.0.7:9000, localhost:1 with "
        "sk-abcdef123456 and Bearer tok\x00en\n" + "long " * 300
    )
    message = decode(400, {"error": {"message": words}}).message
    for secret in ("inner", "vllm-0", "10.0.0.7", "localhost", "sk-abc", "tok", "\n", "\x00"):
        assert secret not in message
    assert len(message) <= 500
    assert message.startswith("See [removed] or [removed]")


@pytest.mark.parametrize(
    "words",
    [
        "prompt is too long: 300000 tokens > 200000 maximum",
        "This model's maximum context length is 8192 tokens.",
        "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000",
        "The input token count (1300000) exceeds the maximum number of tokens allowed (1048576).",
    ],
)
def test_rule_58_a_context_overflow_gets_the_code_that_clients_compact_on(words: str) -> None:
    error = decode(400, {"error": {"type": "invalid_request_error", "message": words}})
    _, body = OPENAI.encode_error(error, "req_1")
    assert json.loads(body)["error"]["code"] == "context_length_exceeded"
