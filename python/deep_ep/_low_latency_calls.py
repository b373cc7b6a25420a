"""Buffer's calls of the low-latency mode."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Tuple

import torch

from deep_ep._buffer_state import BufferState, likely_device
from deep_ep._dispatch_layout import check_topk_idx
from deep_ep._grad import without_grad
from deep_ep._low_latency import LowLatencyHandle, LowLatencyMode, Shape
from deep_ep._low_latency_delivery import RowFormat, Rows
from deep_ep._normal_exchange import Capacity
from deep_ep._peer_mask import PeerMask
from deep_ep._refusal import require
from deep_ep._streams import Passage, is_capturing
from deep_ep.utils.event import EventOverlap

Hook = Callable[[], None]
_LEAST_CAPACITY = Capacity(hidden=64, row_bytes=128, meta_bytes=128, max_tokens=1)


class LowLatencyCalls(BufferState):
    def clean_low_latency_buffer(
        self, num_max_dispatch_tokens_per_rank: int, hidden: int, num_experts: int
    ) -> None:
        """Nothing is to be cleaned: words that ranks exchange only grow. The numbers are checked."""
        self._require_alive("clean_low_latency_buffer")
        _check_low_latency_shape(
            Shape(num_max_dispatch_tokens_per_rank, hidden, num_experts, 1), self.group_size
        )

    @without_grad
    def low_latency_dispatch(
        self,
        x: torch.Tensor,
        topk_idx: torch.Tensor,
        num_max_dispatch_tokens_per_rank: int,
        num_experts: int,
        cumulative_local_expert_recv_stats: Optional[torch.Tensor] = None,
        dispatch_wait_recv_cost_stats: Optional[torch.Tensor] = None,
        use_fp8: bool = True,
        round_scale: bool = False,
        use_ue8m0: bool = False,
        async_finish: bool = False,
        return_recv_hook: bool = False,
    ) -> Tuple[Rows, torch.Tensor, LowLatencyHandle, EventOverlap, Optional[Hook]]:
        """Collective. One row per selection, in [E_l, R * Tm, H]; the first ``count`` of each expert.

        Returns rows (with scales, column-major, where ``use_fp8``), int32 [E_l] counts, the handle
        (source tokens [E_l, R * Tm], first row << 32 | rows per source [E_l, R], Tm, H, E), the event,
        and the hook that completes the call where ``return_recv_hook``; nothing is to be read before.
        """
        _check_low_latency_rows(x, topk_idx)
        shape = Shape(num_max_dispatch_tokens_per_rank, x.size(1), num_experts, topk_idx.size(1))
        _check_low_latency_shape(shape, self.group_size)
        require(round_scale or not use_ue8m0, "use_ue8m0 needs round_scale")
        require(use_fp8 or not round_scale, "round_scale needs use_fp8")
        _check_one_of(async_finish, return_recv_hook)
        row_format = RowFormat(use_fp8, round_scale, use_ue8m0)
        with self._passage("low_latency_dispatch", x, None, async_finish) as passage:
            mode = self._low_latency_mode(topk_idx, cumulative_local_expert_recv_stats)
            waits = _WaitMeter(mode, dispatch_wait_recv_cost_stats)
            ids = self._visible_ids(topk_idx, num_experts)
            delivery, finish = mode.begin_dispatch(x, ids, shape, row_format)

            def complete() -> None:
                finish()
                if cumulative_local_expert_recv_stats is not None:
                    cumulative_local_expert_recv_stats.add_(delivery.counts)
                waits.add()

            handle = (
                delivery.source_token,
                delivery.layout_range,
                shape.max_tokens,
                shape.hidden,
                num_experts,
            )
            outputs = [delivery.rows, delivery.counts, handle]
            event, hook = self._complete(passage, complete, return_recv_hook, [x, topk_idx], outputs)
            return delivery.rows, delivery.counts, handle, event, hook

    @without_grad
    def low_latency_combine(
        self,
        x: torch.Tensor,
        topk_idx: torch.Tensor,
        topk_weights: torch.Tensor,
        handle: LowLatencyHandle,
        use_logfmt: bool = False,
        zero_copy: bool = False,
        async_finish: bool = False,
        return_recv_hook: bool = False,
        out: Optional[torch.Tensor] = None,
        combine_wait_recv_cost_stats: Optional[torch.Tensor] = None,
    ) -> Tuple[torch.Tensor, EventOverlap, Optional[Hook]]:
        """Collective. [T, H] = sum over k of weight * row, from x [E_l, R * Tm, H], into ``out``.

        ``zero_copy``: x is what the caller wrote into get_next_low_latency_combine_buffer(handle).
        ``use_logfmt`` changes nothing: rows travel as they are.
        """
        source_token, _, max_tokens, hidden, num_experts = handle
        _check_one_of(async_finish, return_recv_hook)
        require(not (use_logfmt and zero_copy), "use_logfmt and zero_copy exclude each other")
        _check_sum(x, topk_idx, topk_weights, tuple(source_token.shape) + (hidden,))
        num_tokens = topk_idx.size(0)
        if out is not None:
            require(
                tuple(out.shape) == (num_tokens, hidden)
                and out.dtype == x.dtype
                and out.is_contiguous(),
                f"out is {list(out.shape)} {out.dtype}, expected a contiguous "
                f"[{num_tokens}, {hidden}] of {x.dtype}",
            )
        with self._passage("low_latency_combine", x, None, async_finish) as passage:
            mode = self._low_latency_mode(topk_idx, topk_weights, out)
            waits = _WaitMeter(mode, combine_wait_recv_cost_stats)
            if out is None:
                out = torch.empty((num_tokens, hidden), dtype=x.dtype, device=x.device)
            y = mode.given_combine_buffer(handle) if zero_copy else x
            finish = mode.begin_combine(y, topk_weights, handle, out)

            def complete() -> None:
                finish()
                waits.add()

            inputs = [x, topk_idx, topk_weights, handle]
            event, hook = self._complete(passage, complete, return_recv_hook, inputs, [out])
            return out, event, hook

    @without_grad
    def get_next_low_latency_combine_buffer(self, handle: LowLatencyHandle) -> torch.Tensor:
        """Memory [E_l, R * Tm, H] of bf16 that peers read in place, for ``zero_copy``."""
        with self._lock:
            self._require_alive("get_next_low_latency_combine_buffer")
            return self._low_latency_mode(handle[0]).next_combine_buffer(handle)

    # ---- masks ------------------------------------------------------------------------------------

    @without_grad
    def low_latency_update_mask_buffer(self, rank_to_mask: int, mask: bool = False) -> None:
        """Passes over a peer from the next dispatch on, or no more."""
        self._mask().update(rank_to_mask, mask)

    @without_grad
    def low_latency_query_mask_buffer(self, mask_status: torch.Tensor) -> None:
        """Writes int32 [R]: 1 for peers that are passed over."""
        self._mask().query(mask_status)

    @without_grad
    def low_latency_clean_mask_buffer(self) -> None:
        self._mask().clear()

    # ---- parts of the above -----------------------------------------------------------------------

    def _mask(self) -> PeerMask:
        self._require_alive("low_latency_mask_buffer")
        require(self.enable_shrink, "masks need enable_shrink=True at construction")
        with self._lock:
            if self._peer_mask is None:
                self._peer_mask = PeerMask(self.group_size, self._device or likely_device())
            return self._peer_mask

    def _visible_ids(self, topk_idx: torch.Tensor, num_experts: int) -> torch.Tensor:
        """The ids without those of masked peers."""
        if not self.enable_shrink:
            return topk_idx
        exchange = self._normal_exchange()
        exchange.require_room(_LEAST_CAPACITY, 0)
        return self._mask().hide(topk_idx, num_experts, exchange.exchange_rows)

    def _low_latency_mode(self, *tensors: Optional[torch.Tensor]) -> LowLatencyMode:
        for tensor in tensors:
            if tensor is not None:
                self._require_device("low latency", tensor)
        if self._low_latency is None:
            assert self._device is not None
            self._low_latency = LowLatencyMode(self._ferry_group, self._device)
        return self._low_latency

    def _complete(
        self,
        passage: Passage,
        complete: Hook,
        return_recv_hook: bool,
        inputs: List[Any],
        outputs: List[Any],
    ) -> Tuple[EventOverlap, Optional[Hook]]:
        if not return_recv_hook:
            complete()
            return passage.finish(inputs, outputs), None
        return EventOverlap(), _make_hook(self._lock, complete)


def _make_hook(lock: Any, complete: Hook) -> Hook:
    """Completes once, on the stream that is current now, whichever thread calls it."""
    stream = None
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        stream = torch.cuda.current_stream()
    is_complete = False

    @without_grad
    def hook() -> None:
        nonlocal is_complete
        with lock, torch.cuda.stream(stream):
            if not is_complete:
                is_complete = True
                complete()

    return hook


class _WaitMeter:
    """Adds the nanoseconds that this rank waited for each peer to int64 [R]."""

    def __init__(self, mode: LowLatencyMode, stats: Optional[torch.Tensor]) -> None:
        if stats is not None:
            require(
                stats.dtype == torch.int64 and stats.numel() == mode.num_ranks,
                f"wait statistics are {list(stats.shape)} {stats.dtype}, expected "
                f"[{mode.num_ranks}] of int64",
            )
        # Counters are the host's: a graph has none to add.
        self._stats = None if is_capturing() else stats
        self._mode = mode
        self._before = mode.wait_ns_by_peer() if self._stats is not None else []

    def add(self) -> None:
        if self._stats is None:
            return
        waited = [
            max(after - before, 0)
            for before, after in zip(self._before, self._mode.wait_ns_by_peer())
        ]
        nanoseconds = torch.tensor(waited, dtype=torch.int64, device="cpu")
        self._stats.add_(nanoseconds.to(self._stats.device).view_as(self._stats))


def _check_one_of(async_finish: bool, return_recv_hook: bool) -> None:
    require(
        not (async_finish and return_recv_hook),
        "async_finish and return_recv_hook exclude each other",
    )


def _check_low_latency_rows(x: torch.Tensor, topk_idx: torch.Tensor) -> None:
    require(
        x.dim() == 2 and x.is_contiguous() and x.dtype == torch.bfloat16,
        f"x is {list(x.shape)} {x.dtype}, expected a contiguous [num_tokens, hidden] of bfloat16",
    )
    check_topk_idx(topk_idx)
    require(
        topk_idx.size(0) == x.size(0),
        f"topk_idx has {topk_idx.size(0)} tokens, x has {x.size(0)}",
    )


def _check_low_latency_shape(shape: Shape, num_ranks: int) -> None:
    require(
        shape.max_tokens > 0,
        f"num_max_dispatch_tokens_per_rank is {shape.max_tokens}, expected at least 1",
    )
    require(
        shape.num_experts > 0 and shape.num_experts % num_ranks == 0,
        f"{shape.num_experts} experts over {num_ranks} ranks, expected a positive multiple",
    )
    require(
        shape.hidden > 0 and shape.hidden % 128 == 0,
        f"hidden is {shape.hidden}, expected a multiple of 128",
    )


def _check_sum(
    x: torch.Tensor, topk_idx: torch.Tensor, topk_weights: torch.Tensor, shape: Tuple[int, ...]
) -> None:
    require(
        tuple(x.shape) == shape and x.is_contiguous() and x.dtype == torch.bfloat16,
        f"x is {list(x.shape)} {x.dtype}, expected a contiguous {list(shape)} of bfloat16",
    )
    check_topk_idx(topk_idx)
    require(
        topk_weights.shape == topk_idx.shape
        and topk_weights.dtype == torch.float32
        and topk_weights.is_contiguous(),
        f"topk_weights are {list(topk_weights.shape)} {topk_weights.dtype}, expected a contiguous "
        f"{list(topk_idx.shape)} of float32",
    )
