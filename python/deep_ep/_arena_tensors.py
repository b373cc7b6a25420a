"""Tensors on memory that peers read and write directly."""

from __future__ import annotations

import math
from typing import List, Tuple

import torch

import ferry_ep


def _num_bytes(shape: Tuple[int, ...], dtype: torch.dtype) -> int:
    element_bytes = torch.empty((0,), dtype=dtype, device="cpu").element_size()
    return math.prod(shape) * int(element_bytes)


class ArenaTensors:
    """Memory of an exchange's arena, given back with the last tensor on it; torch's own where the
    arena is full, which costs a copy more.
    """

    def __init__(self, exchange: "ferry_ep.Exchange", device: torch.device) -> None:
        self._exchange = exchange
        self._device = device

    def new(self, shape: Tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        try:
            num_bytes = _num_bytes(shape, dtype)
            memory = self._exchange.allocate((num_bytes,), "uint8", framework="torch")
        except ferry_ep.NoResourceError:
            return torch.empty(shape, dtype=dtype, device=self._device)
        return memory.view(dtype).view(shape)


class Turns:
    """Tensors that are made once and take turns."""

    def __init__(self, num_tensors: int) -> None:
        self._num_tensors = num_tensors
        self._memory: List[torch.Tensor] = []
        self._last = 0

    def next(
        self, arena: ArenaTensors, most_bytes: int, shape: Tuple[int, ...], dtype: torch.dtype
    ) -> torch.Tensor:
        """Of ``shape``; at most ``most_bytes``, the same in every call."""
        if not self._memory:
            self._memory = [
                arena.new((most_bytes,), torch.uint8) for _ in range(self._num_tensors)
            ]
        self._last = (self._last + 1) % self._num_tensors
        return self._shown(shape, dtype)

    def last(self, shape: Tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """The one that next() gave last."""
        return self._shown(shape, dtype)

    @property
    def is_used(self) -> bool:
        return bool(self._memory)

    def _shown(self, shape: Tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        memory = self._memory[self._last][: _num_bytes(shape, dtype)]
        return memory.view(dtype).view(shape)
