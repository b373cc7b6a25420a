"""What programs ask ``buffer.runtime``; there while the buffer lives, None afterwards."""

from __future__ import annotations

import torch

from deep_ep._dispatch_layout import RANKS_PER_NODE


class Runtime:
    def __init__(self, rank: int, num_ranks: int) -> None:
        self._rank = rank
        self._num_ranks = num_ranks

    def is_available(self) -> bool:
        return True

    def get_num_rdma_ranks(self) -> int:
        """Nodes of eight ranks, as DeepEP counts them."""
        return -(-self._num_ranks // RANKS_PER_NODE)

    def get_rdma_rank(self) -> int:
        return self._rank // RANKS_PER_NODE

    def get_root_rdma_rank(self, is_global: bool) -> int:
        """The rank that would make a network id: of the group, or of this rank's slot in its node."""
        return self._rank % RANKS_PER_NODE if is_global else 0

    def get_local_device_id(self) -> int:
        """The current CUDA device; -1 where there is none."""
        return int(torch.cuda.current_device()) if torch.cuda.is_available() else -1
