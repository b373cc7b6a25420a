"""Low-latency dispatch and combine: one row per (token, expert), in fixed places [E_l, R * Tm, H]."""

from __future__ import annotations

from typing import Any, Callable, List, NamedTuple, Optional, Tuple

import torch

import ferry_ep
from deep_ep._arena_tensors import ArenaTensors, Turns
from deep_ep._low_latency_delivery import (
    LowLatencyDelivery,
    RangeConstants,
    RowFormat,
    make_range_constants,
)
from deep_ep._refusal import Refused, require
from deep_ep._routes import KeptRoute, find_route, keep_route
from deep_ep._streams import is_capturing

_TURNS = 2  # DeepEP lets two low-latency results be in flight
_OUTPUTS_IN_ARENA = 4  # bf16 ones: two of graphs, two for zero copy or of eager calls
_SMALL_TENSOR_BYTES = 2 << 20

LowLatencyHandle = Tuple[torch.Tensor, torch.Tensor, int, int, int]
Finish = Callable[[], None]


class Shape(NamedTuple):
    """What a low-latency exchange is made for; the same on every rank in every call."""

    max_tokens: int
    hidden: int
    num_experts: int
    num_topk: int


class LowLatencyMode:
    def __init__(self, group: "ferry_ep.Group", device: torch.device) -> None:
        self._group = group
        self._device = device
        self._shape: Optional[Shape] = None
        self._exchange: Any = None
        self._generation = object()
        self._constants: RangeConstants
        self._own_rank: torch.Tensor
        self._arena: ArenaTensors
        self._output_bytes = 0  # of one bf16 output
        self._graph_outputs = Turns(_TURNS)
        self._combine_buffers = Turns(_TURNS)

    @property
    def num_ranks(self) -> int:
        return self._group.size

    def begin_dispatch(
        self, x: torch.Tensor, topk_idx: torch.Tensor, shape: Shape, row_format: RowFormat
    ) -> Tuple[LowLatencyDelivery, Finish]:
        """Collective. What will be delivered, and what completes it."""
        self._make_exchange(shape)
        kept = KeptRoute()
        kept.route = self._call(lambda: self._exchange.route(topk_idx, sizing="worst_case"))
        kept.owner = self._generation
        num_local = shape.num_experts // self.num_ranks
        rows_per_expert = self.num_ranks * shape.max_tokens
        tokens = self._make_tokens((num_local, rows_per_expert, shape.hidden), row_format.dtype)
        places = torch.empty((num_local, rows_per_expert), dtype=torch.int32, device=self._device)
        delivery = LowLatencyDelivery(
            row_format, tokens, keep_route(places, kept), self._constants
        )
        pending = self._call(
            lambda: self._exchange.begin_dispatch(
                kept.route,
                x,
                topk_weights=self._own_rank[: topk_idx.size(0)],
                quantize=row_format.quantize,
                outputs=ferry_ep.DeliveryOutputs(tokens=row_format.as_written(tokens)),
            )
        )
        return delivery, lambda: delivery.fill(self._call(pending.finish))

    def begin_combine(
        self,
        y: torch.Tensor,
        topk_weights: torch.Tensor,
        handle: LowLatencyHandle,
        out: torch.Tensor,
    ) -> Finish:
        """Collective. What completes the sum into ``out``."""
        kept = self._route_of(handle)
        pending = self._call(
            lambda: self._exchange.begin_combine(kept.route, y, out, topk_weights=topk_weights)
        )

        def finish() -> None:
            self._call(pending.finish)

        return finish

    def next_combine_buffer(self, handle: LowLatencyHandle) -> torch.Tensor:
        """Memory [E_l, R * Tm, H] that the peers read; two take turns."""
        self._route_of(handle)
        return self._combine_buffers.next(
            self._arena, self._output_bytes, _output_shape(handle), torch.bfloat16
        )

    def given_combine_buffer(self, handle: LowLatencyHandle) -> torch.Tensor:
        """The buffer that next_combine_buffer gave last."""
        require(
            self._combine_buffers.is_used,
            "zero_copy: the rows are not in a buffer of get_next_low_latency_combine_buffer",
        )
        return self._combine_buffers.last(_output_shape(handle), torch.bfloat16)

    def wait_ns_by_peer(self) -> List[int]:
        if self._exchange is None:
            return [0] * self.num_ranks
        return list(self._exchange.counters().wait_ns_by_peer)

    def destroy(self) -> None:
        self._graph_outputs = Turns(_TURNS)
        self._combine_buffers = Turns(_TURNS)
        if self._exchange is not None:
            self._exchange.destroy()
            self._exchange = None

    # ---- parts of the above -----------------------------------------------------------------------

    def _make_exchange(self, shape: Shape) -> None:
        """Collective where the shape is a new one, which all ranks see alike."""
        if self._exchange is not None and self._shape == shape:
            return
        require(
            not is_capturing(),
            "a CUDA graph is being captured and the buffer has no exchange of this shape yet; try: the "
            "same call once before the capture",
        )
        self.destroy()
        num_local = shape.num_experts // self.num_ranks
        self._output_bytes = num_local * self.num_ranks * shape.max_tokens * shape.hidden * 2
        self._exchange = self._call(
            lambda: ferry_ep.Exchange(
                self._group,
                num_experts=shape.num_experts,
                top_k=shape.num_topk,
                hidden=shape.hidden,
                max_tokens=shape.max_tokens,
                dtype="bf16",
                device=str(self._device),
                mode="low_latency",
                layout="padded",
                duplicates="accept",
                arena_bytes=_OUTPUTS_IN_ARENA * self._output_bytes + _SMALL_TENSOR_BYTES,
            )
        )
        self._arena = ArenaTensors(self._exchange, self._device)
        self._shape = shape
        self._generation = object()
        self._constants = make_range_constants(
            num_local, self.num_ranks, shape.max_tokens, self._device
        )
        # Rows are sorted by source; which one a row is of travels where its weight would.
        self._own_rank = torch.full(
            (shape.max_tokens, shape.num_topk),
            float(self._group.rank),
            dtype=torch.float32,
            device=self._device,
        )

    def _make_tokens(self, shape: Tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Memory for delivered rows. Rows of a captured dispatch lie in two tensors of their own, in
        turn: a replay writes there.
        """
        if not is_capturing():
            return self._arena.new(shape, dtype)
        return self._graph_outputs.next(self._arena, self._output_bytes, shape, dtype)

    def _route_of(self, handle: LowLatencyHandle) -> KeptRoute:
        kept = find_route(handle[0])
        require(
            kept is not None and kept.route is not None and kept.owner is self._generation,
            "the handle is of another low-latency shape or buffer, whose routes are gone",
        )
        assert kept is not None
        return kept

    @staticmethod
    def _call(function: Callable[[], Any]) -> Any:
        try:
            return function()
        except ferry_ep.InvalidArgumentError as error:
            raise Refused(str(error)) from error


def _output_shape(handle: LowLatencyHandle) -> Tuple[int, ...]:
    return (*handle[0].shape, handle[3])
