"""The configured policy: it governs until a level in the database has a live version."""

from importlib import resources

from gateway.configuration.settings import Settings
from gateway.configuration.texts import text_of
from gateway.errors import ConfigurationInvalid
from policies.checking.check import check
from policies.program import PolicyDocument
from policies.render import wrongs_of


def load_policy(settings: Settings) -> PolicyDocument:
    """The configured document, or the default one; it must pass its own test cases.

    Raises:
        ConfigurationInvalid: with everything that is wrong with it.
    """
    name = settings.policy.file or "policies/default.toml"
    try:
        if settings.policy.file:
            text = text_of(settings.path(settings.policy.file))
        else:
            text = resources.files("policies").joinpath("default.toml").read_text("utf-8")
    except OSError as error:
        reason = f"cannot be read: {error.filename}: {error.strerror}"
        raise ConfigurationInvalid(settings.source, "policy.file", reason) from error
    except UnicodeDecodeError as error:
        reason = f"cannot be read: {settings.path(name)}: is not UTF-8 text"
        raise ConfigurationInvalid(settings.source, "policy.file", reason) from error
    report = check(text, name)
    if report.document is None or not report.is_ok:
        raise ConfigurationInvalid(name, "", f"\n{name}: ".join(wrongs_of(report)))
    return report.document
