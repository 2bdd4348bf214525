"""Checks of the issuers whose tokens prove callers, beyond what the types of settings can say."""

import re
from typing import Final

from gateway.configuration.sections import IssuerSettings
from gateway.configuration.settings import Settings
from gateway.errors import ConfigurationInvalid


ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA")
"""`none` cannot be chosen, nor the symmetric ones, whose key would be published."""
LEEWAY_S_MAX: Final = 300.0
TOKEN_LIFETIME_S_MAX: Final = 7 * 86_400.0
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}", re.ASCII)
_WORD: Final = re.compile(r"[!-~]{1,512}", re.ASCII)


def check_issuers(settings: Settings) -> None:
    """Raises ConfigurationInvalid."""
    found: dict[str, str] = {}
    for name, issuer in settings.callers.issuers.items():
        section = f"callers.issuers.{name}"
        key, reason = _fault(name, issuer)
        if not reason and issuer.issuer in found:
            key, reason = "issuer", f"is that of `{found[issuer.issuer]}` too"
        if reason:
            where = f"{section}.{key}" if key else section
            raise ConfigurationInvalid(settings.source, where, reason)
        found[issuer.issuer] = name


def _fault(name: str, issuer: IssuerSettings) -> tuple[str, str]:
    """The wrong key and the reason; two empty texts if all is well."""
    words = "must be 1 to 512 visible ASCII characters without blanks"
    unknown = [each for each in issuer.algorithms if each not in ALGORITHMS]
    faults = {
        ("", "a name has 1 to 63 lower-case letters, digits, '.', '_' or '-'"): (
            _NAME.fullmatch(name) is None
        ),
        ("issuer", words): _WORD.fullmatch(issuer.issuer) is None,
        ("audience", words): _WORD.fullmatch(issuer.audience) is None,
        ("jwks_url", "name either this or jwks_file: where its keys are"): (
            bool(issuer.jwks_url) == bool(issuer.jwks_file)
        ),
        ("ca_file", "means nothing without jwks_url"): (
            bool(issuer.ca_file) and not issuer.jwks_url
        ),
        ("algorithms", "must name at least one"): not issuer.algorithms,
        ("algorithms", f"`{', '.join(unknown)}` is none of {', '.join(ALGORITHMS)}"): bool(unknown),
        ("leeway_s", f"must not be greater than {LEEWAY_S_MAX:g}"): issuer.leeway_s > LEEWAY_S_MAX,
        ("token_lifetime_s", f"must not be greater than {TOKEN_LIFETIME_S_MAX:g}"): (
            issuer.token_lifetime_s > TOKEN_LIFETIME_S_MAX
        ),
    }
    return next((said for said, is_wrong in faults.items() if is_wrong), ("", ""))
