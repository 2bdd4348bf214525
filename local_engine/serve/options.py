"""An engine's options from the command line, and the part of them that the worker gets."""

from dataclasses import dataclass
from pathlib import Path

import msgspec


# Sequences and tokens of one step, where nobody says: a GPU's weights are read once for all.
_ON_CPU, _ON_GPU = (64, 512), (256, 8192)
_RESERVED_MAX = 32
"""Connections that no request for a model takes, of a listener with many."""


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How the worker loads and schedules; 0 means: decide by the device and its memory."""

    model: str
    device: str = "auto"
    dtype: str = "auto"
    """`auto` is what `config.json` says."""
    threads: int = 1
    max_running: int = 0
    max_waiting: int = 256
    token_budget: int = 0
    prefill_chunk: int = 0
    """Prompt tokens per step beside decoders; 0: as many as the measured step times allow."""
    overlap: str = "auto"
    """Plan a step while the one before is computed: `on`, `off`, `auto` (on where a GPU is)."""
    has_graphs: bool = True
    """Decode steps are recorded as CUDA graphs where a GPU is."""
    is_deterministic: bool = False
    """A request's tokens have the same bits whoever else is served: fixed tiles, fixed chunks."""
    tenant_share: float = 1.0
    is_caching: bool = True
    shares_nameless: bool = False
    """Requests without a tenant header may meet each other's cached prefixes."""
    kv_memory_bytes: int = 0
    host_kv_bytes: int = 0
    kv_dtype: str = "auto"
    """`auto` is the weights' type; `fp8` halves 16-bit keys and values again."""
    quantise: str = ""
    """int8, fp8 or int4: weights in fewer bits."""
    num_drafts: int = 0
    """Tokens guessed per step from the text itself, or by `draft_model`; 0: no speculation."""
    draft_model: str = ""
    tensor_parallel: int = 1
    """Processes that share the model, each with its part of all heads; one GPU each."""
    model_public_key: str = ""
    """Ed25519, 32 bytes in hexadecimal; with it only signed models load."""

    def on(self, device_type: str) -> "WorkerOptions":
        """The same with what suits the device where nothing was said."""
        running, budget = _ON_GPU if device_type == "cuda" else _ON_CPU
        return msgspec.structs.replace(
            self,
            max_running=self.max_running or running,
            token_budget=self.token_budget or budget,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateFiles:
    """The certificate with its chain, its key, and who signs those of callers."""

    certificate: Path
    key: Path
    client_ca: Path | None = None
    """With it, callers without a certificate of that authority's are turned away."""

    @property
    def all(self) -> tuple[Path, ...]:
        return tuple(each for each in (self.certificate, self.key, self.client_ca) if each)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionBounds:
    """What callers may take of the listener, known or not."""

    connections_max: int = 1024
    """At once; at least 2."""
    header_receive_s: float = 10.0
    """For a request's head to arrive; with TLS as much before it to shake hands."""
    body_receive_s: float = 30.0
    """For a request's body, from the end of its head."""
    keep_alive_s: float = 75.0
    """Between two requests of a connection."""
    unread_s: float = 60.0
    """For what lies ready of an answer to be taken."""

    @property
    def requests_max(self) -> int:
        """Requests that may wait for a model at once.

        The connections above are for those who ask how the engine is, or tell it to drain.
        """
        return self.connections_max - min(_RESERVED_MAX, max(1, self.connections_max // 4))


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """What the HTTP side needs; the rest is the worker's."""

    worker: WorkerOptions
    host: str = "127.0.0.1"
    port: int = 8090
    served_name: str | None = None
    max_body_bytes: int = 4 << 20
    max_held_body_bytes: int = 256 << 20
    """Of bodies longer than 64 KiB, all together, each until it is answered."""
    api_key: str | None = None
    certificate: CertificateFiles | None = None
    """Without it the listener speaks plain HTTP."""
    bounds: ConnectionBounds = ConnectionBounds()

    @property
    def directory(self) -> Path:
        return Path(self.worker.model)
