"""Reads the Kubernetes manifests as kustomize puts them together, and the pods in them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml


FOLDER = Path(__file__).parents[1] / "docs" / "operations" / "kubernetes"
APPLIED = ("migration", "gateway", "engine")
"""The folders that an operator applies; the others are parts of them."""


class Pod(NamedTuple):
    """A template of pods, and the object that makes them."""

    maker: dict[str, Any]

    @property
    def kind(self) -> str:
        return str(self.maker["kind"])

    @property
    def name(self) -> str:
        return str(self.maker["metadata"]["name"])

    @property
    def labels(self) -> dict[str, str]:
        return dict(self.maker["spec"]["template"]["metadata"]["labels"])

    @property
    def spec(self) -> dict[str, Any]:
        return dict(self.maker["spec"]["template"]["spec"])

    @property
    def container(self) -> dict[str, Any]:
        """The main container, not an init container."""
        (container,) = self.spec["containers"]
        return dict(container)

    @property
    def containers(self) -> list[dict[str, Any]]:
        return [*self.spec.get("initContainers", ()), self.container]

    @property
    def ports(self) -> dict[str, int]:
        return {each["name"]: each["containerPort"] for each in self.container.get("ports", ())}

    @property
    def volumes(self) -> dict[str, dict[str, Any]]:
        """By name, including those that a set claims for each of its pods."""
        claimed = self.maker["spec"].get("volumeClaimTemplates", ())
        return {
            **{each["name"]: each for each in self.spec.get("volumes", ())},
            **{each["metadata"]["name"]: {"claimed": each["spec"]} for each in claimed},
        }

    def secrets(self) -> Iterator[tuple[str, list[str]]]:
        """Each Secret with the keys of it that are used; no names mean all."""
        for volume in self.volumes.values():
            for source in volume.get("projected", {}).get("sources", ()):
                asked = source["secret"]
                yield asked["name"], [each["key"] for each in asked.get("items", ())]
        for container in self.containers:
            for variable in container.get("env", ()):
                if found := variable.get("valueFrom", {}).get("secretKeyRef"):
                    yield found["name"], [found["key"]]


class Applied(NamedTuple):
    """What `kubectl apply -k` of one folder sends."""

    documents: list[dict[str, Any]]
    configuration: dict[str, Path]
    """By the name of each generated ConfigMap, its file."""
    images: dict[str, dict[str, str]]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [each for each in self.documents if each["kind"] == kind]

    @property
    def pods(self) -> list[Pod]:
        kinds = ("StatefulSet", "Deployment", "Job")
        return [Pod(each) for kind in kinds for each in self.of(kind)]

    def selected(self, labels: dict[str, str]) -> list[Pod]:
        return [each for each in self.pods if labels.items() <= each.labels.items()]


def applied(folder: Path) -> Applied:
    """A folder with everything it builds upon; a later ConfigMap replaces one of the same name."""
    custom = yaml.safe_load(folder.joinpath("kustomization.yaml").read_text(encoding="utf-8"))
    documents: list[dict[str, Any]] = []
    configuration: dict[str, Path] = {}
    images: dict[str, dict[str, str]] = {each["name"]: each for each in custom.get("images", ())}
    for name in (*custom.get("resources", ()), *custom.get("components", ())):
        place = (folder / name).resolve()
        if place.is_dir():
            part = applied(place)
            documents += part.documents
            configuration |= part.configuration
            images |= part.images
        else:
            documents += yaml.safe_load_all(place.read_text(encoding="utf-8"))
    for made in custom.get("configMapGenerator", ()):
        replaces = made.get("behavior") == "replace"
        assert replaces == (made["name"] in configuration), made["name"]
        (file,) = made["files"]
        configuration[made["name"]] = folder / file
    return Applied(documents, configuration, images)
