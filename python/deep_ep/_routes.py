"""Routes and the handles that programs hold of them.

A handle is a tuple of tensors and nothing else: programs save it for the backward pass and get other
tensor objects on the same memory back. So a route is kept by the memory of one tensor of its handle, and
found again by where that memory lies. A handle whose route is gone (it was made by another buffer, or is
an old one) still says which token went to which rank, and a new route is made from that.
"""

from __future__ import annotations

import collections
import weakref
from typing import Any, Deque, Optional, Tuple

import torch


class KeptRoute:
    """A route with what its handle cannot tell."""

    def __init__(self) -> None:
        self.route: Any = None
        self.owner: Any = None  # the exchange that the route belongs to
        self.num_rows = 0  # of what was delivered, as the caller sees it
        self.num_output_rows = 0  # that the exchange delivers and combines
        self.backing: Optional[torch.Tensor] = None  # whose device memory the handle's tensor shows


class _HostMemory(bytearray):
    """Host memory that keeps a route."""

    kept: KeptRoute


class _DeviceMemory:
    """Device memory of another tensor, which keeps a route."""

    def __init__(self, backing: torch.Tensor, kept: KeptRoute) -> None:
        self.kept = kept
        self.__cuda_array_interface__ = {
            "shape": tuple(backing.shape),
            "typestr": "<i4",
            "data": (backing.data_ptr(), False),
            "strides": None,
            "version": 3,
        }


_kept_by_address: "weakref.WeakValueDictionary[Tuple[str, int], KeptRoute]" = (
    weakref.WeakValueDictionary()
)


def _address_of(tensor: torch.Tensor) -> Tuple[str, int]:
    return str(tensor.device), tensor.data_ptr()


def keep_route(values: torch.Tensor, kept: KeptRoute) -> torch.Tensor:
    """A tensor with the int32 ``values``, whose memory keeps the route."""
    if values.is_cuda:
        kept.backing = values.contiguous()
        memory = _DeviceMemory(kept.backing, kept)
        keeper = torch.as_tensor(memory, device=values.device)
    else:
        host = _HostMemory(values.numel() * 4)
        host.kept = kept
        keeper = torch.frombuffer(host, dtype=torch.int32).view(values.shape)
        keeper.copy_(values)
    _kept_by_address[_address_of(keeper)] = kept
    return keeper


def find_route(keeper: torch.Tensor) -> Optional[KeptRoute]:
    return _kept_by_address.get(_address_of(keeper))


class RouteShelf:
    """The routes that an exchange may hold at once: the latest ones, the same on every rank.

    Which handles are alive differs from rank to rank with the collector; which routes were made last
    does not, and all ranks must agree whether a handle still has its route.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._latest: Deque["weakref.ref[KeptRoute]"] = collections.deque()

    def put(self, kept: KeptRoute) -> None:
        self._latest.append(weakref.ref(kept))
        while len(self._latest) > self._capacity:
            oldest = self._latest.popleft()()
            if oldest is not None:
                oldest.route = None
