"""What a low-latency dispatch gives: rows, scales, counts, and where each row comes from."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional, Tuple, Union

import torch

import ferry_ep

_GROUP = 128  # channels that share a scale
_GROUPS_PER_WORD = 4
_EXPONENT_SHIFT = 23
_BEGIN_SHIFT = 32
_TMA_ROWS = 4  # a column of scales starts at a multiple of 16 bytes


Rows = Union[torch.Tensor, Tuple[torch.Tensor, torch.Tensor]]


class RowFormat(NamedTuple):
    """How rows are quantised on the way."""

    use_fp8: bool
    round_scale: bool  # scales are powers of two
    use_ue8m0: bool  # and only their exponents are given, four to an int32

    @property
    def dtype(self) -> torch.dtype:
        if not self.use_fp8:
            return torch.bfloat16
        return getattr(torch, "float8_e4m3fn", torch.uint8)  # older torch: the same bytes

    @property
    def quantize(self) -> str:
        if not self.use_fp8:
            return "none"
        return "fp8_ue8m0" if self.round_scale else "fp8"

    def as_written(self, tokens: torch.Tensor) -> Any:
        if not self.use_fp8:
            return tokens
        return ferry_ep.Typed(tokens.view(torch.uint8), "fp8_e4m3")


class RangeConstants(NamedTuple):
    """What layout ranges are computed with, the same for every dispatch of a shape."""

    sources: torch.Tensor  # float32 [E_l, R + 1], each row 0..R
    nowhere: torch.Tensor  # float32, R: behind the rows of every source
    row: torch.Tensor  # int32 [R * Tm], 0..R * Tm - 1


def make_range_constants(
    num_local: int, num_ranks: int, max_tokens: int, device: torch.device
) -> RangeConstants:
    sources = torch.arange(num_ranks + 1, dtype=torch.float32, device=device)
    return RangeConstants(
        sources.repeat(num_local, 1),
        torch.full((), float(num_ranks), dtype=torch.float32, device=device),
        torch.arange(num_ranks * max_tokens, dtype=torch.int32, device=device),
    )


class LowLatencyDelivery:
    """Tensors that exist when the dispatch begins and hold their values when it is finished."""

    def __init__(
        self,
        row_format: RowFormat,
        tokens: torch.Tensor,
        source_token: torch.Tensor,
        constants: RangeConstants,
    ) -> None:
        num_local, rows_per_expert, hidden = tokens.shape
        device = tokens.device
        num_ranks = constants.sources.size(1) - 1
        self._format = row_format
        self._constants = constants
        self.tokens = tokens
        self.source_token = source_token  # int32 [E_l, R * Tm]
        self.counts = torch.empty((num_local,), dtype=torch.int32, device=device)
        self.layout_range = torch.empty((num_local, num_ranks), dtype=torch.int64, device=device)
        self.scales: Optional[torch.Tensor] = None
        if row_format.use_fp8:
            per_scale = _GROUP * (_GROUPS_PER_WORD if row_format.use_ue8m0 else 1)
            pitch = -(-rows_per_expert // _TMA_ROWS) * _TMA_ROWS
            columns = torch.empty(
                (num_local, -(-hidden // per_scale), pitch),
                dtype=torch.int32 if row_format.use_ue8m0 else torch.float32,
                device=device,
            )
            self.scales = columns.transpose(1, 2)[:, :rows_per_expert]

    @property
    def rows(self) -> Rows:
        """What the caller sees as recv_x."""
        return self.tokens if self.scales is None else (self.tokens, self.scales)

    def fill(self, delivery: "ferry_ep.Delivery") -> None:
        self.counts.copy_(delivery.expert_counts)
        self.source_token.copy_(delivery.row_source[..., 0])
        self._fill_layout_range(delivery.topk_weights)
        if self.scales is not None:
            self.scales.copy_(self._as_scales(delivery.scales, self.scales.size(2)))

    def _as_scales(self, delivered: torch.Tensor, num_scales: int) -> torch.Tensor:
        if not self._format.round_scale or self._format.use_ue8m0:
            return delivered
        exponents = delivered.contiguous().view(torch.uint8)[..., :num_scales].to(torch.int32)
        return (exponents << _EXPONENT_SHIFT).view(torch.float32)

    def _fill_layout_range(self, source_rank: torch.Tensor) -> None:
        """Per expert and source the number of its rows, and above it the first.

        Rows are sorted by source: where each begins is found by bisection.
        """
        sources, nowhere, row = self._constants
        is_row = row < self.counts.unsqueeze(1)
        begins = torch.searchsorted(torch.where(is_row, source_rank, nowhere), sources)
        first = begins[:, :-1]
        torch.add(first << _BEGIN_SHIFT, begins[:, 1:] - first, out=self.layout_range)
