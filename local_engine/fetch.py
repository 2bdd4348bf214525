"""Fetches a model from a hub into a directory that can be served, and writes its manifest.

The hub is huggingface_hub's: its endpoint, its token and its proxies come from its own settings.
Only what the engine reads is fetched: safetensors, configurations, tokenizer, template.
"""

import argparse
import shutil
import sys
from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError

from local_engine.model.errors import ModelRefused
from local_engine.model.manifest import verify_directory, write_manifest


# What an answer with a bad status is a kind of: the errors of whichever HTTP client the hub uses.
_HUB_FAILURES: tuple[type[BaseException], ...] = (OSError, *HfHubHTTPError.__bases__)
PATTERNS = (
    "*.safetensors",
    "*.safetensors.index.json",
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "special_tokens_map.json",
)


def pull(repository: str, directory: Path, revision: str = "main") -> str:
    """Fetch `repository` into a new `directory`; returns the model digest.

    Raises `ModelRefused` if the directory is there already or the hub has no such model. A fetch
    that fails leaves no directory behind that looks like a model.
    """
    if directory.exists():
        raise ModelRefused(f"{directory} exists already")
    directory.mkdir(parents=True)
    try:
        snapshot_download(
            repository,
            revision=revision,
            local_dir=directory,
            allow_patterns=list(PATTERNS),
        )
        shutil.rmtree(directory / ".cache", ignore_errors=True)
        if not any(directory.glob("*.safetensors")):
            raise ModelRefused(f"{repository} holds no safetensors")
        write_manifest(directory)
        return verify_directory(directory)
    except _HUB_FAILURES as error:
        shutil.rmtree(directory, ignore_errors=True)
        raise ModelRefused(f"{repository} could not be fetched: {type(error).__name__}") from error
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise


def main(arguments: list[str]) -> int:
    """Fetch and print the digest; status 2 if there is no such model."""
    parser = argparse.ArgumentParser(prog="gatewright engine pull", description=__doc__)
    parser.add_argument("repository", help="ORGANISATION/NAME")
    parser.add_argument("--out", type=Path, required=True, help="directory to make")
    parser.add_argument("--revision", default="main")
    options = parser.parse_args(arguments)
    try:
        digest = pull(options.repository, options.out, options.revision)
    except ModelRefused as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(f"{digest}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
