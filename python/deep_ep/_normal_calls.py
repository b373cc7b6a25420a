"""Buffer's calls of the normal mode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, List, Optional, Sequence, Tuple, Union

import torch

from deep_ep._buffer_state import BufferState
from deep_ep._config import Config
from deep_ep._dispatch_layout import RANKS_PER_NODE, plan_dispatch_layout
from deep_ep._grad import without_grad
from deep_ep._normal import NormalMode, Received
from deep_ep._normal_checks import Batch
from deep_ep._normal_handle import Handle
from deep_ep._refusal import require
from deep_ep.utils.event import EventOverlap

Rows = Union[torch.Tensor, Tuple[torch.Tensor, torch.Tensor]]
Dispatched = Tuple[
    Rows,
    Optional[torch.Tensor],
    Optional[torch.Tensor],
    Optional[List[int]],
    Optional[Handle],
    EventOverlap,
]
Combined = Tuple[torch.Tensor, Optional[torch.Tensor], EventOverlap]


class NormalCalls(BufferState):
    if TYPE_CHECKING:  # Buffer has them, and programs replace them
        num_sms: int

        @staticmethod
        def get_dispatch_config(num_ranks: int) -> Config: ...

        @staticmethod
        def get_combine_config(num_ranks: int) -> Config: ...

    @without_grad
    def get_dispatch_layout(
        self,
        topk_idx: torch.Tensor,
        num_experts: int,
        previous_event: Optional[EventOverlap] = None,
        async_finish: bool = False,
        allocate_on_comm_stream: bool = False,
    ) -> Tuple[torch.Tensor, Optional[torch.Tensor], torch.Tensor, torch.Tensor, EventOverlap]:
        """Counts of the batch, local: int32 [R], int32 [R / 8] or None up to 8 ranks, int32 [E], bool
        [T, R], event.
        """
        flags = (previous_event, async_finish, allocate_on_comm_stream)
        with self._passage("get_dispatch_layout", topk_idx, *flags) as passage:
            layout = plan_dispatch_layout(topk_idx, num_experts, self.group_size)
            return (*layout, passage.finish([topk_idx], layout))

    def dispatch(
        self,
        x: Rows,
        handle: Optional[Handle] = None,
        num_tokens_per_rank: Optional[torch.Tensor] = None,
        num_tokens_per_rdma_rank: Optional[torch.Tensor] = None,
        is_token_in_rank: Optional[torch.Tensor] = None,
        num_tokens_per_expert: Optional[torch.Tensor] = None,
        topk_idx: Optional[torch.Tensor] = None,
        topk_weights: Optional[torch.Tensor] = None,
        expert_alignment: int = 1,
        num_worst_tokens: int = 0,
        config: Optional[Config] = None,
        previous_event: Optional[EventOverlap] = None,
        async_finish: bool = False,
        allocate_on_comm_stream: bool = False,
    ) -> Dispatched:
        """Collective. One row per (token, rank), sorted by source rank and source token.

        x: [T, H], or (x, scales [T, any] of float32 or int32). Returns rows [n, H] (with scales where
        they were given), local expert ids [n, K] with -1 elsewhere, weights [n, K] with 0 elsewhere,
        the rows of each local expert rounded up to ``expert_alignment`` (a list of int), the handle,
        the event. With ``handle`` only rows (and scales) move, along its route. With
        ``num_worst_tokens`` there are that many rows, the list is empty and the host does not wait.
        """
        arguments = (
            num_tokens_per_rank, is_token_in_rank, num_tokens_per_expert, topk_idx, topk_weights,
            expert_alignment, num_worst_tokens, self.group_size > RANKS_PER_NODE,
        )  # fmt: skip
        flags = (previous_event, async_finish, allocate_on_comm_stream)
        return self._dispatch(x, handle, arguments, config, flags)

    def internode_dispatch(
        self,
        x: Rows,
        handle: Optional[Handle] = None,
        num_tokens_per_rank: Optional[torch.Tensor] = None,
        num_tokens_per_rdma_rank: Optional[torch.Tensor] = None,
        is_token_in_rank: Optional[torch.Tensor] = None,
        num_tokens_per_expert: Optional[torch.Tensor] = None,
        topk_idx: Optional[torch.Tensor] = None,
        topk_weights: Optional[torch.Tensor] = None,
        expert_alignment: int = 1,
        num_worst_tokens: int = 0,
        config: Optional[Config] = None,
        previous_event: Optional[EventOverlap] = None,
        async_finish: bool = False,
        allocate_on_comm_stream: bool = False,
    ) -> Dispatched:
        """dispatch() whose handle has the ten tensors of several nodes, for any number of ranks."""
        arguments = (
            num_tokens_per_rank, is_token_in_rank, num_tokens_per_expert, topk_idx, topk_weights,
            expert_alignment, num_worst_tokens, True,
        )  # fmt: skip
        flags = (previous_event, async_finish, allocate_on_comm_stream)
        return self._dispatch(x, handle, arguments, config, flags)

    @without_grad
    def combine(
        self,
        x: torch.Tensor,
        handle: Handle,
        topk_weights: Optional[torch.Tensor] = None,
        bias: Union[torch.Tensor, Sequence[torch.Tensor], None] = None,
        config: Optional[Config] = None,
        previous_event: Optional[EventOverlap] = None,
        async_finish: bool = False,
        allocate_on_comm_stream: bool = False,
    ) -> Combined:
        """Collective. [T, H] sums of each token's rows x [n, H] by ascending rank, biases first;
        ``topk_weights`` [n, K] are summed column by column into [T, K].
        """
        num_sms = self._choose_config(config, self.get_combine_config).num_sms
        biases = _as_biases(bias)
        flags = (previous_event, async_finish, allocate_on_comm_stream)
        with self._passage("combine", x, *flags) as passage:
            self._require_same_device("combine", topk_weights, *biases)
            out, weights = self._mode().combine(x, handle, topk_weights, biases, num_sms)
            event = passage.finish([x, topk_weights, biases, handle], [out, weights])
            return out, weights, event

    def internode_combine(self, *arguments: Any, **named: Any) -> Combined:
        """combine(), which takes handles of either kind."""
        return self.combine(*arguments, **named)

    # ---- parts of the above -----------------------------------------------------------------------

    @without_grad
    def _dispatch(
        self,
        x: Rows,
        handle: Optional[Handle],
        arguments: Tuple[Any, ...],
        config: Optional[Config],
        flags: Tuple[Any, ...],
    ) -> Dispatched:
        num_sms = self._choose_config(config, self.get_dispatch_config).num_sms
        rows, scales = x if isinstance(x, (tuple, list)) else (x, None)
        with self._passage("dispatch", rows, *flags) as passage:
            self._require_same_device("dispatch", scales)
            if handle is not None:
                require(
                    arguments[3] is None and arguments[4] is None,
                    "topk_idx and topk_weights are not given together with a handle",
                )
                received = self._mode().dispatch_again(rows, scales, handle, num_sms)
            else:
                self._require_same_device("dispatch", *arguments[:5])
                received = self._mode().dispatch(_as_batch(rows, scales, arguments), num_sms)
            return _as_returned(received, passage.finish([rows, scales, arguments, handle], received))

    def _mode(self) -> NormalMode:
        if self._normal is None:
            self._normal = NormalMode(self._normal_exchange(), self.rank, self.group_size)
        return self._normal

    def _choose_config(self, config: Optional[Config], tuned: Callable[[int], Config]) -> Config:
        if config is not None:
            require(isinstance(config, Config), f"config is a {type(config).__name__}")
            return config
        try:
            return tuned(self.group_size)
        except AssertionError:  # not in DeepEP's table, which has chunk sizes only
            return Config(self.num_sms)

    def _require_same_device(self, call: str, *tensors: Optional[torch.Tensor]) -> None:
        for tensor in tensors:
            if tensor is not None:
                self._require_device(call, tensor)


def _as_batch(
    rows: torch.Tensor, scales: Optional[torch.Tensor], arguments: Tuple[Any, ...]
) -> Batch:
    for name, value in zip(
        ("num_tokens_per_rank", "is_token_in_rank", "num_tokens_per_expert"), arguments
    ):
        require(value is not None, f"{name} is needed by a dispatch without a handle")
    per_rank, member, per_expert, *rest = arguments
    return Batch(rows, scales, per_rank, per_expert, member, *rest)


def _as_returned(received: Received, event: EventOverlap) -> Dispatched:
    rows = received.x if received.scales is None else (received.x, received.scales)
    return (
        rows,
        received.topk_idx,
        received.topk_weights,
        received.num_tokens_per_expert,
        received.handle,
        event,
    )


def _as_biases(bias: Any) -> Tuple[torch.Tensor, ...]:
    if bias is None:
        return ()
    if isinstance(bias, torch.Tensor):
        return (bias,)
    require(
        isinstance(bias, (tuple, list)) and len(bias) == 2,
        "bias is one tensor or a tuple of exactly two",
    )
    return tuple(bias)
