"""A buffer's ranks, device, streams and lifetime."""

from __future__ import annotations

import contextlib
import os
import threading
import warnings
from typing import Any, Dict, Iterator, Optional

import torch

from deep_ep._low_latency import LowLatencyMode
from deep_ep._meeting import meet
from deep_ep._normal import NormalMode
from deep_ep._normal_exchange import NormalExchange
from deep_ep._peer_mask import PeerMask
from deep_ep._refusal import require
from deep_ep._runtime import Runtime
from deep_ep._streams import Passage

_BYTE_MULTIPLE = 128
_MOST_BYTES = 2**31 - 1
_MOST_NORMAL_RANKS = 160
_RANKS_PER_NODE = 8


class BufferState:
    def __init__(
        self,
        group: Any = None,
        num_nvl_bytes: int = 0,
        num_rdma_bytes: int = 0,
        low_latency_mode: bool = False,
        num_qps_per_rank: float = 24,
        allow_nvlink_for_low_latency_mode: bool = True,
        allow_mnnvl: bool = False,
        use_fabric: bool = False,
        explicitly_destroy: bool = False,
        enable_shrink: bool = False,
        comm: Any = None,
        rank: Optional[int] = None,
        group_size: Optional[int] = None,
    ) -> None:
        """Collective where the ranks have not met before.

        The ranks are those of a torch process group of any backend, of an mpi4py communicator
        ``comm``, or ``rank`` of ``group_size``, which meet at the environment's address (MASTER_ADDR
        and MASTER_PORT, FERRY_ADDRESS, or a launcher's variables). docs/deepep.md says what each
        argument does.
        """
        self.runtime: Optional[Runtime] = None
        self.explicitly_destroy = explicitly_destroy
        _check_bytes("num_nvl_bytes", num_nvl_bytes, num_rdma_bytes == 0)
        _check_bytes("num_rdma_bytes", num_rdma_bytes, low_latency_mode)
        require(num_qps_per_rank > 0, f"num_qps_per_rank is {num_qps_per_rank}, expected above 0")
        self._ferry_group = meet(group, comm, rank, group_size)
        self.group = comm if group is None else group
        self.rank: int = self._ferry_group.rank
        self.group_size: int = self._ferry_group.size
        require(
            self.group_size <= _MOST_NORMAL_RANKS or low_latency_mode,
            f"Unsupported number of EP ranks: {self.group_size}",
        )
        require(
            self.group_size < _RANKS_PER_NODE or self.group_size % _RANKS_PER_NODE == 0,
            f"Unsupported number of EP ranks: {self.group_size}, expected fewer than "
            f"{_RANKS_PER_NODE} or a multiple of it",
        )
        self.num_nvl_bytes = num_nvl_bytes
        self.num_rdma_bytes = num_rdma_bytes
        self.low_latency_mode = low_latency_mode
        self.enable_shrink = enable_shrink
        self.nvshmem_qp_depth = int(os.environ.get("NVSHMEM_QP_DEPTH", "1024"))
        self._lock = threading.RLock()  # programs drive one buffer from two threads
        self._device: Optional[torch.device] = None
        self._comm_stream: Any = None
        self._exchange: Optional[NormalExchange] = None
        self._normal: Optional[NormalMode] = None
        self._low_latency: Optional[LowLatencyMode] = None
        self._peer_mask: Optional[PeerMask] = None
        self._raw_memory: Dict[bool, torch.Tensor] = {}
        self.runtime = Runtime(self.rank, self.group_size)

    def destroy(self) -> None:
        """Ends the buffer: local, never waits for a peer. The group and its other buffers live on."""
        require(self.explicitly_destroy, "destroy needs explicitly_destroy=True at construction")
        require(self.runtime is not None, "destroy: the buffer is destroyed already")
        self._release()

    def __del__(self) -> None:
        if getattr(self, "runtime", None) is None:
            return
        with contextlib.suppress(Exception):  # the interpreter may be half gone
            if self.explicitly_destroy:
                warnings.warn(
                    "a deep_ep.Buffer with explicitly_destroy=True was not destroyed",
                    ResourceWarning,
                    stacklevel=2,
                )
            self._release()

    def get_comm_stream(self) -> "torch.cuda.Stream":
        """The stream of asynchronous calls."""
        if self._comm_stream is None:
            self._comm_stream = torch.cuda.Stream(priority=-1)
        return self._comm_stream

    def get_local_buffer_tensor(
        self,
        dtype: torch.dtype,
        size: Optional[torch.Size] = None,
        offset: int = 0,
        use_rdma_buffer: bool = False,
    ) -> torch.Tensor:
        """``num_nvl_bytes`` or ``num_rdma_bytes`` of memory from byte ``offset`` on, made when first
        asked for. Nothing else uses it: writing there, zeroes too, changes nothing.
        """
        self._require_alive("get_local_buffer_tensor")
        num_bytes = self.num_rdma_bytes if use_rdma_buffer else self.num_nvl_bytes
        element_bytes = torch.empty((0,), dtype=dtype, device="cpu").element_size()
        require(
            0 <= offset <= num_bytes and offset % element_bytes == 0,
            f"offset is {offset}, expected a multiple of {element_bytes} up to {num_bytes} bytes",
        )
        if use_rdma_buffer not in self._raw_memory:
            self._raw_memory[use_rdma_buffer] = torch.zeros(
                (num_bytes,), dtype=torch.uint8, device=self._device or likely_device()
            )
        rest = self._raw_memory[use_rdma_buffer][offset:]
        view = rest[: rest.numel() // element_bytes * element_bytes].view(dtype)
        if size is None:
            return view
        shape = torch.Size(size)
        require(
            shape.numel() <= view.numel(),
            f"size is {list(shape)}, the buffer has {view.numel()} elements from there on",
        )
        return view[: shape.numel()].view(shape)

    # ---- for the calls ----------------------------------------------------------------------------

    @contextlib.contextmanager
    def _passage(self, call: str, tensor: torch.Tensor, *flags: Any) -> Iterator[Passage]:
        """A call's way through the streams, alone on the buffer."""
        with self._lock:
            self._require_alive(call)
            self._require_device(call, tensor)
            with Passage(tensor.device, self.get_comm_stream, *flags) as passage:
                yield passage

    def _require_alive(self, call: str) -> None:
        require(self.runtime is not None, f"{call}: the buffer is destroyed")

    def _require_device(self, call: str, tensor: torch.Tensor) -> None:
        require(isinstance(tensor, torch.Tensor), f"{call}: got a {type(tensor).__name__}")
        if self._device is None:
            require(
                tensor.device.type in ("cpu", "cuda"),
                f"{call}: the tensor lies on {tensor.device}, expected cpu or cuda",
            )
            self._device = tensor.device
        require(
            tensor.device == self._device,
            f"{call}: the tensor lies on {tensor.device}, this buffer works on {self._device}",
        )

    def _normal_exchange(self) -> NormalExchange:
        if self._exchange is None:
            assert self._device is not None
            self._exchange = NormalExchange(self._ferry_group, self._device)
        return self._exchange

    def _release(self) -> None:
        self.runtime = None
        for part in (self._normal, self._exchange, self._low_latency):
            if part is not None:
                part.destroy()
        self._normal = self._exchange = self._low_latency = self._peer_mask = None
        self._raw_memory.clear()


def _check_bytes(name: str, num_bytes: int, is_large_allowed: bool) -> None:
    require(
        num_bytes >= 0 and num_bytes % _BYTE_MULTIPLE == 0,
        f"{name} is {num_bytes}, expected a multiple of {_BYTE_MULTIPLE}",
    )
    require(
        num_bytes <= _MOST_BYTES or is_large_allowed,
        f"{name} is {num_bytes}, expected at most {_MOST_BYTES}",
    )


def likely_device() -> torch.device:
    """Where tensors of the first call will probably lie."""
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")
