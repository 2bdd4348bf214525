"""Walks a decoded JSON request and collects every string, key and long number in it.

No place is assumed to be harmless: tool definitions, tool arguments, metadata and unknown fields
are walked like messages. Strings that hold JSON with escapes are decoded and walked too. Content
that cannot be read as text (images, audio, files) is named, not guessed.
"""

from collections.abc import Iterable, Sequence
from typing import Final, TypeGuard

import msgspec
from msgspec import structs

from classifiers.identifiers import FIELDS, is_name
from classifiers.opaque import binary_kind, is_binary, kind_of_media
from classifiers.parts import Part, asked, is_asking, parts_of
from classifiers.pieces import bytes_said, pieces_of
from classifiers.pii.views.decoded import CUT
from classifiers.sealed import SEALING, SIGNED, has_seal, is_sealed, wrapped
from classifiers.segments import ASIDE, CODES, Extraction, Segment
from classifiers.tables import table_in, table_said, tables_in_text
from classifiers.units import SEAM


MAX_DEPTH: Final = 48
MAX_JSON_IN_STRING_DEPTH: Final = 3
MAX_SEGMENTS: Final = 100_000
TOO_MANY: Final = "too-many-strings"
_LONG_NUMBER: Final = 99_999
_MAX_INTEGER_BITS: Final = 256
_OPENERS: Final = ("{", "[", '"')

# Words of the wire formats themselves. A string equal to one of them carries nothing.
WIRE_WORDS = frozenset(
    """
    role content type text model messages system user assistant tool developer tools function
    parameters properties required description name object string integer number boolean array
    arguments input output temperature max_tokens max_completion_tokens stream stream_options
    include_usage top_p top_k stop n seed metadata tool_calls tool_call_id tool_use tool_result
    tool_use_id input_schema items enum additionalProperties response_format json_schema json_object
    schema strict image_url image_base64 source media_type data url detail auto low high none any
    input_text output_text input_image cache_control ephemeral thinking budget_tokens enabled
    instructions tool_choice parallel_tool_calls logprobs presence_penalty frequency_penalty
    message status completed in_progress incomplete id call_id annotations
    function_call function_call_output custom_tool_call custom_tool_call_output
    """.split()  # noqa: SIM905 - a list literal of ninety words would fill two screens.
)
_ORDINARY: Final = 2
"""The number of keys of a message with a role and a content and nothing else."""
_LONGEST_WIRE_WORD: Final = max(map(len, WIRE_WORDS))
_WORDS_OF = frozenset(
    {
        *("content", "text", "thinking", "refusal", "output", "input", "arguments", "data"),
        *("reasoning", "reasoning_content", "title", "context", "cited_text", "query", "error"),
        *("code", "logs", "stdout", "stderr", "diff", "transcript"),
    }
)
"""Names of the fields in which messages and parts have their text."""
_GIVEN: Final = frozenset({"input", "arguments"})
"""A tool's arguments: they have names of their own, and all of it is text."""
_SYSTEM_KEYS = frozenset({"system", "instructions"})
# Content parts that hold or name content which is not text, by the value of "type".
_OPAQUE_PARTS = {
    "image": "image",
    "image_url": "image",
    "input_image": "image",
    "computer_screenshot": "image",
    "image_generation_call": "image",
    "input_audio": "audio",
    "audio": "audio",
    "document": "document",
    "file": "document",
    "input_file": "document",
    "container_upload": "document",
    "video": "video",
    "video_url": "video",
}
# Content parts that the walk reads as text, and tools that an item of a history brings. A part
# of any other type says nothing that we know.
_READABLE_PARTS = frozenset(
    """
    text input_text output_text refusal thinking redacted_thinking tool_use tool_result
    server_tool_use web_search_tool_result search_result function_call function_call_output
    mcp_tool_use mcp_tool_result web_fetch_tool_result reasoning summary_text
    function custom namespace web_search url_citation compaction mcp_tool_listing fallback
    tool_search_tool_result advisor_tool_result bash_code_execution_tool_result
    code_execution_tool_result reasoning.text reasoning.summary reasoning.encrypted
    """.split()  # noqa: SIM905 - a list literal would fill a screen.
)
_TEXTS = frozenset({"text", "input_text", "output_text", "summary_text", "reasoning_text"})
"""Content parts whose texts a model reads one after the other."""
_NO_SEAMS: Final = {ord(SEAM): "\x1d", ord(CUT): "\x1d"}
_PART_DEPTH = 4
_BLOCKS_DEPTH: Final = 3
"""The depth of the list that is a message's content."""
_IMAGE_KEYS = frozenset({"source", "image_url", "file_id", "result"})
_BINARY_KEYS = frozenset({"data", "file_data", "image_base64", "b64_json"})
_LONGEST_ROLE = 16
_LONGEST_FLOAT = 1e20
_EXACT_MAX = 2.0**53
_FLOAT_DIGITS = 15


def extract(document: object) -> Extraction:
    """Walk a decoded JSON document; total: any value gives an extraction, no value an error."""
    return extract_parts(parts_of(document))


def extract_parts(parts: Iterable[Part]) -> Extraction:
    """Walk some parts of a document as if they were all of it."""
    walk = _Walk()
    for part in parts:
        walk.part(part)
    return Extraction(
        tuple(walk.segments),
        tuple(walk.newest_user),
        tuple(sorted(walk.opaque_kinds)),
        tuple(sorted(walk.reasons)),
        tuple(walk.starts),
        tuple(walk.chains),
        tuple(walk.blocks),
    )


class _Walk:
    """The state of one walk."""

    __slots__ = (
        "blocks",
        "chains",
        "is_message",
        "newest_user",
        "opaque_kinds",
        "reasons",
        "segments",
        "starts",
    )

    def __init__(self) -> None:
        self.blocks: list[tuple[int, int]] = []
        self.chains: list[tuple[int, ...]] = []
        self.segments: list[Segment] = []
        self.newest_user: range | tuple[int, ...] = ()
        self.opaque_kinds: set[str] = set()
        self.reasons: set[str] = set()
        self.starts: list[int] = []
        self.is_message = False

    def part(self, part: Part) -> None:
        self.starts.append(len(self.segments))
        self.is_message = part.kind == "message"
        if part.kind == "message":
            self.message(part.value)
        elif part.kind == "document":
            self.value(part.value, "", 0, 0)
        else:
            self.members(part.value, prompted=part.kind == "prompted")

    def members(self, members: dict[str, object], *, prompted: bool) -> None:
        for key, value in members.items():
            if key in _SYSTEM_KEYS:
                self.value(value, "system", 1, 0)
            elif (question := asked(key, value, prompted=prompted)) is not None:
                begin = len(self.segments)
                self.value(question, "user", 1, 0)
                self.newest_user = range(begin, len(self.segments))
            elif key not in FIELDS or not is_name(value):
                if key not in WIRE_WORDS:
                    self.key(key, "")
                self.value(value, "", 1, 0)

    def message(self, message: object) -> None:
        begin = len(self.segments)
        if isinstance(message, dict):
            role, content = message.get("role"), message.get("content")
            named = role if isinstance(role, str) and len(role) < _LONGEST_ROLE else ""
            if named in WIRE_WORDS and content.__class__ is str and len(message) == _ORDINARY:
                # Nothing but a role and a text, as in most messages.
                self.string(content, named, 3, 0)
            else:
                self.mapping(message, named, 2, 0)
        else:
            self.value(message, "user", 2, 0)
        if is_asking(message):
            self.newest_user = range(begin, len(self.segments))

    def value(self, value: object, role: str, depth: int, nested: int) -> None:
        if isinstance(value, str):
            self.string(value, role, depth, nested)
        elif value is None or isinstance(value, bool):
            return
        elif isinstance(value, int | float):
            self.number(value, role)
        elif depth >= MAX_DEPTH:
            self.reasons.add("too-deep")
        elif isinstance(value, dict):
            self.mapping(value, role, depth, nested)
        elif isinstance(value, list | tuple):
            self.items(value, role, depth, nested)
        else:
            self.reasons.add("unknown-type")

    def items(self, items: Sequence[object], role: str, depth: int, nested: int) -> None:
        """Walk a list, in which the texts of consecutive parts may be one text."""
        if pieces := pieces_of(items):
            first = len(self.segments)
            for piece in pieces:
                self.add(piece, role, "piece")
            self.end_chain(list(range(first, len(self.segments))))
            return
        if (said := bytes_said(items)) is not None:
            self.add(said, role, CODES)
            return
        if items and items[0].__class__ is list and (table := table_said(items)):
            self.add(table, role, "table")
        chain: list[int] = []
        for item in items:
            begin = len(self.segments)
            self.value(item, role, depth + 1, nested)
            if not _is_text_part(item):
                self.end_chain(chain)
                chain = []
                self.end_block(begin, depth, goes_on=False)
                continue
            self.end_block(begin, depth, goes_on=bool(chain))
            text = item["text"]
            chain += [
                at for at in range(begin, len(self.segments)) if self.segments[at].text is text
            ][:1]
        self.end_chain(chain)

    def end_chain(self, chain: list[int]) -> None:
        if len(chain) > 1:
            self.chains.append(tuple(chain))

    def end_block(self, begin: int, depth: int, *, goes_on: bool) -> None:
        """Note the text of one part of a message's content; consecutive texts are one."""
        if self.is_message and depth == _BLOCKS_DEPTH and begin < len(self.segments):
            first = self.blocks.pop()[0] if goes_on else begin
            self.blocks.append((first, len(self.segments)))

    def mapping(self, mapping: dict[object, object], role: str, depth: int, nested: int) -> None:
        kind = mapping.get("type")
        if kind.__class__ is str and kind in _OPAQUE_PARTS:
            self.note_opaque(_OPAQUE_PARTS[kind], mapping)
        elif depth == _PART_DEPTH and nested == 0 and role and _is_unknown_part(kind):
            self.opaque_kinds.add("unknown")
        if table := table_in(mapping):
            self.add(table, role, "table")
        may_be_sealed = (
            kind in SEALING and has_seal(mapping) if kind.__class__ is str else SIGNED in mapping
        )
        has_asides = self.is_message and not nested and ("role" in mapping or "type" in mapping)
        for key, given in mapping.items():
            begin = len(self.segments)
            if (key in FIELDS and not nested and is_name(given)) or (
                may_be_sealed and is_sealed(mapping, key, given, role)
            ):
                continue
            value = wrapped(mapping, key, given, role) if may_be_sealed else given
            if key not in WIRE_WORDS:
                self.key(key, role)
            if has_asides:
                self.set_aside(begin)
            if isinstance(value, str) and self.is_opaque(mapping, key, value):
                continue
            is_message, self.is_message = self.is_message, self.is_message and key not in _GIVEN
            self.value(value, role, depth + 1, nested)
            self.is_message = is_message
            if has_asides and key not in _WORDS_OF and not isinstance(given, dict | list):
                self.set_aside(begin)

    def is_opaque(self, mapping: dict[object, object], key: object, value: str) -> bool:
        """Whether a member is bytes; if so, notes them."""
        is_word = key in WIRE_WORDS
        if not (key == "data" if is_word else key in _BINARY_KEYS) or not is_binary(value):
            return False
        self.opaque_kinds.add(binary_kind(mapping, value) if is_word else "binary")
        return True

    def set_aside(self, begin: int) -> None:
        """Mark all segments since `begin` as standing beside the words of a message.

        A list of bytes keeps its kind: its text cannot be replaced.
        """
        for at in range(begin, len(self.segments)):
            if self.segments[at].kind != CODES:
                self.segments[at] = structs.replace(self.segments[at], kind=ASIDE)

    def note_opaque(self, kind: str, part: dict[object, object]) -> None:
        """Note a content part of an opaque type; an Anthropic document may bring plain text."""
        source = part.get("source")
        if kind == "document" and isinstance(source, dict):
            if _type_of(source) in {"text", "content"}:
                return
        elif kind == "image" and not _IMAGE_KEYS.intersection(part):
            return
        self.opaque_kinds.add(kind)

    def key(self, key: object, role: str) -> None:
        if isinstance(key, str):
            if key and key not in WIRE_WORDS:
                self.add(key, role, "key")
        else:
            self.value(key, role, MAX_DEPTH, 0)

    def string(self, text: str, role: str, depth: int, nested: int) -> None:
        # A long text would be hashed for nothing.
        if not text or (len(text) <= _LONGEST_WIRE_WORD and text in WIRE_WORDS):
            return
        if text[:5].lower() == "data:" and ";base64," in text[:200]:
            payload = text.partition(",")[2]
            if is_binary(payload):
                self.opaque_kinds.add(kind_of_media(text[5:200], payload))
                return
            self.opaque_kinds.add("binary")
        self.add(text, role, "json" if nested else "value")
        if text.lstrip(" \t\r\n")[:1] not in _OPENERS:
            return
        # Without an escape, everything that the decoded form says stands in the raw form too, but
        # for what headings say of the rows below them.
        if "\\" in text:
            self.json_in_string(text, role, depth, nested)
            return
        for table in tables_in_text(text):
            self.add(table, role, "table")

    def json_in_string(self, text: str, role: str, depth: int, nested: int) -> None:
        try:
            inner = msgspec.json.decode(text)
        except RecursionError:
            self.reasons.add("too-deep")
            return
        except (msgspec.MsgspecError, ValueError):
            return
        if nested >= MAX_JSON_IN_STRING_DEPTH:
            self.reasons.add("json-in-string-too-deep")
            return
        self.value(inner, role, depth + 1, nested + 1)

    def number(self, number: float, role: str) -> None:
        """Treat a number long enough to be an identifier as text as well.

        Of a number with a point or an exponent a float keeps only some digits; the rest of a longer
        one is not known any more.
        """
        if not -_LONG_NUMBER <= number <= _LONG_NUMBER:
            if isinstance(number, int):
                if number.bit_length() > _MAX_INTEGER_BITS:
                    self.reasons.add("huge-number")
                    return
            elif number.is_integer() and abs(number) < _LONGEST_FLOAT:
                if abs(number) > _EXACT_MAX and len(f"{number:.17g}".rstrip("0")) > _FLOAT_DIGITS:
                    self.reasons.add("huge-number")
                    return
                number = int(number)
            self.add(str(number), role, "number")

    def add(self, text: str, role: str, kind: str) -> None:
        if len(self.segments) >= MAX_SEGMENTS:
            self.reasons.add(TOO_MANY)
            return
        if SEAM in text or CUT in text:
            # Only we may put seams into what is read as one text.
            text = text.translate(_NO_SEAMS)
        self.segments.append(Segment(text, role, kind))


def _is_unknown_part(kind: object) -> bool:
    """Whether a mapping in a message's list names a type that is unknown here."""
    return isinstance(kind, str) and kind not in _READABLE_PARTS


def _is_text_part(item: object) -> TypeGuard[dict[str, str]]:
    if item.__class__ is not dict:
        return False
    kind, text = item.get("type"), item.get("text")
    return kind.__class__ is str and kind in _TEXTS and text.__class__ is str


def _type_of(part: dict[object, object]) -> str:
    kind = part.get("type")
    return kind if isinstance(kind, str) else ""
