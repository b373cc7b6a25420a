"""Counts and memberships of a batch, from its top-k ids: local arithmetic on the ids' device."""

from __future__ import annotations

from typing import NamedTuple, Optional

import torch

from deep_ep._refusal import require

RANKS_PER_NODE = 8  # DeepEP's node: what num_tokens_per_rdma_rank counts by


class DispatchLayout(NamedTuple):
    num_tokens_per_rank: torch.Tensor  # int32 [R], a token counts once per rank
    num_tokens_per_rdma_rank: Optional[torch.Tensor]  # int32 [R / 8], None up to 8 ranks
    num_tokens_per_expert: torch.Tensor  # int32 [E], every selection counts
    is_token_in_rank: torch.Tensor  # bool [T, R]


def check_topk_idx(topk_idx: torch.Tensor) -> None:
    require(
        topk_idx.dim() == 2 and topk_idx.is_contiguous(),
        f"topk_idx is {list(topk_idx.shape)} with strides {list(topk_idx.stride())}, expected a "
        "contiguous [num_tokens, num_topk]",
    )
    require(
        topk_idx.dtype in (torch.int64, torch.int32),
        f"topk_idx is {topk_idx.dtype}, expected int64 or int32",
    )


def plan_dispatch_layout(topk_idx: torch.Tensor, num_experts: int, num_ranks: int) -> DispatchLayout:
    check_topk_idx(topk_idx)
    require(
        num_experts > 0 and num_experts % num_ranks == 0,
        f"{num_experts} experts over {num_ranks} ranks, expected a positive multiple",
    )
    is_named = (topk_idx >= 0) & (topk_idx < num_experts)
    # One column more than there are experts and ranks takes what names none.
    expert = torch.where(is_named, topk_idx, torch.full_like(topk_idx, num_experts)).long()
    per_expert = torch.zeros(num_experts + 1, dtype=torch.int32, device=topk_idx.device)
    per_expert.scatter_add_(
        0, expert.flatten(), torch.ones_like(per_expert[:1]).expand(expert.numel())
    )
    rank = torch.div(expert, num_experts // num_ranks, rounding_mode="floor")
    is_in_rank = _mark(rank, num_ranks)
    num_nodes = (num_ranks + RANKS_PER_NODE - 1) // RANKS_PER_NODE
    per_node = None
    if num_nodes > 1:
        node = torch.div(rank, RANKS_PER_NODE, rounding_mode="floor")
        is_in_node = _mark(torch.where(is_named, node, torch.full_like(node, num_nodes)), num_nodes)
        per_node = is_in_node.sum(dim=0, dtype=torch.int32)
    return DispatchLayout(
        is_in_rank.sum(dim=0, dtype=torch.int32), per_node, per_expert[:num_experts], is_in_rank
    )


def _mark(column: torch.Tensor, num_columns: int) -> torch.Tensor:
    """bool [T, num_columns]: which columns a token names; ``num_columns`` itself stands for none."""
    marked = torch.zeros((column.size(0), num_columns + 1), dtype=torch.bool, device=column.device)
    return marked.scatter_(1, column, True)[:, :num_columns].contiguous()
