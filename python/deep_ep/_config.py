"""``Config`` and the sizes and tables that DeepEP publishes.

FerryEP writes every row once, at its final place: there are no chunks and no rings, so a Config
changes nothing about how rows move. Its rules and the sizes that follow from it are DeepEP's, because
programs compare buffers by them.
"""

from __future__ import annotations

from typing import Mapping, Tuple

from deep_ep._refusal import require

_NVL_PEERS = 8  # ranks of a node, as DeepEP counts them
_BYTE_MULTIPLE = 128
_MOST_TOPK = 128  # DeepEP's sizes leave room for this many selections and scales per row
_MOST_SCALES = 128
_TOPK_IDX_BYTES = 8
_FLOAT_BYTES = 4
_SOURCE_META_BYTES = 8

# Tuned chunk sizes by the number of ranks: nvl send, nvl receive, rdma send, rdma receive.
_DISPATCH_CHUNKS = {
    2: (24, 256, 6, 128),
    4: (6, 256, 6, 128),
    8: (6, 256, 6, 128),
    16: (36, 288, 20, 128),
    **dict.fromkeys((24, 32, 48, 64), (32, 288, 8, 128)),
    96: (20, 480, 12, 128),
    128: (20, 560, 12, 128),
    144: (32, 720, 12, 128),
    160: (28, 720, 12, 128),
}
_COMBINE_CHUNKS = {
    2: (10, 256, 6, 128),
    4: (9, 256, 6, 128),
    8: (4, 256, 6, 128),
    16: (4, 288, 12, 128),
    **dict.fromkeys((24, 32, 48, 64), (1, 288, 8, 128)),
    96: (1, 480, 8, 128),
    128: (1, 560, 8, 128),
    144: (2, 720, 8, 128),
    160: (2, 720, 8, 128),
}


def _align(value: int, multiple: int) -> int:
    return (value + multiple - 1) // multiple * multiple


class Config:
    """SMs and chunk sizes of a normal dispatch or combine. Chunk sizes have no effect here."""

    def __init__(
        self,
        num_sms: int = 20,
        num_max_nvl_chunked_send_tokens: int = 6,
        num_max_nvl_chunked_recv_tokens: int = 256,
        num_max_rdma_chunked_send_tokens: int = 6,
        num_max_rdma_chunked_recv_tokens: int = 256,
    ) -> None:
        nvl_send, nvl_recv = num_max_nvl_chunked_send_tokens, num_max_nvl_chunked_recv_tokens
        rdma_send, rdma_recv = num_max_rdma_chunked_send_tokens, num_max_rdma_chunked_recv_tokens
        require(num_sms >= 0, f"Config: num_sms is {num_sms}, expected at least 0")
        for name, value in (
            ("num_max_nvl_chunked_send_tokens", nvl_send),
            ("num_max_nvl_chunked_recv_tokens", nvl_recv),
            ("num_max_rdma_chunked_send_tokens", rdma_send),
            ("num_max_rdma_chunked_recv_tokens", rdma_recv),
        ):
            require(value > 0, f"Config: {name} is {value}, expected at least 1")
        require(
            nvl_send < nvl_recv,
            f"Config: nvl chunks of {nvl_send} sent tokens do not fit below {nvl_recv} received ones",
        )
        require(
            rdma_send < rdma_recv,
            f"Config: rdma chunks of {rdma_send} sent tokens do not fit below {rdma_recv} "
            "received ones",
        )
        rdma_recv = _align(rdma_recv, rdma_send)
        require(
            rdma_send <= rdma_recv // 2,
            f"Config: rdma chunks of {rdma_send} sent tokens are more than half of {rdma_recv} "
            "received ones",
        )
        self.num_sms = num_sms
        self.num_max_nvl_chunked_send_tokens = nvl_send
        self.num_max_nvl_chunked_recv_tokens = nvl_recv
        self.num_max_rdma_chunked_send_tokens = rdma_send
        self.num_max_rdma_chunked_recv_tokens = rdma_recv

    def get_nvl_buffer_size_hint(self, hidden_bytes: int, num_ranks: int) -> int:
        """DeepEP's number of NVLink buffer bytes for rows of ``hidden_bytes``."""
        num_nodes = self._num_nodes(num_ranks)
        queues = self._num_channels() * min(num_ranks, _NVL_PEERS)
        row_bytes = hidden_bytes + _SOURCE_META_BYTES + _meta_bytes()
        counters = queues * (2 * num_nodes + 3) * 4
        return _align(
            counters + queues * self.num_max_nvl_chunked_recv_tokens * row_bytes, _BYTE_MULTIPLE
        )

    def get_rdma_buffer_size_hint(self, hidden_bytes: int, num_ranks: int) -> int:
        """DeepEP's number of RDMA buffer bytes for rows of ``hidden_bytes``; 0 within one node."""
        num_nodes = self._num_nodes(num_ranks)
        if num_ranks <= _NVL_PEERS:
            return 0
        row_bytes = hidden_bytes + _SOURCE_META_BYTES + _meta_bytes() + 16
        queue_bytes = (2 * _NVL_PEERS + 2) * 4 + self.num_max_rdma_chunked_recv_tokens * row_bytes
        return _align(2 * self._num_channels() * num_nodes * queue_bytes, _BYTE_MULTIPLE)

    def _num_channels(self) -> int:
        require(self.num_sms % 2 == 0, f"Config: num_sms is {self.num_sms}, expected an even number")
        return self.num_sms // 2

    def _num_nodes(self, num_ranks: int) -> int:
        require(
            0 < num_ranks < _NVL_PEERS or (num_ranks > 0 and num_ranks % _NVL_PEERS == 0),
            f"{num_ranks} ranks, expected fewer than {_NVL_PEERS} or a multiple of it",
        )
        return max(num_ranks // _NVL_PEERS, 1)


def _meta_bytes() -> int:
    return _MOST_TOPK * (_TOPK_IDX_BYTES + _FLOAT_BYTES) + _MOST_SCALES * _FLOAT_BYTES


def _tuned_config(table: Mapping[int, Tuple[int, ...]], num_sms: int, num_ranks: int) -> Config:
    require(num_ranks in table, f"Unsupported number of EP ranks: {num_ranks}")
    return Config(num_sms, *table[num_ranks])


def tuned_dispatch_config(num_sms: int, num_ranks: int) -> Config:
    return _tuned_config(_DISPATCH_CHUNKS, num_sms, num_ranks)


def tuned_combine_config(num_sms: int, num_ranks: int) -> Config:
    return _tuned_config(_COMBINE_CHUNKS, num_sms, num_ranks)


def low_latency_size_hint(
    num_max_dispatch_tokens_per_rank: int, hidden: int, num_ranks: int, num_experts: int
) -> int:
    """DeepEP's number of RDMA buffer bytes for low latency."""
    require(
        num_ranks > 0 and num_experts > 0 and num_experts % num_ranks == 0,
        f"{num_experts} experts over {num_ranks} ranks, expected a multiple",
    )
    max_tokens = num_max_dispatch_tokens_per_rank
    scale_bytes = hidden // 128 * _FLOAT_BYTES
    dispatch_message = 16 + max(2 * hidden, hidden + scale_bytes)
    combine_message = 2 * hidden + scale_bytes
    send = max(max_tokens * dispatch_message, num_experts * max_tokens * combine_message)
    recv = num_experts * max_tokens * max(dispatch_message, combine_message)
    signals = _align(num_experts * 4, _BYTE_MULTIPLE)
    total = 2 * (send + recv + signals)
    return (total + _BYTE_MULTIPLE) // _BYTE_MULTIPLE * _BYTE_MULTIPLE
