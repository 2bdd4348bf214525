"""Explains in plain words what a step of a connection test found, and what to do next. Pure."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from gateway.oversight.checkup import Code, Step, StepName


class Advice(Struct, frozen=True):
    """A sentence about what was found, and one about what to do; the second may be empty."""

    said: str
    then: str = ""


TITLES: Final[Mapping[StepName, str]] = {
    "name": "Name",
    "connection": "TCP and TLS",
    "credential": "Credential",
    "call": "One-token call",
}
_ANY: Final[Mapping[Code, Advice]] = {
    "not_tried": Advice("Not tried: a step before it failed."),
    "inside": Advice("Not needed: this provider answers inside the worker, without a network."),
    "unknown_here": Advice(
        "The worker's configuration has no such target.",
        "Start its workers with the configuration that this process reads.",
    ),
    "ok": Advice("It works."),
}
_NAME: Final[Mapping[Code, Advice]] = {
    "ok": Advice("The name has an address that may be called."),
    "address": Advice("An address: there is no name to look up."),
    "by_proxy": Advice(
        "The proxy has an address that may be called; it looks up the provider's name itself."
    ),
    "not_found": Advice(
        "There is no such name.",
        "Look at base_url (or proxy) for a typing error, and whether the workers' DNS knows it.",
    ),
    "resolver_failed": Advice(
        "The resolver gave no answer.", "Look at the DNS servers of the machine that runs workers."
    ),
    "timeout": Advice(
        "The resolver did not answer in time.",
        "Look at the DNS servers of the machine that runs workers.",
    ),
    "out_of_reach": Advice(
        "The name has only addresses that may not be called.",
        "What is in-house must have a private address, plain http a loopback one; link-local and "
        "metadata addresses are never called. Mend the name or the provider's settings.",
    ),
}
_CONNECTION: Final[Mapping[Code, Advice]] = {
    "ok": Advice("Connected, and the certificate is good for the name."),
    "plain": Advice("Connected, without TLS: its address says http."),
    "tunnelled": Advice(
        "The proxy let us through, and the provider's certificate behind it is good for the name."
    ),
    "proxy_denied": Advice(
        "The proxy wants to know who asks, and does not take what we said.",
        "Set proxy_credential to what the proxy knows us by, as user:password.",
    ),
    "proxy_refused": Advice(
        "The proxy gave no tunnel to this provider.",
        "Have the host and port of base_url allowed there for CONNECT.",
    ),
    "proxy_broken": Advice(
        "What answers as the proxy gave no answer to a CONNECT.",
        "Look at the port in proxy: it has to be an HTTP forward proxy, without TLS.",
    ),
    "refused": Advice(
        "The connection was refused: nothing listens there.",
        "Look whether the server runs, and at the port in base_url, or in proxy.",
    ),
    "timeout": Advice(
        "Nothing answered in time.",
        "A firewall or an outbound rule may drop it; connect_timeout_s says how long is waited.",
    ),
    "unreachable": Advice(
        "There is no way to this address.", "Look at routes and outbound rules of the machine."
    ),
    "broken": Advice(
        "The other side broke off while connecting.",
        "Something between may cut TLS, or it wants a client_certificate; look at its log.",
    ),
    "certificate": Advice(
        "The certificate is not accepted.",
        "It must be valid today, of this name, and of an authority that is trusted: the machine's, "
        "or those of ca_file, where a company's own belongs.",
    ),
    "ends_soon": Advice(
        "Connected, but a certificate in a file of its settings ends soon, or has ended.",
        "Replace the file that is named here before that day; no restart is needed.",
    ),
    "not_tls": Advice(
        "What answers there does not speak TLS.",
        "Look at the port; a server without TLS needs http in base_url and allow_plain_http.",
    ),
}
_ANSWERED: Final[Mapping[Code, Advice]] = {
    "missing": Advice(
        "There is no credential, and the provider wants one.",
        "Set it where the configuration says that it is kept.",
    ),
    "denied": Advice(
        "The provider refused the credential.",
        "Look whether it was revoked, or is of another project or region; then set another.",
    ),
    "quota": Advice(
        "The provider's quota or rate limit is used up.",
        "Look at the account's limits and payment at the provider.",
    ),
    "failing": Advice("The provider fails by itself.", "Look at its status page; try again later."),
    "timeout": Advice(
        "It was connected to, and did not answer in time.",
        "Look at its load; try again in a minute.",
    ),
    "broken": Advice("The connection broke before an answer.", "Try again; then look at its log."),
    "malformed": Advice(
        "What answered does not speak the protocol of this kind of provider.",
        "Look at base_url and kind: a proxy's page answers like this, too.",
    ),
    "rejected": Advice("It refused what was asked.", "Look at what it said, and at kind."),
}
_CREDENTIAL: Final[Mapping[Code, Advice]] = {
    **_ANSWERED,
    "ok": Advice("The credential was taken."),
    "none_needed": Advice("It asks for no credential."),
    "unlisted": Advice(
        "It lists no models, so the credential could not be tried without a call.",
        "The next step tries it.",
    ),
}
_CALL: Final[Mapping[Code, Advice]] = {
    **_ANSWERED,
    "ok": Advice("The model answered."),
    "no_target": Advice(
        "No target of this provider is configured, so there is no model to call.",
        "Add one under [targets] and start the workers anew.",
    ),
    "model_unknown": Advice(
        "The provider does not have this model, or not for this account.",
        "Look at the target's model for a typing error, and at the account's models there.",
    ),
    "closed": Advice(
        "Nothing was sent: the target's jurisdiction is not its provider's.",
        "Start the workers anew; if it stays, report it.",
    ),
}
ADVICE: Final[Mapping[StepName, Mapping[Code, Advice]]] = {
    "name": _NAME,
    "connection": _CONNECTION,
    "credential": _CREDENTIAL,
    "call": _CALL,
}
UNKNOWN: Final = Advice("It ended in a way that this version has no words for.")


def advice(step: Step) -> Advice:
    """The words for how a step ended."""
    return ADVICE[step.name].get(step.code) or _ANY.get(step.code) or UNKNOWN
