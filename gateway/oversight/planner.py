"""Sizes an inference cluster: weights, keys and values, sessions, GPUs, racks, and the cost.

Pure arithmetic, step by step, from a model's `config.json` and a load. The gigabytes of a GPU are
GiB, because memory stacks are made so; a TB here is 1,000 of them. Each step states its sum.
"""

from collections.abc import Mapping
from fractions import Fraction
from math import ceil
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from gateway.errors import RequestInvalid


CONFIG_BYTES_MAX: Final = 256 * 1024
_LAYERS_MAX, _WIDTH_MAX, _TOKENS_MAX = 10_000, 1_000_000, 100_000_000
BYTES_PER_VALUE: Final[Mapping[str, Fraction]] = {
    "fp16": Fraction(2),
    "fp8": Fraction(1),
    "int4": Fraction(1, 2),
}
GB: Final = 10**9
GIB: Final = 2**30
TB_GIB: Final = 1000


class Model(Struct, frozen=True, forbid_unknown_fields=True):
    """The relevant figures of a model; `parameters` may be stated if a config leaves them open."""

    layers: int
    kv_heads: int
    head_dim: int
    parameters: int

    def kv_bytes_per_token(self, precision: str) -> Fraction:
        """A key and a value, in every layer, for every head that has its own."""
        width = BYTES_PER_VALUE[precision]
        return 2 * self.layers * self.kv_heads * self.head_dim * width


class Load(Struct, frozen=True, forbid_unknown_fields=True):
    """How many sessions and tokens there are to serve."""

    users: int = 75_000
    concurrency_percent: float = 8.0
    input_tokens: int = 4_096
    output_tokens: int = 512
    queries_per_user_day: float = 150.0
    hours_a_day: float = 8.0
    peak_factor: float = 2.0


class Hardware(Struct, frozen=True, forbid_unknown_fields=True):
    """What a rack holds, how fast it is, and what it costs."""

    gpus_per_rack: int = 72
    gpu_gb: int = 192
    overhead_percent: float = 20.0
    rack_tokens_s: int = 25_000
    """Tokens that a rack generates per second at FP16; half the bytes give twice as many."""
    rack_usd_per_hour: float = 0.0
    """0 means unknown: then no cost is given."""
    api_usd_per_million_tokens: float = 0.0


class Step(Struct, frozen=True):
    """One line of the arithmetic."""

    name: str
    sum: str
    result: str


class Plan(Struct, frozen=True):
    """The result, with every step that led to it."""

    kv_bytes_per_token: int
    session_bytes: int
    sessions: int
    kv_bytes: int
    weights_bytes: int
    memory_bytes: int
    racks_for_memory: int
    racks_recommended: int
    queries_per_s: float
    peak_queries_per_s: float
    peak_tokens_per_s: int
    racks_for_speed: int
    racks: int
    gpus: int
    usd_per_day: float
    api_usd_per_day: float
    steps: tuple[Step, ...] = ()


def plan(model: Model, load: Load, hardware: Hardware, precision: str = "fp16") -> Plan:
    """Size a cluster.

    Raises:
        RequestInvalid: a number is not one that can be planned with; `parameter` names it.
    """
    _check(load, hardware, precision)
    width = BYTES_PER_VALUE[precision]
    per_token = ceil(model.kv_bytes_per_token(precision))
    tokens = load.input_tokens + load.output_tokens
    session = per_token * tokens
    sessions = ceil(load.users * Fraction(str(load.concurrency_percent)) / 100)
    keys_values, weights = session * sessions, ceil(model.parameters * width)
    overhead = 1 + Fraction(str(hardware.overhead_percent)) / 100
    memory = ceil((keys_values + weights) * overhead)
    rack_bytes = hardware.gpus_per_rack * hardware.gpu_gb * GIB
    for_memory = ceil(Fraction(memory, rack_bytes))
    queries = load.users * load.queries_per_user_day / (load.hours_a_day * 3600)
    peak = queries * load.peak_factor
    peak_tokens = ceil(peak * load.output_tokens)
    rack_speed = int(hardware.rack_tokens_s * 2 / width)
    for_speed = ceil(peak_tokens / rack_speed)
    racks = max(for_memory + 1, for_speed)
    day = 24 * racks * hardware.rack_usd_per_hour
    api = load.users * load.queries_per_user_day * tokens
    api_day = api / 1e6 * hardware.api_usd_per_million_tokens
    found = Plan(
        kv_bytes_per_token=per_token,
        session_bytes=session,
        sessions=sessions,
        kv_bytes=keys_values,
        weights_bytes=weights,
        memory_bytes=memory,
        racks_for_memory=for_memory,
        racks_recommended=for_memory + 1,
        queries_per_s=queries,
        peak_queries_per_s=peak,
        peak_tokens_per_s=peak_tokens,
        racks_for_speed=for_speed,
        racks=racks,
        gpus=racks * hardware.gpus_per_rack,
        usd_per_day=day,
        api_usd_per_day=api_day,
    )
    return replace(found, steps=_steps(model, load, hardware, precision, found))


def _steps(
    model: Model, load: Load, hardware: Hardware, precision: str, found: Plan
) -> tuple[Step, ...]:
    width, tokens = BYTES_PER_VALUE[precision], load.input_tokens + load.output_tokens
    rack_speed = int(hardware.rack_tokens_s * 2 / width)
    head = f"2 x {model.layers} layers x {model.kv_heads} KV heads x {model.head_dim}"
    return (
        Step(
            "Keys and values of a token",
            f"{head} x {float(width):g} B",
            f"{found.kv_bytes_per_token:,} B",
        ),
        Step(
            "A session",
            f"{load.input_tokens:,} in + {load.output_tokens:,} out = {tokens:,} tokens",
            f"{found.session_bytes / GIB:.2f} GiB",
        ),
        Step(
            "Sessions at once",
            f"{load.users:,} users x {load.concurrency_percent:g}%",
            f"{found.sessions:,}",
        ),
        Step("Keys and values of all", f"{found.sessions:,} sessions", _size(found.kv_bytes)),
        Step(
            "Weights",
            f"{model.parameters:,} x {float(width):g} B",
            f"{found.weights_bytes / GB:,.1f} GB",
        ),
        Step("Memory", f"both, and {hardware.overhead_percent:g}% over", _size(found.memory_bytes)),
        Step(
            "Racks for memory",
            f"/ {hardware.gpus_per_rack} x {hardware.gpu_gb} GB, and one to spare",
            f"{found.racks_for_memory} at least, {found.racks_recommended} recommended",
        ),
        Step(
            "Queries",
            f"{load.users:,} x {load.queries_per_user_day:g} a day over {load.hours_a_day:g} h",
            f"{found.queries_per_s:,.0f}/s, {found.peak_queries_per_s:,.0f}/s at peak",
        ),
        Step("Tokens at peak", f"x {load.output_tokens:,}", f"{found.peak_tokens_per_s:,}/s"),
        Step("Racks for speed", f"/ {rack_speed:,} tokens/s a rack", f"{found.racks_for_speed}"),
        Step("Racks", "the larger of both", f"{found.racks} ({found.gpus:,} GPUs)"),
    )


def sessions_that_fit(
    model: Model, hardware: Hardware, racks: int, context_tokens: int, precision: str = "fp16"
) -> int:
    """How many sessions of a length fit into some racks beside the weights."""
    overhead = 1 + Fraction(str(hardware.overhead_percent)) / 100
    room = racks * hardware.gpus_per_rack * hardware.gpu_gb * GIB / overhead
    left = room - ceil(model.parameters * BYTES_PER_VALUE[precision])
    return max(0, int(left / (ceil(model.kv_bytes_per_token(precision)) * context_tokens)))


def read_model(raw: bytes | str, parameters: int = 0) -> Model:
    """A model's `config.json`; with `parameters` 0 they are estimated from its shape.

    Raises:
        RequestInvalid: it is too long, not a JSON object, or lacks or garbles a number.
    """
    if len(raw) > CONFIG_BYTES_MAX:
        raise RequestInvalid("A config.json of this length is none.", parameter="config")
    try:
        config: Any = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        raise RequestInvalid("This is no JSON.", parameter="config") from None
    if isinstance(config, dict) and isinstance(config.get("text_config"), dict):
        config = config["text_config"]
    if not isinstance(config, dict):
        raise RequestInvalid("A config.json is an object.", parameter="config")
    layers = _number(config, "num_hidden_layers", _LAYERS_MAX)
    hidden = _number(config, "hidden_size", _WIDTH_MAX)
    heads = _number(config, "num_attention_heads", _WIDTH_MAX)
    kv_heads = _number(config, "num_key_value_heads", _WIDTH_MAX, heads)
    head_dim = _number(config, "head_dim", _WIDTH_MAX, max(1, hidden // heads))
    if not parameters:
        parameters = _parameters(config, layers, hidden, (heads + kv_heads) * head_dim * 2)
    return Model(layers, kv_heads, head_dim, parameters)


def _parameters(config: Mapping[str, Any], layers: int, hidden: int, attention: int) -> int:
    """Attention, the feed-forward (of every expert) and the embeddings; norms are left out."""
    width = _number(config, "intermediate_size", _WIDTH_MAX, 4 * hidden)
    experts = max(
        _number(config, name, 10_000, 1)
        for name in ("num_local_experts", "num_experts", "n_routed_experts")
    )
    if experts > 1:
        width = _number(config, "moe_intermediate_size", _WIDTH_MAX, width)
    vocabulary = _number(config, "vocab_size", _TOKENS_MAX, 0)
    tables = 1 if config.get("tie_word_embeddings") is True else 2
    per_layer = hidden * attention + 3 * hidden * width * experts
    return layers * per_layer + tables * vocabulary * hidden


def _number(config: Mapping[str, Any], name: str, most: int, default: int | None = None) -> int:
    value = config.get(name)
    if value is None:
        value = default
    if value is None:
        raise RequestInvalid(f"config.json lacks {name}.", parameter="config")
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if not is_number or not (0 if default == 0 else 1) <= value <= most:
        raise RequestInvalid(f"{name} is no number that a model has.", parameter="config")
    return int(value)


def _check(load: Load, hardware: Hardware, precision: str) -> None:
    if precision not in BYTES_PER_VALUE:
        raise RequestInvalid("There is no such precision.", parameter="precision")
    bounds: dict[str, tuple[float, float, float]] = {
        "users": (load.users, 1, 10**9),
        "concurrency_percent": (load.concurrency_percent, 0.001, 100),
        "input_tokens": (load.input_tokens, 1, _TOKENS_MAX),
        "output_tokens": (load.output_tokens, 1, _TOKENS_MAX),
        "queries_per_user_day": (load.queries_per_user_day, 0, 10**6),
        "hours_a_day": (load.hours_a_day, 0.1, 24),
        "peak_factor": (load.peak_factor, 1, 1000),
        "gpus_per_rack": (hardware.gpus_per_rack, 1, 10_000),
        "gpu_gb": (hardware.gpu_gb, 1, 10_000),
        "overhead_percent": (hardware.overhead_percent, 0, 1000),
        "rack_tokens_s": (hardware.rack_tokens_s, 1, 10**9),
        "rack_usd_per_hour": (hardware.rack_usd_per_hour, 0, 10**6),
        "api_usd_per_million_tokens": (hardware.api_usd_per_million_tokens, 0, 10**6),
    }
    for name, (value, least, most) in bounds.items():
        # Also refuses values that are not numbers: no comparison with them holds.
        if not least <= value <= most:
            raise RequestInvalid(f"{name} is from {least:g} to {most:g}.", parameter=name)


def _size(count: int) -> str:
    gib = count / GIB
    return f"{gib / TB_GIB:.1f} TB ({gib:,.0f} GiB)" if gib >= TB_GIB else f"{gib:.1f} GiB"
