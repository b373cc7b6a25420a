"""The arguments of normal calls, and what DeepEP asserts of them."""

from __future__ import annotations

from typing import NamedTuple, Optional, Sequence

import torch

from deep_ep._dispatch_layout import check_topk_idx
from deep_ep._refusal import require

ROW_MULTIPLE_BYTES = 16
_SUM_DTYPES = (torch.bfloat16, torch.float16, torch.float32)


class Batch(NamedTuple):
    """The arguments of a dispatch that makes its route."""

    x: torch.Tensor
    scales: Optional[torch.Tensor]
    num_tokens_per_rank: torch.Tensor
    num_tokens_per_expert: torch.Tensor
    is_token_in_rank: torch.Tensor
    topk_idx: Optional[torch.Tensor]
    topk_weights: Optional[torch.Tensor]
    expert_alignment: int
    num_worst_tokens: int
    is_internode: bool


def check_rows(x: torch.Tensor, scales: Optional[torch.Tensor]) -> None:
    require(
        x.dim() == 2 and x.is_contiguous(),
        f"x is {list(x.shape)} with strides {list(x.stride())}, expected a contiguous "
        "[num_tokens, hidden]",
    )
    row_bytes = x.size(1) * x.element_size()
    require(
        row_bytes > 0 and row_bytes % ROW_MULTIPLE_BYTES == 0,
        f"x has rows of {row_bytes} bytes, expected a multiple of {ROW_MULTIPLE_BYTES}",
    )
    if scales is not None:
        require(
            scales.dim() == 2 and scales.size(0) == x.size(0) and scales.element_size() == 4,
            f"scales are {list(scales.shape)} {scales.dtype}, expected [{x.size(0)}, any] of "
            "float32 or int32",
        )


def check_batch(batch: Batch, num_experts: int, num_ranks: int) -> None:
    check_rows(batch.x, batch.scales)
    num_tokens = batch.x.size(0)
    require(
        num_experts > 0 and num_experts % num_ranks == 0,
        f"{num_experts} experts over {num_ranks} ranks, expected a positive multiple",
    )
    member = batch.is_token_in_rank
    require(
        tuple(member.shape) == (num_tokens, num_ranks) and member.dtype == torch.bool,
        f"is_token_in_rank is {list(member.shape)} {member.dtype}, expected "
        f"[{num_tokens}, {num_ranks}] of bool",
    )
    for name, counts, length in (
        ("num_tokens_per_rank", batch.num_tokens_per_rank, num_ranks),
        ("num_tokens_per_expert", batch.num_tokens_per_expert, num_experts),
    ):
        require(
            tuple(counts.shape) == (length,) and counts.dtype == torch.int32,
            f"{name} is {list(counts.shape)} {counts.dtype}, expected [{length}] of int32",
        )
    require(
        (batch.topk_idx is None) == (batch.topk_weights is None),
        "topk_idx and topk_weights are given together or not at all",
    )
    require(
        batch.expert_alignment >= 1,
        f"expert_alignment is {batch.expert_alignment}, expected at least 1",
    )
    require(
        batch.num_worst_tokens >= 0 and (batch.num_worst_tokens == 0 or batch.topk_idx is not None),
        "num_worst_tokens needs topk_idx and topk_weights, whose -1 marks unused rows",
    )
    if batch.topk_idx is None or batch.topk_weights is None:
        return
    check_topk_idx(batch.topk_idx)
    require(
        batch.topk_idx.size(0) == num_tokens
        and batch.topk_weights.shape == batch.topk_idx.shape
        and batch.topk_weights.dtype == torch.float32,
        f"topk_idx is {list(batch.topk_idx.shape)} and topk_weights "
        f"{list(batch.topk_weights.shape)} {batch.topk_weights.dtype}, expected both "
        f"[{num_tokens}, num_topk], the weights float32",
    )


def check_sum(
    x: torch.Tensor,
    topk_weights: Optional[torch.Tensor],
    bias: Sequence[torch.Tensor],
    num_tokens: int,
) -> None:
    require(
        x.dim() == 2 and x.is_contiguous() and x.dtype in _SUM_DTYPES,
        f"x is {list(x.shape)} {x.dtype}, expected a contiguous [num_rows, hidden] of bfloat16, "
        "float16 or float32",
    )
    row_bytes = x.size(1) * x.element_size()
    require(
        row_bytes > 0 and row_bytes % ROW_MULTIPLE_BYTES == 0,
        f"x has rows of {row_bytes} bytes, expected a multiple of {ROW_MULTIPLE_BYTES}",
    )
    if topk_weights is not None:
        require(
            topk_weights.dim() == 2
            and topk_weights.size(0) == x.size(0)
            and topk_weights.dtype == torch.float32,
            f"topk_weights are {list(topk_weights.shape)} {topk_weights.dtype}, expected "
            f"[{x.size(0)}, num_topk] of float32",
        )
    for one in bias:
        require(
            tuple(one.shape) == (num_tokens, x.size(1))
            and one.dtype == x.dtype
            and one.is_contiguous(),
            f"bias is {list(one.shape)} {one.dtype}, expected a contiguous "
            f"[{num_tokens}, {x.size(1)}] of {x.dtype}",
        )
