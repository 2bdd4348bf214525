"""The data of a connection test: four steps from a name to an answer, and their possible ends.

Workers take the steps, the database stores them, the control plane puts them into words.
"""

from typing import Final, Literal, get_args

from msgspec import Struct


StepName = Literal["name", "connection", "credential", "call"]
Verdict = Literal["good", "unsure", "bad", "skipped"]
Code = Literal[
    # For any step.
    "ok",
    "not_tried",
    "inside",
    "unknown_here",
    "timeout",
    "broken",
    "malformed",
    # For the name.
    "address",
    "not_found",
    "resolver_failed",
    "out_of_reach",
    "by_proxy",
    # For the connection.
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
    # For the credential, and the call.
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
    """The steps taken so far, and the cost of the last one."""

    steps: tuple[Step, ...] = ()
    fingerprint: str = ""
    """The fingerprint of the worker's credential; empty if it had none."""
    input_tokens: int = 0
    output_tokens: int = 0
    cost_microusd: int = 0

    @property
    def verdict(self) -> Verdict:
        """The worst verdict among the steps."""
        found = {step.verdict for step in self.steps}
        return next((each for each in ("bad", "unsure", "good") if each in found), "skipped")


def skipped(code: Code, *names: StepName, detail: str = "") -> tuple[Step, ...]:
    """Steps that were not taken, all for the same reason."""
    return tuple(Step(name, "skipped", code, detail) for name in names)
