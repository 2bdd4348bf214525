"""Where regions are, and what the settings of providers and targets may say of them."""

import time
from pathlib import Path

import pytest

from gateway.assembly.wiring import make_egress, make_providers
from gateway.configuration.reading import load_settings
from gateway.errors import ConfigurationInvalid
from gateway.providers.clouds.regions import contradiction, regions_in
from gateway.secrets.credentials import credential_problem


TEMPLATE = Path(__file__).parents[4] / "gateway" / "cli" / "template.toml"
MORE = """
[providers.claude-eu]
kind = "{kind}"
region = "eu-central-1"
jurisdiction = "eu"
{more}
[targets.claude-eu]
provider = "claude-eu"
model = "{model}"
catalogue = "claude-opus-5-5"
"""


@pytest.mark.parametrize(
    ("where", "jurisdiction", "fits"),
    [
        ("eu-central-1", "eu", True),
        ("eu-central-1", "DE", True),
        ("eu-central-1", "fr", False),
        ("eu-central-1", "bank-zone-1", True),
        ("eu-central-2", "eu", False),
        ("eu-central-2", "ch", True),
        ("eu-central-2", "europe", True),
        ("eu-west-2", "uk", True),
        ("europe-west2", "eu", False),
        ("eusc-de-east-1", "de", True),
        ("us-east-1", "us", True),
        ("us-gov-west-1", "usa", True),
        ("us-central1", "eu", False),
        ("us", "us", True),
        ("eu", "eea", True),
        ("eu", "de", False),
        ("apac", "jp", False),
        ("global", "europe", False),
        ("global", "apac", False),
        ("eu-new-9", "eu", True),
        ("eu-new-9", "us", False),
        ("ap-new-9", "eu", False),
        ("moon-1", "eu", True),
        ("emea", "eu", False),
        ("emea", "bank-zone-1", True),
    ],
)
def test_a_region_contradicts_the_name_of_a_country_or_union_that_it_is_not_wholly_in(
    where: str, jurisdiction: str, *, fits: bool
) -> None:
    assert (contradiction(where, jurisdiction) == "") is fits


def test_a_hosts_name_tells_its_region() -> None:
    assert regions_in("vpce-1.bedrock-runtime.eu-west-1.vpce.amazonaws.com") == {"eu-west-1"}
    assert regions_in("europe-west4-aiplatform.googleapis.com") == {"europe-west4"}
    assert regions_in("aiplatform.googleapis.com") == frozenset()
    assert regions_in("models.bank.example") == frozenset()


def check(folder: Path, *, model: str, more: str, kind: str = "bedrock") -> str:
    """Why a start is refused; empty where it is not."""
    file = folder / "gatewright.toml"
    file.write_text(TEMPLATE.read_text() + MORE.format(kind=kind, model=model, more=more))
    settings = load_settings(file, {})
    try:
        make_providers(settings, make_egress(settings), time.monotonic)
    except ConfigurationInvalid as error:
        return error.message
    return credential_problem(settings, "claude-eu")


def test_a_start_is_refused_for_a_model_that_leaves_its_region_or_a_setting_of_another_cloud(
    tmp_path: Path,
) -> None:
    ambient, model = 'identity = "ambient"', "anthropic.claude-opus-5-5"
    assert check(tmp_path, model=model, more=ambient) == ""
    assert check(tmp_path, model=model, more="") == "no credential"
    elsewhere = check(tmp_path, model=f"us.{model}", more=ambient)
    assert "targets.claude-eu.model: begins with `us.`" in elsewhere
    permitted = check(tmp_path, model=f"us.{model}", more=f"{ambient}\ncross_region = true")
    assert "targets.claude-eu.model: `us` is not in `eu`" in permitted
    foreign = check(tmp_path, model=model, more=f'{ambient}\nproject = "my-project"')
    assert "providers.claude-eu.project: says nothing of a provider of kind bedrock" in foreign
    region = check(tmp_path, model=model, more="", kind="openai")
    assert "providers.claude-eu.region: says nothing of a provider of kind openai" in region
