"""Arithmetic that DeepEP's test scripts share: differences, fp8 rows, sets of ids, checksums."""

from __future__ import annotations

from typing import Tuple

import torch

_GROUP = 128  # channels that share a scale
_FP8_MAX = 448.0
_LEAST_AMAX = 1e-4


def ceil_div(value: int, divisor: int) -> int:
    return -(-value // divisor)


def align(value: int, multiple: int) -> int:
    return ceil_div(value, multiple) * multiple


def calc_diff(x: torch.Tensor, y: torch.Tensor) -> float:
    """1 - 2 sum(xy) / sum(x^2 + y^2) of both shifted by one, in float64: 0 where they are equal."""
    shifted_x, shifted_y = x.double() + 1, y.double() + 1
    energy = (shifted_x.square() + shifted_y.square()).sum()
    return float(1 - 2 * (shifted_x * shifted_y).sum() / energy)


def _in_groups(x: torch.Tensor) -> torch.Tensor:
    """[T, groups, 128] float32, the last group filled with zeros."""
    num_tokens, hidden = x.shape
    padding = align(hidden, _GROUP) - hidden
    return torch.nn.functional.pad(x.float(), (0, padding)).unflatten(1, (-1, _GROUP))


def per_token_cast_to_fp8(x: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
    """[T, H] to e4m3 values and float32 [T, ceil(H / 128)] scales; value * scale is x again."""
    groups = _in_groups(x)
    amax = groups.abs().amax(dim=2).clamp(min=_LEAST_AMAX)
    values = (groups * (_FP8_MAX / amax).unsqueeze(2)).to(torch.float8_e4m3fn)
    return values.flatten(1)[:, : x.size(1)].contiguous(), amax / _FP8_MAX


def per_token_cast_back(x_fp8: torch.Tensor, x_scales: torch.Tensor) -> torch.Tensor:
    """Values and scales to bf16 [T, H]; int32 scales hold four exponents of two each."""
    if x_scales.dtype == torch.int32:
        exponents = x_scales.contiguous().view(torch.uint8).to(torch.int32)
        x_scales = (exponents << 23).view(torch.float32)
    if x_fp8.numel() == 0:
        return x_fp8.to(torch.bfloat16)
    scales = x_scales.reshape(x_fp8.size(0), -1, 1)
    values = (_in_groups(x_fp8) * scales).flatten(1)
    return values[:, : x_fp8.size(1)].to(torch.bfloat16).contiguous()


def inplace_unique(x: torch.Tensor, num_slots: int) -> None:
    """Leaves of each row of ids the distinct ones, then -1; ids are below ``num_slots``."""
    present = torch.zeros((x.size(0), num_slots + 1), dtype=torch.bool, device=x.device)
    present.scatter_(1, torch.where(x < 0, num_slots, x).long(), True)
    ids = torch.arange(num_slots, dtype=x.dtype, device=x.device)
    distinct = torch.where(present[:, :num_slots], ids, -1).sort(dim=1, descending=True).values
    width = min(num_slots, x.size(1))
    x.fill_(-1)
    x[:, :width] = distinct[:, :width]


def hash_tensor(x: torch.Tensor) -> int:
    """The sum of the tensor's bytes, read as int32."""
    return int(x.contiguous().view(torch.int32).sum())
