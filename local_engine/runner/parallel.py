"""Tensor parallelism: every rank holds some heads and a share of each feed-forward part.

Rank 0 plans, samples and tells the others what to compute; they run the same forward pass on their
share, and all sum their results after each attention and each feed-forward part. Messages are
msgpack in a byte tensor, nothing is pickled. gloo on CPUs, nccl on GPUs.
"""

from collections.abc import Callable
from typing import Any

import msgspec
import torch
import torch.distributed as dist
from torch import nn

from local_engine.core.allocation import BlockCopy, CopyKind
from local_engine.core.step import Step
from local_engine.model.decoder import Block, Decoder, Mlp
from local_engine.model.errors import ModelRefused
from local_engine.model.moe import Expert, SparseMlp
from local_engine.model.spec import ModelSpec
from local_engine.runner.batch import FlatBatch, PagedAttention
from local_engine.runner.share import Share, ShareOptions


def sum_over_ranks(x: torch.Tensor) -> torch.Tensor:
    """The sum of all ranks' parts, on every rank."""
    dist.all_reduce(x)
    return x


def local_spec(spec: ModelSpec, world: int) -> ModelSpec:
    """One rank's model, with its share of heads; raises `ModelRefused` if they do not divide."""
    sizes = {
        "attention heads": spec.num_heads,
        "key/value heads": spec.num_kv_heads,
        "intermediate size": spec.intermediate_size,
        "expert size": spec.moe.intermediate_size if spec.moe else world,
    }
    for name, size in sizes.items():
        if size % world:
            raise ModelRefused(f"{size} {name} cannot be shared by {world} ranks")
    return msgspec.structs.replace(
        spec, num_heads=spec.num_heads // world, num_kv_heads=spec.num_kv_heads // world
    )


def shard(
    decoder: Decoder,
    rank: int,
    world: int,
    reduce: Callable[[torch.Tensor], torch.Tensor] = sum_over_ranks,
) -> None:
    """Keep this rank's share of a loaded decoder; call it before the weights are fused."""
    decoder.spec = local_spec(decoder.spec, world)
    for layer in decoder.model.layers:
        assert isinstance(layer, Block), "a decoder is made of blocks"
        attention = layer.self_attn
        for part in (attention.q_proj, attention.k_proj, attention.v_proj):
            _keep_outputs(part, rank, world)
        _keep_inputs(attention.o_proj, rank, world)
        attention.reduce = reduce
        _shard_mlp(layer.mlp, rank, world)
        layer.mlp.reduce = reduce


def _shard_mlp(mlp: Mlp | SparseMlp, rank: int, world: int) -> None:
    parts: Any = mlp.experts if isinstance(mlp, SparseMlp) else [mlp]
    for part in parts:
        assert isinstance(part, Mlp | Expert), "both have the same three products"
        _keep_outputs(part.gate_proj, rank, world)
        _keep_outputs(part.up_proj, rank, world)
        _keep_inputs(part.down_proj, rank, world)


def _keep_outputs(linear: nn.Linear, rank: int, world: int) -> None:
    linear.weight = _frozen(linear.weight.data.chunk(world, dim=0)[rank])
    linear.out_features = linear.weight.shape[0]
    if linear.bias is not None:
        linear.bias = _frozen(linear.bias.data.chunk(world)[rank])


def _keep_inputs(linear: nn.Linear, rank: int, world: int) -> None:
    linear.weight = _frozen(linear.weight.data.chunk(world, dim=1)[rank])
    linear.in_features = linear.weight.shape[1]
    bias: torch.Tensor | None = linear.bias
    if bias is not None and rank > 0:
        # The parts are added up, so only one of them may have the bias.
        linear.bias = _frozen(torch.zeros_like(bias))


def _frozen(tensor: torch.Tensor) -> nn.Parameter:
    return nn.Parameter(tensor.contiguous(), requires_grad=False)


class Message(msgspec.Struct, array_like=True):
    """What the other ranks have to do: compute a step, read a text to its end, or stop."""

    copies: list[tuple[int, int, int]] = []
    spans: list[tuple[int, int]] = []
    num_singles: int = 0
    token_ids: list[int] = []
    positions: list[int] = []
    blocks: list[int] = []
    offsets: list[int] = []
    table: list[list[int]] = []
    first_rows: list[int] = []
    is_whole: bool = False
    """`token_ids` are a text of their own: none of its keys and values are kept."""
    is_end: bool = False


_DECODER = msgspec.msgpack.Decoder(Message)


class Leader:
    """Rank 0's side towards the others; each message says what rank 0 is about to compute."""

    def step(self, step: Step, batch: FlatBatch | None) -> None:
        """A step's copies, and its tokens unless it has only copies."""
        copies = [(copy.kind.value, copy.block_id, copy.host_slot) for copy in step.copies]
        if batch is None:
            _send(Message(copies))
            return
        message = Message(
            copies,
            batch.spans,
            batch.num_singles,
            batch.token_ids.tolist(),
            batch.positions.tolist(),
            batch.blocks.tolist(),
            batch.offsets.tolist(),
            batch.table.tolist(),
            batch.first_rows,
        )
        _send(message)

    def text(self, token_ids: list[int]) -> None:
        """A text that is read to its end, for its embedding."""
        _send(Message(token_ids=token_ids, is_whole=True))

    def end(self) -> None:
        """Let the other ranks stop."""
        _send(Message(is_end=True))


def _send(message: Message) -> None:
    body = msgspec.msgpack.encode(message)
    dist.broadcast(torch.tensor([len(body)]), src=0)
    dist.broadcast(torch.frombuffer(bytearray(body), dtype=torch.uint8), src=0)


def _receive() -> Message:
    length = torch.zeros(1, dtype=torch.long)
    dist.broadcast(length, src=0)
    body = torch.empty(int(length), dtype=torch.uint8)
    dist.broadcast(body, src=0)
    return _DECODER.decode(body.numpy().tobytes())


def fewest(*counts: int) -> tuple[int, ...]:
    """The smallest of each count on any rank: what all of them have."""
    agreed = torch.tensor(counts)
    dist.all_reduce(agreed, dist.ReduceOp.MIN)
    return tuple(agreed.tolist())


class Follower:
    """A rank other than rank 0: its share of the decoder, keys and values; decides nothing."""

    def __init__(self, decoder: Decoder, device: torch.device, options: ShareOptions) -> None:
        """Everything except the decoder's share and the device is as on rank 0."""
        share = Share(decoder, device, options)
        self._device = device
        self._decoder, self._native, self._pool = share.decoder, share.native, share.pool

    @torch.inference_mode()
    def run(self) -> None:
        """Compute what rank 0 announces, until it announces the end."""
        while not (message := _receive()).is_end:
            if message.is_whole:
                self._decoder(torch.tensor([message.token_ids], device=self._device))
                continue
            self._pool.apply(
                tuple(
                    BlockCopy(CopyKind(kind), block, slot) for kind, block, slot in message.copies
                )
            )
            if message.spans:
                batch = self._batch(message)
                attend = PagedAttention(self._decoder.spec, self._pool, batch, self._native)
                self._decoder(batch.token_ids, batch.positions, attend)

    def _batch(self, message: Message) -> FlatBatch:
        device, none = self._device, torch.zeros(0, dtype=torch.long)
        firsts = torch.tensor([*message.first_rows[message.num_singles :], len(message.token_ids)])
        return FlatBatch(
            items=[],
            spans=message.spans,
            num_singles=message.num_singles,
            token_ids=torch.tensor(message.token_ids).to(device),
            positions=torch.tensor(message.positions).to(device),
            blocks=torch.tensor(message.blocks).to(device),
            offsets=torch.tensor(message.offsets).to(device),
            table=torch.tensor(message.table, dtype=torch.int32).to(device),
            lengths=torch.tensor([end for _, end in message.spans], dtype=torch.int32).to(device),
            first_rows=message.first_rows,
            firsts=(firsts - firsts[0]).to(device, torch.int32),
            sources=none,
            scored_rows=none,
        )
