"""The hub between dialects: one conversation, independent of any dialect.

A dialect reads its requests into a `Conversation` and writes a `Conversation` as an upstream body,
so that N dialects need N readers and N writers. What crosses and what does not is a contract:

===============================  ===================  ==========================================
source                           openai → anthropic   anthropic → openai
===============================  ===================  ==========================================
system, developer, mid system    exact; hoisted (1)   exact
text, image url, image base64    exact                exact
image `detail`                   dropped              -; exact between openai's
image or file by upstream id     refused              refused
document base64 / text / url     exact / exact / -    exact / as text / in responses
results of one's own search      -                    as texts
audio, video, unknown parts      refused              refused
tool calls, results, errors      exact (2)            exact (2); images move to a user turn
tool calls without results       refused              refused
tools, strict, choice, parallel  exact (5) (6)        exact (5) (9)
`allowed_tools`                  no other is offered  -; exact between openai's own
tools that a vendor runs         refused (8)          refused (8)
bash, editor, memory, computer   -                    functions of what their calls say
custom tools                     a function of one text, and back; exact between openai's own
older functions of chats         tools of which one is called at a time, and back
namespaces of responses          functions of other names, and back
built-in tools the caller runs   functions of what their calls say, and back; `computer` refused
`function` messages              as tool results      -
thinking blocks                  `thinking_blocks`    unsigned to who reads it (10), else dropped
reasoning effort, thinking       effort, budget (3)   `reasoning_effort` (3), else dropped
what was thought, told           `display` (3)        a summary in responses, else dropped
temperature above 1              capped, reported     -
temperature, top_p               exact (4)            exact (4)
stop sequences                   exact; blanks drop   exact up to four, else refused
top_k                            -                    where known (4), else dropped
json_schema                      exact (6)            exact (9)
json_object                      instruction (7)      -
user, metadata.user_id           UUIDs and hashes exact, all else as a keyed digest, both ways
service tier                     auto only; the tier that served comes back, both ways
n above 1, audio out             refused              - (4)
logprobs                         refused              -; exact between openai's own (4)
seed, logit_bias, penalties      dropped              -
inference_geo, containers, MCP   -                    refused
cache_control, breakpoints       exact                breakpoints (3), else dropped
unknown fields                   dropped              dropped
assistant turn last (prefill)    `prefill` (3)        `prefill` (3), else refused
===============================  ===================  ==========================================

"dropped" is always reported by name; "refused" is `FeatureUnsupported`.
(1) In place where the target has the capability `mid_system`, else hoisted and reported.
(2) Arguments that are no JSON object travel under `_raw_arguments`, reported; an error result
    carries the prefix `ERROR_MARK` in a dialect without a flag, and loses it on the way back.
(3) Only where the target has the capability of that name.
(4) Where the catalogue's `parameters` say that the model takes it, in its own dialect too: else
    what shapes the sampling is dropped, and what would lack in the answer is refused.
(5) Names that the other side does not allow are renamed, and restored in the answer.
(6) Keywords that only one side enforces move into descriptions, reported (7). Where the target
    lacks the capability `json_schema` but has `tools`, an older model of Anthropic's is asked by a
    tool, reported (7); refused where it has neither.
(7) What no upstream enforces is compared with the answer here, and told where it differs.
(8) Left out and reported where the target is set to, unless the caller insists on them.
(9) OpenAI itself enforces only schemas whose objects need all of their properties and take no
    others; of any other `strict` is taken back, reported (7).
(10) As `reasoning_content`: engines of one's own, by its newer name `reasoning`, too, and who has
    the capability of that name.

Between OpenAI's own two dialects cross, too: the key, the options and the retention of a prompt
cache, verbosity, and tiers whose price is known. Elsewhere a cache's key is left out without a
word, for there a prefix is found again without one.
"""

from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import Struct


ERROR_MARK = "[tool_error]\n"
"""Marks a failed tool result in a dialect that has no field for it."""

ITEM_MARK = "gw_reasoning_item:"
"""Prefix of a reasoning item of OpenAI's inside another dialect's `redacted_thinking`."""

BLOCK_MARK = "gw_thinking_block:"
"""Prefix of another vendor's thinking block inside a reasoning item's `encrypted_content`."""

CALL_MARK = "gw_call_seal:"
"""Prefix of the seal that Google's models put on a call, inside another dialect's reasoning."""

FOREIGN_MARKS = (ITEM_MARK, CALL_MARK)
"""Prefixes of a `redacted_thinking` that is not Anthropic's."""

PART_SEAM = "\n"
"""Joins the parts of a thought, in a dialect whose thoughts have no parts."""

RAW_ARGUMENTS = "_raw_arguments"
"""The key for tool arguments that are not a JSON object, e.g. cut off at the output limit."""


class TextPart(Struct, frozen=True, tag="text"):
    text: str
    cached: str = ""
    """How long a prompt-cache breakpoint after this part lives (`5m`, `1h`); empty for none."""


class ImagePart(Struct, frozen=True, tag="image"):
    """An image by `url`, or inline as `media_type` and base64 `data`.

    `detail` says how closely OpenAI's models look at it, `low` or `high`; empty lets them choose.
    `detail_place` is the name under which it is reported where it is dropped.
    """

    url: str = ""
    media_type: str = ""
    data: str = ""
    detail: str = ""
    detail_place: str = ""


class DocumentPart(Struct, frozen=True, tag="document"):
    """A document, inline as `media_type` and base64 `data`, as plain `text`, or by `url`."""

    media_type: str = ""
    data: str = ""
    text: str = ""
    title: str = ""
    url: str = ""


class ToolCallPart(Struct, frozen=True, tag="tool_call"):
    """A call; if the tool `is_text`, its text is the only argument, `input`."""

    tool_id: str
    name: str
    arguments_json: str
    is_text: bool = False


class ToolResultPart(Struct, frozen=True, tag="tool_result"):
    tool_id: str
    parts: tuple[TextPart | ImagePart | DocumentPart, ...]
    is_error: bool = False


def told(
    parts: Iterable[TextPart | ImagePart | DocumentPart],
) -> tuple[TextPart | ImagePart | DocumentPart, ...]:
    """The parts of a result that say something: an empty text does not."""
    return tuple(part for part in parts if not isinstance(part, TextPart) or part.text)


class ThinkingPart(Struct, frozen=True, tag="thinking"):
    """A reasoning block; `signature` and `redacted` mean something only to their writer."""

    text: str
    signature: str = ""
    redacted: str = ""

    @property
    def is_of_messages(self) -> bool:
        """Whether Anthropic's models signed or sealed it; only then may they be sent it again."""
        return bool(self.signature or self.redacted) and not self.redacted.startswith(FOREIGN_MARKS)

    @property
    def is_open(self) -> bool:
        """Whether it is plain text, as compatible servers and engines send it."""
        return bool(self.text) and not self.signature and not self.redacted


class RefusalPart(Struct, frozen=True, tag="refusal"):
    text: str


Part = (
    TextPart | ImagePart | DocumentPart | ToolCallPart | ToolResultPart | ThinkingPart | RefusalPart
)


class Turn(Struct, frozen=True):
    role: Literal["system", "user", "assistant"]
    parts: tuple[Part, ...]


class TextForm(Struct, frozen=True):
    """The form of a tool's text: a grammar in the `syntax` `lark` or `regex`, or any text."""

    syntax: str = ""
    definition: str = ""


class Tool(Struct, frozen=True):
    """A tool; one that takes `text` instead of arguments has the schema of a one-text function."""

    name: str
    description: str
    schema: Mapping[str, object]
    strict: bool | None = None
    cached: str = ""
    text: TextForm | None = None


class ToolChoice(Struct, frozen=True):
    mode: Literal["auto", "any", "none", "named"]
    name: str = ""
    is_text: bool = False
    allowed: "tuple[ToolChoice, ...]" = ()
    """With `auto` and `any`: the tools that may be called, by name; empty for all of them."""


class Hosted(Struct, frozen=True):
    """What only a vendor itself can do: refused, or left out where an administrator allows that."""

    place: str
    name: str
    """The name under which it is reported."""
    reason: str
    rule: int


class Kin(Struct, frozen=True):
    """An option that both of OpenAI's dialects can express, and no other vendor's."""

    name: str
    """Its name in chat completions."""
    value: object
    told_as: str = ""
    """The name under which its loss is reported; empty where nothing is lost."""


class Odds(Struct, frozen=True):
    """A request for each token's probability, and for those of `beside` other tokens.

    `place` is the field that asks for it.
    """

    place: str
    beside: int = 0


class ResponseFormat(Struct, frozen=True):
    kind: Literal["json_schema", "json_object"]
    name: str = ""
    schema: Mapping[str, object] = {}
    strict: bool | None = None
    description: str = ""


class Sampling(Struct, frozen=True):
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None


class Reasoning(Struct, frozen=True):
    """How much to think; `budget_tokens` 0 means that no figure was given."""

    effort: str = ""
    budget_tokens: int = 0
    disabled: bool = False


class Conversation(Struct, frozen=True):
    """A request, independent of any dialect."""

    system: tuple[TextPart, ...]
    turns: tuple[Turn, ...]
    stream: bool
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    sampling: Sampling = Sampling()
    response_format: ResponseFormat | None = None
    reasoning: Reasoning | None = None
    user: str = ""
    is_user_safety: bool = False
    """Whether `user` came as OpenAI's `safety_identifier`, and not under the older name."""
    service_tier: str = ""
    """`auto`; empty when the caller named none, or none that means the same to every vendor."""
    unplaced: tuple[str, ...] = ()
    """Fields of the source dialect that have no place here."""
    is_begun: bool = False
    """Whether its last turn is the assistant's and begins the answer: a prefill.

    Otherwise an assistant's last turn is like any other, and the answer comes after it.
    """
    tells_thoughts: bool = False
    """Whether the caller wants to see the reasoning, where a model does not show it by itself."""
    kin: tuple[Kin, ...] = ()
    odds: Odds | None = None
    hosted: tuple[Hosted, ...] = ()
    """What it asks of a vendor besides an answer; none of it is in the other fields."""
