"""What an exchange gives back: routes, deliveries and pending operations."""

from __future__ import annotations

import ctypes
from typing import Any, Callable, Generic, List, Optional, Sequence, TypeVar

from . import _library
from ._config import Counters, read_counters
from ._core import Handle, Lease
from ._enums import DType, Layout, Sizing
from ._errors import InvalidArgumentError
from ._library import check, lib
from ._structs import TensorStruct
from ._tensor import Tensor
from ._tensors import Framework


class Route:
    """The plan of one batch, made from topk_idx; serves any number of dispatches and combines, also
    after later routes. Use after its exchange is destroyed raises.
    """

    __slots__ = ("_handle", "__weakref__")

    def __init__(self, handle: Handle) -> None:
        """Not for programs: routes come from Exchange.route."""
        self._handle = handle

    @property
    def num_tokens(self) -> int:
        """T of this rank."""
        return _library.read_i64(lib.ferry_route_num_tokens, self._handle.alive())

    @property
    def layout(self) -> Layout:
        return Layout(_library.read_i32(lib.ferry_route_layout, self._handle.alive()))

    @property
    def sizing(self) -> Sizing:
        return Sizing(_library.read_i32(lib.ferry_route_sizing, self._handle.alive()))

    @property
    def num_recv_rows(self) -> int:
        """Rows that this rank receives, gaps of by_expert included; exact sizing, else raises."""
        return _library.read_i64(lib.ferry_route_num_recv_rows, self._handle.alive())

    @property
    def expert_counts(self) -> List[int]:
        """Rows per local expert, [E_l]; exact sizing, else raises."""
        return _library.read_i64_array(lib.ferry_route_expert_counts, self._handle.alive())

    @property
    def aligned_expert_counts(self) -> List[int]:
        """The same rounded up to expert_alignment, [E_l]; exact sizing, else raises."""
        return _library.read_i64_array(lib.ferry_route_aligned_expert_counts, self._handle.alive())

    @property
    def tokens_from_rank(self) -> List[int]:
        """Tokens that each source rank sends here, each once, [R]; exact sizing, else raises."""
        return _library.read_i64_array(lib.ferry_route_tokens_from_rank, self._handle.alive())

    def counters(self) -> Counters:
        return read_counters(lib.ferry_route_counters, self._handle.alive(),
                             self._handle.core.num_ranks, check)


class Delivery:
    """What a dispatch delivered, in tensors of x's framework.

    The memory is the exchange's ring of three, or the caller's outputs. The fourth dispatch after
    reuses the oldest memory of the ring unless an earlier delivery, with every tensor taken from it,
    is gone; from then on taking a tensor raises, and tensors taken before show the new contents.
    Copy what must stay, or give outputs.
    """

    __slots__ = ("_handle", "_framework", "_outputs", "__weakref__")

    def __init__(self, handle: Handle, framework: Framework, outputs: Any) -> None:
        """Not for programs: deliveries come from Exchange.dispatch."""
        self._handle = handle
        self._framework = framework
        self._outputs = outputs  # the caller's tensors: alive as long as this is

    def _view(self, function: Any) -> Any:
        struct = TensorStruct()
        check(function(self._handle.alive(), ctypes.byref(struct)))
        if struct.num_dims == 0:
            return None
        core, n = self._handle.core, struct.num_dims
        lease = Lease(core.arena, (self._handle, self._outputs))
        return self._framework.view(Tensor(struct.data or 0, DType(struct.dtype), struct.shape[:n],
                                           struct.strides[:n], core.device, lease))

    @property
    def tokens(self) -> Any:
        """[n, H]; padded: [E_l, R*max_tokens, H]."""
        return self._view(lib.ferry_delivery_tokens)

    @property
    def scales(self) -> Any:
        """[n, S]; padded: [E_l, R*max_tokens, S]; None where there are none."""
        return self._view(lib.ferry_delivery_scales)

    @property
    def topk_idx(self) -> Any:
        """by_rank: [n, K] local expert ids, -1 where column k's expert lives elsewhere and in unused
        rows; else None.
        """
        return self._view(lib.ferry_delivery_topk_idx)

    @property
    def topk_weights(self) -> Any:
        """float32. by_rank: [n, K], 0 where topk_idx is -1; by_expert: [n]; padded:
        [E_l, R*max_tokens]; None where none were dispatched.
        """
        return self._view(lib.ferry_delivery_topk_weights)

    @property
    def row_source(self) -> Any:
        """int32 [n, 2]: source token and slot; padded: [E_l, R*max_tokens, 2]. Undefined in gaps."""
        return self._view(lib.ferry_delivery_row_source)

    @property
    def row_expert(self) -> Any:
        """int32 [n]: local expert, -1 in gaps; None in by_rank."""
        return self._view(lib.ferry_delivery_row_expert)

    @property
    def num_rows(self) -> Any:
        """int64 [1], gaps included."""
        return self._view(lib.ferry_delivery_num_rows)

    @property
    def expert_counts(self) -> Any:
        """int64 [E_l], real."""
        return self._view(lib.ferry_delivery_expert_counts)

    @property
    def aligned_expert_counts(self) -> Any:
        """int64 [E_l], rounded up to expert_alignment."""
        return self._view(lib.ferry_delivery_aligned_expert_counts)

    @property
    def expert_offsets(self) -> Any:
        """int64 [E_l + 1]: first row of each expert."""
        return self._view(lib.ferry_delivery_expert_offsets)

    @property
    def source_offsets(self) -> Any:
        """int64 [R + 1]: first row of each source rank; by_rank, else None."""
        return self._view(lib.ferry_delivery_source_offsets)

    def release(self) -> None:
        """Makes room in the ring of three once every tensor taken from this is gone as well."""
        self._handle = self._handle.given_back()


T = TypeVar("T")


class Pending(Generic[T]):
    """An operation between begin and finish. Its inputs must not change and its outputs must not be
    read until finish() has returned; it keeps both alive. At most three are outstanding on one
    exchange; finish in any order. One that is dropped unfinished is finished by the next operation.
    """

    __slots__ = ("_handle", "_finish", "_tensors", "__weakref__")

    def __init__(self, handle: Handle, finish: Callable[[int], T], tensors: Sequence[Any]) -> None:
        """Not for programs: pendings come from Exchange.begin_*."""
        self._handle: Optional[Handle] = handle
        self._finish = finish
        self._tensors = tensors

    def finish(self) -> T:
        """Blocks until the operation is complete on this rank and gives its result, once. Raises
        what the operation raises.
        """
        handle = self._handle
        if handle is None:
            raise InvalidArgumentError("a pending operation is finished twice")
        with handle.core.lock:
            result = self._finish(handle.alive())
        self._handle = None
        self._tensors = ()
        handle.release()
        return result

    def __del__(self) -> None:
        handle = getattr(self, "_handle", None)
        if handle is not None:
            handle.core.abandoned.append(self._tensors)
            handle.release()
