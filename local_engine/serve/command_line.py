"""Options of `serve` and `verify`: reads them from the command line and checks them."""

import argparse
import ipaddress
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

from local_engine.model.errors import ModelRefused
from local_engine.model.manifest import public_key_of, verify_directory
from local_engine.serve.api.app import DEFAULT_MAX_BODY_BYTES, DEFAULT_MAX_HELD_BODY_BYTES
from local_engine.serve.options import (
    CertificateFiles,
    ConnectionBounds,
    ServeOptions,
    WorkerOptions,
)
from local_engine.serve.server import EXIT_REFUSED, serve


_LONGEST_S = 86_400
_DESCRIPTION = "check, pull, bench and train-demo are commands too, each with a --help of its own"


def main(arguments: list[str]) -> int:
    """Serve or verify; returns the exit status."""
    options = _parser().parse_args(arguments)
    if options.command == "verify":
        return _verify(options)
    if reason := _unsafe(options) or _never_fits(options):
        options.refuse(reason)
    return serve(_serve_options(options))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m local_engine", description=_DESCRIPTION)
    commands = parser.add_subparsers(dest="command", required=True)
    serving = commands.add_parser(
        "serve", prog="gatewright engine serve", help="serve a model over an OpenAI-compatible API"
    )
    serving.set_defaults(refuse=serving.error)
    serving.add_argument("--model", type=Path, required=True, help="model directory")
    serving.add_argument(
        "--host", default="127.0.0.1", help="address to listen at; 127.0.0.1: this machine alone"
    )
    serving.add_argument(
        "--port", type=_whole(0, 65535), default=8090, help="8090; 0 chooses a free port"
    )
    serving.add_argument("--served-name", help="model id in the API; default: the model's own name")
    _add_worker_options(serving)
    longest = f"of a request; {DEFAULT_MAX_BODY_BYTES >> 20} MiB"
    serving.add_argument(
        "--max-body-bytes", type=_whole(1), default=DEFAULT_MAX_BODY_BYTES, help=longest
    )
    _add_callers_options(serving)
    _add_bounds_options(serving)
    verifying = commands.add_parser("verify", help="check a model directory, print its digest")
    verifying.add_argument("--model", type=Path, required=True, help="model directory")
    for each in (serving, verifying):
        each.add_argument(
            "--model-public-key",
            type=_public_key,
            default="",
            help="Ed25519 in hex: only signed models load",
        )
    return parser


def _add_callers_options(serving: argparse.ArgumentParser) -> None:
    serving.add_argument("--api-key-env", help="variable that holds the bearer key clients need")
    serving.add_argument(
        "--without-key",
        action="store_true",
        help="answer everybody who reaches it, also beyond this machine",
    )
    serving.add_argument("--tls-certificate-file", type=Path, help="with its chain, in PEM")
    serving.add_argument("--tls-key-file", type=Path, help="in PEM, with mode 0600 or 0640")
    serving.add_argument(
        "--tls-client-ca-file", type=Path, help="only callers with a certificate of its own"
    )


def _add_bounds_options(serving: argparse.ArgumentParser) -> None:
    ours = ConnectionBounds()
    serving.add_argument(
        "--max-connections",
        type=_whole(2, 1 << 20),
        default=ours.connections_max,
        help="at once; no more than three of four files that the process may open",
    )
    serving.add_argument(
        "--max-held-body-bytes",
        type=_whole(1, 1 << 40),
        help="of bodies longer than 64 KiB, all together; 256 MiB",
    )
    times = {
        "--header-receive-s": (ours.header_receive_s, "for a request's head to arrive"),
        "--body-receive-s": (ours.body_receive_s, "for its body"),
        "--keep-alive-s": (ours.keep_alive_s, "between two requests of a connection"),
        "--unread-s": (ours.unread_s, "for what lies ready of an answer to be taken"),
    }
    for name, (default_s, text) in times.items():
        serving.add_argument(name, type=_seconds, default=default_s, help=text)


def _unsafe(options: argparse.Namespace) -> str:
    """Why a listener is refused; empty where it is not."""
    certificate, key = options.tls_certificate_file, options.tls_key_file
    if (certificate is None) != (key is None):
        return "--tls-certificate-file and --tls-key-file go together"
    if options.tls_client_ca_file is not None and certificate is None:
        return "--tls-client-ca-file needs --tls-certificate-file and --tls-key-file"
    is_checked = options.api_key_env is not None or options.tls_client_ca_file is not None
    if is_checked or options.without_key or _is_loopback(options.host):
        return ""
    return (
        f"--host {options.host} lets other machines ask and stop it: "
        "name --api-key-env or --tls-client-ca-file, or say --without-key"
    )


def _never_fits(options: argparse.Namespace) -> str:
    """Why no body could be as long as it may; empty where it could."""
    if options.max_held_body_bytes is None:
        options.max_held_body_bytes = max(DEFAULT_MAX_HELD_BODY_BYTES, options.max_body_bytes)
    if options.max_held_body_bytes >= options.max_body_bytes:
        return ""
    return "--max-held-body-bytes has to be as much as --max-body-bytes at least"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _add_worker_options(serving: argparse.ArgumentParser) -> None:
    serving.add_argument("--device", type=_device, default="auto", help="auto, cpu or cuda")
    serving.add_argument("--threads", type=_whole(1), default=1, help="CPU threads for tensor work")
    serving.add_argument("--dtype", default="auto", help="auto is what config.json says")
    auto = "0: by the device"
    serving.add_argument(
        "--max-running", type=_whole(), default=0, help=f"sequences in a step; {auto}"
    )
    serving.add_argument("--max-waiting", type=_whole(), default=256, help="length of the queue")
    serving.add_argument(
        "--token-budget", type=_whole(), default=0, help=f"tokens in a step; {auto}"
    )
    serving.add_argument(
        "--prefill-chunk",
        type=_whole(),
        default=0,
        help="prompt tokens per step beside decoders; 0: by measured step times",
    )
    serving.add_argument(
        "--overlap", choices=("auto", "on", "off"), default="auto", help="plan ahead"
    )
    same = "the same bits whoever else is served"
    serving.add_argument("--deterministic", action="store_true", help=same)
    serving.add_argument("--no-graphs", action="store_true", help="no CUDA graphs for decodes")
    serving.add_argument("--kv-dtype", default="auto", help="auto or fp8")
    serving.add_argument(
        "--tenant-share", type=_share, default=1.0, help="part of all blocks one tenant may hold"
    )
    serving.add_argument("--quantise", default="", help="weights as int8, fp8 or int4")
    serving.add_argument("--num-drafts", type=_whole(), default=0, help="tokens guessed per step")
    serving.add_argument("--draft-model", default="", help="a small model that guesses")
    serving.add_argument(
        "--tensor-parallel", type=_whole(1), default=1, help="processes; one GPU each"
    )
    serving.add_argument(
        "--no-prefix-cache",
        action="store_true",
        help="read every prompt anew, from its first token",
    )
    serving.add_argument(
        "--share-prefixes", action="store_true", help="requests without a tenant are one group"
    )
    serving.add_argument(
        "--kv-memory-mb", type=_whole(), default=0, help="0: by the memory there is"
    )
    serving.add_argument(
        "--host-kv-memory-mb", type=_whole(), default=0, help="offload space; 0: none"
    )


def _whole(least: int = 0, most: int = 1 << 31) -> Callable[[str], int]:
    """Reads a whole number between two bounds."""

    def read(text: str) -> int:
        if not re.fullmatch("[0-9]{1,13}", text) or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"a whole number from {least} to {most} is expected")
        return int(text)

    return read


def _seconds(text: str) -> float:
    if not re.fullmatch(r"[0-9]{0,5}\.?[0-9]{1,3}", text) or not 0.0 < float(text) <= _LONGEST_S:
        raise argparse.ArgumentTypeError(f"seconds are expected, above 0 and up to {_LONGEST_S}")
    return float(text)


def _share(text: str) -> float:
    if not re.fullmatch(r"[0-9]*\.?[0-9]+", text) or not 0.0 < float(text) <= 1.0:
        raise argparse.ArgumentTypeError("a part of one is expected, as in 0.5")
    return float(text)


def _device(text: str) -> str:
    if not re.fullmatch("auto|cpu|cuda(:[0-9]{1,2})?", text):
        raise argparse.ArgumentTypeError("auto, cpu or cuda is expected")
    return text


def _public_key(text: str) -> str:
    try:
        public_key_of(text)
    except ModelRefused as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def _serve_options(options: argparse.Namespace) -> ServeOptions:
    worker = WorkerOptions(
        model=str(options.model),
        device=options.device,
        dtype=options.dtype,
        threads=options.threads,
        max_running=options.max_running,
        max_waiting=options.max_waiting,
        token_budget=options.token_budget,
        prefill_chunk=options.prefill_chunk,
        overlap=options.overlap,
        is_deterministic=options.deterministic,
        has_graphs=not options.no_graphs,
        kv_dtype=options.kv_dtype,
        tenant_share=options.tenant_share,
        is_caching=not options.no_prefix_cache,
        shares_nameless=options.share_prefixes,
        kv_memory_bytes=options.kv_memory_mb << 20,
        host_kv_bytes=options.host_kv_memory_mb << 20,
        quantise=options.quantise,
        num_drafts=options.num_drafts,
        draft_model=options.draft_model,
        tensor_parallel=options.tensor_parallel,
        model_public_key=options.model_public_key,
    )
    return ServeOptions(
        worker=worker,
        host=options.host,
        port=options.port,
        served_name=options.served_name,
        max_body_bytes=options.max_body_bytes,
        max_held_body_bytes=options.max_held_body_bytes,
        api_key=_key_from(options.api_key_env),
        certificate=_certificate_files(options),
        bounds=ConnectionBounds(
            connections_max=options.max_connections,
            header_receive_s=options.header_receive_s,
            body_receive_s=options.body_receive_s,
            keep_alive_s=options.keep_alive_s,
            unread_s=options.unread_s,
        ),
    )


def _certificate_files(options: argparse.Namespace) -> CertificateFiles | None:
    if options.tls_certificate_file is None:
        return None
    return CertificateFiles(
        certificate=options.tls_certificate_file,
        key=options.tls_key_file,
        client_ca=options.tls_client_ca_file,
    )


def _key_from(variable: str | None) -> str | None:
    """The engine's only look at its environment; an empty key would open the door, so it ends."""
    if variable is None:
        return None
    key = os.getenv(variable, "")
    if not key:
        sys.stderr.write(f"the environment variable {variable} is not set\n")
        sys.exit(EXIT_REFUSED)
    return key


def _verify(options: argparse.Namespace) -> int:
    key = public_key_of(options.model_public_key)
    try:
        digest = verify_directory(options.model, key)
    except ModelRefused as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_REFUSED
    sys.stdout.write(f"{digest}\n")
    return 0
