"""The data of a connection test: four steps from a name to an answer, and their possible ends.

Workers take the steps, the database stores them, the control plane puts them into words.
"""

from typing import Final, Literal, get_args

from msgspec import Struct


StepName = Literal["name", "connection", "credential", "call"]
Verdict = Literal["good", "unsure", "bad", "skipped"]
Code = Literal[
    # Any step.
    "ok",
    "not_tried",
    "inside",
    "unknown_here",
    "timeout",
    "broken",
    "malformed",
    # A name's.
    "address",
    "not_found",
    "resolver_failed",
    "out_of_reach",
    "by_proxy",
    # A connection's.
    "plain",
    "refused",
    "unreachable",
    "certificate",
    "ends_soon",
    "not_tls",
    "tunnelled",
    "proxy_denied",
    "proxy_refused",
    "proxy_broken",
    # A credential's, and a call's.
    "none_needed",
    "missing",
    "denied",
    "quota",
    "unlisted",
    "failing",
    "no_target",
    "model_unknown",
    "rejected",
    "closed",
]
CODES: Final[tuple[Code, ...]] = get_args(Code)


class Step(Struct, frozen=True):
    """How one step ended."""

    name: StepName
    verdict: Verdict
    code: Code
    detail: str = ""
    """What was seen, without any secret: addresses, a status, a certificate's fault."""
    took_us: int = 0


class Checkup(Struct, frozen=True):
    """The steps that were taken so far, and what the last one cost."""

    steps: tuple[Step, ...] = ()
    fingerprint: str = ""
    """Of the credential that the worker had; empty where it had none."""
    input_tokens: int = 0
    output_tokens: int = 0
    cost_microusd: int = 0

    @property
    def verdict(self) -> Verdict:
        """The worst of the steps that say something."""
        found = {step.verdict for step in self.steps}
        return next((each for each in ("bad", "unsure", "good") if each in found), "skipped")


def skipped(code: Code, *names: StepName, detail: str = "") -> tuple[Step, ...]:
    """Steps that were not taken, each for the same reason."""
    return tuple(Step(name, "skipped", code, detail) for name in names)
