"""What travels beside a row of a normal dispatch: scales, top-k ids and weights, as int32 words."""

from __future__ import annotations

from typing import Optional, Tuple

import torch


class RowMeta:
    """Packs [T, S + 2K] words on the sender's side and unpacks [n, S + 2K] on the receiver's.

    Ids travel as int32 and come back in their own dtype; scales and weights keep their bits.
    """

    def __init__(
        self,
        scales: Optional[torch.Tensor],
        topk_idx: Optional[torch.Tensor],
        topk_weights: Optional[torch.Tensor],
    ) -> None:
        self._scales = scales
        self._topk_idx = topk_idx
        self._topk_weights = topk_weights
        self.num_scales: int = 0 if scales is None else scales.size(1)
        self.num_topk: int = 0 if topk_idx is None else topk_idx.size(1)

    @property
    def num_words(self) -> int:
        return self.num_scales + 2 * self.num_topk

    def pack(self) -> Optional[torch.Tensor]:
        words = []
        if self._scales is not None:
            words.append(self._scales.view(torch.int32))
        if self._topk_idx is not None and self._topk_weights is not None:
            words.append(self._topk_idx.to(torch.int32))
            words.append(self._topk_weights.view(torch.int32))
        if self.num_words == 0:
            return None
        return words[0] if len(words) == 1 else torch.cat(words, dim=1)

    def unpack_scales(self, words: torch.Tensor) -> Optional[torch.Tensor]:
        if self._scales is None:
            return None
        return words[:, : self.num_scales].contiguous().view(self._scales.dtype)

    def unpack_topk(
        self,
        words: torch.Tensor,
        first_expert: int,
        num_local: int,
        num_rows: Optional[torch.Tensor],
    ) -> Tuple[Optional[torch.Tensor], Optional[torch.Tensor]]:
        """Ids of this rank's experts counted from 0, -1 and weight 0 elsewhere and behind ``num_rows``."""
        if self._topk_idx is None:
            return None, None
        ids = words[:, self.num_scales : self.num_scales + self.num_topk] - first_expert
        is_local = (ids >= 0) & (ids < num_local)
        if num_rows is not None:
            row = torch.arange(words.size(0), dtype=torch.int64, device=words.device)
            is_local &= (row < num_rows).unsqueeze(1)
        weights = words[:, self.num_scales + self.num_topk :].view(torch.float32)
        return (
            torch.where(is_local, ids, torch.full_like(ids, -1)).to(self._topk_idx.dtype),
            torch.where(is_local, weights, torch.zeros_like(weights)),
        )
