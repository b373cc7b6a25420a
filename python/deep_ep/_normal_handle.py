"""The tensors of a normal dispatch's handle, in DeepEP's order and with its meanings.

FerryEP has one channel, so channel matrices have one column.
"""

from __future__ import annotations

from typing import NamedTuple, Sequence, Tuple

import torch

from deep_ep._dispatch_layout import RANKS_PER_NODE
from deep_ep._refusal import require
from deep_ep._routes import KeptRoute, keep_route

Handle = Tuple[torch.Tensor, ...]

_INTRANODE_ITEMS = 6
_INTERNODE_ITEMS = 10


class Delivered(NamedTuple):
    """What the receiver knows of a dispatch."""

    tokens_between: torch.Tensor  # int32 [R, R], tokens from each source to each rank
    row_source: torch.Tensor  # int32 [n, 2], source token first
    is_token_in_rank: torch.Tensor  # bool [T, R], of this rank's own tokens
    rank: int


def make_intranode_handle(delivered: Delivered, kept: KeptRoute) -> Handle:
    between = delivered.tokens_between
    sent = between[delivered.rank].unsqueeze(1)
    return (
        keep_route(_inclusive_sums(between), kept),
        sent.contiguous(),
        torch.zeros_like(sent),
        delivered.row_source[:, 0].contiguous(),
        delivered.is_token_in_rank,
        _ordinals(delivered.is_token_in_rank),
    )


def make_internode_handle(delivered: Delivered, kept: KeptRoute) -> Handle:
    between, rank = delivered.tokens_between, delivered.rank
    received = between[:, rank].contiguous()
    row_ends = _inclusive_sums(received)
    num_ranks = received.numel()
    last_of_node = torch.arange(
        RANKS_PER_NODE - 1,
        num_ranks + RANKS_PER_NODE - 1,
        RANKS_PER_NODE,
        dtype=torch.int64,
        device=received.device,
    ).clamp(max=num_ranks - 1)
    node_ends = row_ends[last_of_node]
    in_node = torch.stack(
        [part.any(dim=1) for part in delivered.is_token_in_rank.split(RANKS_PER_NODE, dim=1)], dim=1
    )
    source = torch.bucketize(
        torch.arange(
            delivered.row_source.size(0), dtype=torch.int32, device=received.device
        ),
        row_ends,
        right=True,
    ).to(torch.int32)
    source_meta = torch.stack(
        (
            torch.div(source, RANKS_PER_NODE, rounding_mode="floor"),
            torch.bitwise_left_shift(torch.ones_like(source), source % RANKS_PER_NODE),
        ),
        dim=1,
    )
    return (
        delivered.is_token_in_rank,
        in_node.sum(dim=0, dtype=torch.int32).unsqueeze(1),
        between[rank].unsqueeze(1).contiguous(),
        torch.diff(node_ends, prepend=torch.zeros_like(node_ends[:1])).unsqueeze(1),
        node_ends,
        (row_ends - received).unsqueeze(1),
        keep_route(row_ends, kept),
        source_meta.contiguous().view(torch.uint8),
        _ordinals(in_node),
        torch.full((source.numel(), RANKS_PER_NODE), -1, dtype=torch.int32, device=source.device),
    )


def check_handle(handle: Sequence[torch.Tensor]) -> None:
    require(
        isinstance(handle, (tuple, list)) and len(handle) in (_INTRANODE_ITEMS, _INTERNODE_ITEMS),
        f"handle is {_describe(handle)}, expected the tuple of {_INTRANODE_ITEMS} or "
        f"{_INTERNODE_ITEMS} tensors that dispatch returned",
    )


def keeper_of(handle: Sequence[torch.Tensor]) -> torch.Tensor:
    """The tensor whose memory keeps the route."""
    return handle[0] if len(handle) == _INTRANODE_ITEMS else handle[6]


def membership_of(handle: Sequence[torch.Tensor]) -> torch.Tensor:
    return handle[4] if len(handle) == _INTRANODE_ITEMS else handle[0]


def _describe(handle: object) -> str:
    if isinstance(handle, (tuple, list)):
        return f"a {type(handle).__name__} of {len(handle)}"
    return f"a {type(handle).__name__}"


def _inclusive_sums(counts: torch.Tensor) -> torch.Tensor:
    return counts.cumsum(dim=0, dtype=torch.int32)


def _ordinals(is_in: torch.Tensor) -> torch.Tensor:
    """int32: a token's number among those of its column, -1 where it is not in it."""
    ordinal = is_in.cumsum(dim=0, dtype=torch.int32) - 1
    return torch.where(is_in, ordinal, torch.full_like(ordinal, -1))
