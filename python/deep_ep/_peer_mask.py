"""Peers that low-latency calls pass over (``enable_shrink``)."""

from __future__ import annotations

from typing import Callable

import torch

from deep_ep._refusal import require


class PeerMask:
    """int32 [R] on the device, 1 for a peer that is passed over.

    A masked peer is sent nothing and sends nothing: ranks tell each other whom they mask before each
    dispatch, so that a sender leaves out those who would not take its rows.
    """

    def __init__(self, num_ranks: int, device: torch.device) -> None:
        self._mask = torch.zeros((num_ranks,), dtype=torch.int32, device=device)

    def update(self, rank: int, is_masked: bool) -> None:
        num_ranks = self._mask.numel()
        require(0 <= rank < num_ranks, f"rank {rank} is not one of {num_ranks}")
        self._mask[rank] = int(is_masked)

    def query(self, out: torch.Tensor) -> None:
        require(
            out.dtype == torch.int32 and out.shape == self._mask.shape,
            f"mask_status is {list(out.shape)} {out.dtype}, expected [{self._mask.numel()}] of int32",
        )
        out.copy_(self._mask)

    def clear(self) -> None:
        self._mask.zero_()

    def hide(
        self,
        topk_idx: torch.Tensor,
        num_experts: int,
        exchange_rows: Callable[[torch.Tensor], torch.Tensor],
    ) -> torch.Tensor:
        """Collective. The ids with -1 for experts of peers that either side masks."""
        masked_by = exchange_rows(self._mask.unsqueeze(1)).squeeze(1)
        is_apart = ((self._mask != 0) | (masked_by != 0)).repeat_interleave(
            num_experts // self._mask.numel(), output_size=num_experts
        )
        is_hidden = (topk_idx >= 0) & is_apart[topk_idx.clamp(0, num_experts - 1).long()]
        return torch.where(is_hidden, torch.full_like(topk_idx, -1), topk_idx)
