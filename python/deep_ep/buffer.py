"""``Buffer``: DeepEP's first interface, on FerryEP."""

from __future__ import annotations

import torch

from deep_ep import _config
from deep_ep._config import Config
from deep_ep._low_latency_calls import LowLatencyCalls
from deep_ep._normal_calls import NormalCalls
from deep_ep._refusal import require
from deep_ep.utils.event import EventHandle, EventOverlap


class Buffer(NormalCalls, LowLatencyCalls):
    """Dispatch and combine of tokens over the ranks of a group.

    Every rank makes the same calls in the same order. Tensors lie on the GPU or on the CPU; the first
    call decides. Sizes in bytes are accepted and remembered; memory is taken when shapes are first
    seen, and follows them.

    Letters in shapes: T tokens of this rank, H hidden, K top-k, E experts, R ranks, E_l experts of a
    rank, n rows that this rank receives, Tm ``num_max_dispatch_tokens_per_rank``.
    """

    num_sms: int = 20

    @staticmethod
    def is_sm90_compiled() -> bool:
        """Whether fp8 rows can be moved: always, where this torch has the type."""
        return hasattr(torch, "float8_e4m3fn")

    @staticmethod
    def set_num_sms(new_num_sms: int) -> None:
        """SMs that exchanges made from now on may use; an even number."""
        require(
            new_num_sms >= 0 and new_num_sms % 2 == 0,
            f"num_sms is {new_num_sms}, expected an even number",
        )
        Buffer.num_sms = new_num_sms

    @staticmethod
    def capture() -> EventOverlap:
        """An event behind everything that the current stream holds now."""
        return EventOverlap(EventHandle())

    @staticmethod
    def get_low_latency_rdma_size_hint(
        num_max_dispatch_tokens_per_rank: int, hidden: int, num_ranks: int, num_experts: int
    ) -> int:
        return _config.low_latency_size_hint(
            num_max_dispatch_tokens_per_rank, hidden, num_ranks, num_experts
        )

    @staticmethod
    def get_dispatch_config(num_ranks: int) -> Config:
        """DeepEP's tuned configuration; raises for a number of ranks that its table has not."""
        return _config.tuned_dispatch_config(Buffer.num_sms, num_ranks)

    @staticmethod
    def get_combine_config(num_ranks: int) -> Config:
        return _config.tuned_combine_config(Buffer.num_sms, num_ranks)
