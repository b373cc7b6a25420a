"""The exchange behind normal dispatches and combines, which grows with what it is asked for.

DeepEP routes by ``is_token_in_rank``, with top-k ids or without. So does this exchange: its "experts" are
the ranks, and a token's ids are the ranks it goes to. Top-k ids, weights and scales travel as opaque bytes
beside the row.

An exchange has a largest T, and T differs between ranks. A batch that is larger is refused on every rank
with the same error; then all of them say their T, and make a larger exchange together. Everything else that
an exchange is sized by is the same on every rank in every call, so all see alike that it must grow.
"""

from __future__ import annotations

import struct
from typing import Any, List, NamedTuple, Optional

import torch

import ferry_ep
from deep_ep._refusal import Refused, require
from deep_ep._routes import RouteShelf
from deep_ep._streams import is_capturing

_ROW_MULTIPLE_BYTES = 16
_MOST_RANKS = 32  # an exchange has at most 32 ids per token
_LEAST_TOKENS = 64
_LEAST_HIDDEN = 64  # rows of a few weights are summed as well
_SPARE_TOPK = 32  # room for ids and weights beside any row
_ROUTE_BYTES = 96 << 20  # of the 128 MiB that the CUDA engine has for routes
_ENTRY_BYTES = 32  # of one (token, rank) in a route, rounded up
_MOST_ROUTES = 512
_SMALL_HEAP_BYTES = 2 << 20  # nothing is allocated from this exchange


class Capacity(NamedTuple):
    """What one exchange can carry."""

    hidden: int  # elements of a row that is summed
    row_bytes: int  # of a row that is moved
    meta_bytes: int  # beside a row
    max_tokens: int  # of any rank

    def covers(self, other: "Capacity") -> bool:
        return all(own >= needed for own, needed in zip(self, other))

    def joined(self, other: "Capacity") -> "Capacity":
        return Capacity(*(max(own, needed) for own, needed in zip(self, other)))


def _align(value: int, multiple: int) -> int:
    return (value + multiple - 1) // multiple * multiple


def _round_up_to_power_of_two(value: int) -> int:
    return 1 << max(value - 1, 0).bit_length()


class NormalExchange:
    def __init__(self, group: "ferry_ep.Group", device: torch.device) -> None:
        require(
            group.size <= _MOST_RANKS,
            f"a group of {group.size} ranks, normal dispatch is made for up to {_MOST_RANKS}",
        )
        self.group = group
        self.device = device
        self.generation = object()  # a new one with each exchange; routes belong to one
        self.shelf = RouteShelf(_MOST_ROUTES)
        self._capacity = Capacity(0, 0, 0, 0)
        self._exchange: Optional[ferry_ep.Exchange] = None
        self._to_each: Any = None  # the route of exchange_rows
        self._num_sms = 0

    @property
    def max_tokens(self) -> int:
        return self._capacity.max_tokens

    @property
    def exchange(self) -> "ferry_ep.Exchange":
        assert self._exchange is not None, "require_room comes first"
        return self._exchange

    def require_room(self, need: Capacity, num_sms: int) -> None:
        """Collective where it grows, and all ranks see alike that it must: max_tokens is not looked at,
        but where there is no exchange yet.
        """
        if self._exchange is None or not self._capacity._replace(
            max_tokens=need.max_tokens
        ).covers(need):
            self._grow(need, num_sms)

    def require_tokens(self, max_tokens: int, num_sms: int) -> None:
        """The same for a largest T that all ranks know."""
        if max_tokens > self._capacity.max_tokens:
            self._grow(self._capacity._replace(max_tokens=max_tokens), num_sms)

    def route(self, is_token_in_rank: torch.Tensor, sizing: str, is_refused: Any = None) -> Any:
        """Collective. One id per rank and token; ``is_refused`` bool [T] marks tokens whose top-k ids are
        out of range.
        """
        ids = self._rank_ids(is_token_in_rank)
        if is_refused is not None:
            # An id that no rank has: the engine refuses the batch on every rank.
            ids[:, 0] = torch.where(is_refused, torch.full_like(ids[:, 0], self.group.size), ids[:, 0])
        num_tokens = ids.size(0)
        try:
            return self.exchange.route(ids, sizing=sizing)
        except ferry_ep.InvalidArgumentError as error:
            # Every rank is here with this error: what they say now they say together.
            largest = max(self._gather_numbers(num_tokens))
            if largest <= self._capacity.max_tokens:
                raise Refused(
                    f"dispatch: {error}, where ids are ranks, and {self.group.size} stands for a "
                    "topk_idx out of range"
                ) from error
        self._grow(self._capacity._replace(max_tokens=largest), self._num_sms)
        return self.exchange.route(ids, sizing=sizing)

    def exchange_rows(self, rows: torch.Tensor) -> torch.Tensor:
        """Collective. int32 [R, n], row r for rank r; gives [R, n], row r from rank r."""
        width = _align(rows.size(1) * 4, _ROW_MULTIPLE_BYTES) // 4
        padded = torch.zeros((rows.size(0), width), dtype=torch.int32, device=self.device)
        padded[:, : rows.size(1)] = rows
        received = torch.empty_like(padded)
        outputs = ferry_ep.DeliveryOutputs(tokens=received)
        self.exchange.dispatch(self._to_each, padded, outputs=outputs)
        return received[:, : rows.size(1)]

    def destroy(self) -> None:
        if self._exchange is not None:
            self._exchange.destroy()
            self._exchange = None
            self._to_each = None

    def _grow(self, need: Capacity, num_sms: int) -> None:
        require(
            not is_capturing(),
            "a CUDA graph is being captured and the buffer has no exchange of this size yet; try: the "
            "same call once before the capture",
        )
        need = need.joined(Capacity(*_columnwise_max(self._gather(need))))
        need = need.joined(self._capacity)
        self.destroy()
        self._capacity = Capacity(
            hidden=_align(
                max(need.hidden, (need.row_bytes + 1) // 2, _LEAST_HIDDEN), _ROW_MULTIPLE_BYTES // 2
            ),
            row_bytes=need.row_bytes,
            meta_bytes=_align(need.meta_bytes, _ROW_MULTIPLE_BYTES),
            max_tokens=_round_up_to_power_of_two(
                max(need.max_tokens, self.group.size, _LEAST_TOKENS)
            ),
        )
        self._num_sms = num_sms
        self._exchange = self._make()
        self.generation = object()
        self.shelf = RouteShelf(self._num_routes())
        everybody = torch.eye(self.group.size, dtype=torch.bool, device=self.device)
        self._to_each = self._exchange.route(self._rank_ids(everybody), sizing="exact")

    def _make(self) -> "ferry_ep.Exchange":
        num_ranks = self.group.size
        return ferry_ep.Exchange(
            self.group,
            num_experts=num_ranks,
            top_k=num_ranks,
            hidden=self._capacity.hidden,
            max_tokens=self._capacity.max_tokens,
            dtype="bf16",
            device=str(self.device),
            layout="by_rank",
            scale_bytes_per_row=self._capacity.meta_bytes,
            arena_bytes=_SMALL_HEAP_BYTES if self.device.type == "cuda" else 0,
            num_sms=self._num_sms if self.device.type == "cuda" else 0,
        )

    def _num_routes(self) -> int:
        route_bytes = self._capacity.max_tokens * self.group.size * _ENTRY_BYTES
        return max(4, min(_MOST_ROUTES, _ROUTE_BYTES // route_bytes - 2))

    def _rank_ids(self, is_token_in_rank: torch.Tensor) -> torch.Tensor:
        ranks = torch.arange(self.group.size, dtype=torch.int32, device=self.device)
        return torch.where(is_token_in_rank, ranks, torch.full_like(ranks, -1))

    def _gather(self, need: Capacity) -> List[Capacity]:
        packed = struct.pack("<4q", *need)
        return [Capacity(*struct.unpack("<4q", one)) for one in self.group.all_gather(packed)]

    def _gather_numbers(self, number: int) -> List[int]:
        packed = struct.pack("<q", number)
        return [struct.unpack("<q", one)[0] for one in self.group.all_gather(packed)]


def _columnwise_max(rows: List[Capacity]) -> List[int]:
    return [max(column) for column in zip(*rows)]


def spare_meta_bytes(hidden: int) -> int:
    """Room for a scale per 128 channels, ids and weights, so that few exchanges must grow."""
    return _align((hidden + 127) // 128 * 4 + _SPARE_TOPK * 8, _ROW_MULTIPLE_BYTES)
