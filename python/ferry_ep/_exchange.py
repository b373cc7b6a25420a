"""Dispatch and combine over one group with one configuration."""

from __future__ import annotations

import ctypes
import dataclasses
import sys
from ctypes import byref, c_void_p
from types import TracebackType
from typing import Any, Dict, Optional, Sequence, Tuple, Type, Union

from . import _library
from ._config import (Counters, ExchangeConfig, MemoryNeed, _dtype_name, from_struct, read_counters,
                      to_struct)
from ._core import Arena, Core, Handle, Lease
from ._device import retain_for_stream, to_stream
from ._enums import (CombineForm, DeviceKind, DType, Gaps, Layout, Quantize, ScaleLayout, Sizing, to_enum)
from ._errors import InvalidArgumentError
from ._group import Group
from ._library import check, lib
from ._options import (DeliveryOutputs, combine_options, dispatch_options, given_tensors,
                       to_outputs)
from ._results import Delivery, Pending, Route
from ._structs import ExchangeConfigStruct, MemoryNeedStruct, RouteOptionsStruct
from ._tensor import Tensor, dense_strides
from ._tensors import (TORCH, Framework, framework_named, framework_of, packed_dtype, to_packed,
                       to_packed_output)


class Exchange:
    """Dispatch and combine over one group with one configuration.

    All operations form one sequence: every rank issues the same operations in the same order.
    Invalid input is refused on every rank with the same error before anything moves, and the group
    lives. A fault (PeerLostError, TimeoutError) is sticky.

    CPU: a call blocks until its outputs are complete. CUDA: a call enqueues on `stream` (a number or
    a stream object; not given: the caller's current stream) and returns; only route() in exact
    sizing and set_owner_map() wait for the device. Tensors: torch, NumPy, CuPy, DLPack,
    __cuda_array_interface__ or CPU buffers, never copied; rows may be strided, the row itself is
    dense. Results are tensors of the input's framework.

    Letters in shapes: T tokens on this rank, H hidden, K top_k, E experts, R ranks, E_l local
    experts, n rows that this rank receives, S scales per row.
    """

    def __init__(self, group: Group, config: Optional[ExchangeConfig] = None, **fields: Any) -> None:
        """Collective. Takes an ExchangeConfig, or its fields by name.

        Raises InvalidArgumentError naming the field for a configuration that is illegal or differs
        between ranks, NoResourceError with need, available and limit where memory is short.
        """
        config = _make_config(config, fields)
        handle = c_void_p()
        check(lib.ferry_exchange_create(group._alive(), byref(to_struct(config)), byref(handle)))
        self._core = Core(Arena(handle.value or 0), group.size, config.device)
        self._group = group

    @staticmethod
    def bytes_needed(config: Optional[ExchangeConfig] = None, num_ranks: int = 1,
                     **fields: Any) -> MemoryNeed:
        """Needs per rank for a group of `num_ranks` on one node, without allocating."""
        need = MemoryNeedStruct()
        struct = to_struct(_make_config(config, fields))
        check(lib.ferry_exchange_bytes_needed(byref(struct), num_ranks, byref(need)))
        return MemoryNeed(need.arena_virtual_bytes, need.delivery_bytes, need.staging_bytes,
                          need.control_bytes)

    # ---- routes ----------------------------------------------------------------------------------

    def route(self, topk_idx: Any, *, layout: Union[Layout, str, None] = None,
              sizing: Union[Sizing, str] = Sizing.EXACT, timeout_ms: int = 0,
              stream: Any = None) -> Route:
        """Collective. topk_idx: [T, K] int32 or int64, -1 is "none"; copied, it may change
        afterwards. Blocks for the counts in exact sizing.
        """
        arguments = self._route_arguments(topk_idx, layout, sizing, timeout_ms, stream)
        return self._new_route(self._begin(lib.ferry_exchange_route, *arguments))

    def begin_route(self, topk_idx: Any, *, layout: Union[Layout, str, None] = None,
                    sizing: Union[Sizing, str] = Sizing.EXACT, timeout_ms: int = 0,
                    stream: Any = None) -> Pending[Route]:
        arguments = self._route_arguments(topk_idx, layout, sizing, timeout_ms, stream)
        handle = self._begin(lib.ferry_exchange_begin_route, *arguments)

        def finish(pending: int) -> Route:
            out = c_void_p()
            check(lib.ferry_pending_route_finish(pending, byref(out)))
            return self._new_route(out.value or 0)

        return Pending(Handle(self._core, handle, lib.ferry_pending_route_free), finish, (topk_idx,))

    def _route_arguments(self, topk_idx: Any, layout: Union[Layout, str, None],
                         sizing: Union[Sizing, str], timeout_ms: int, stream: Any) -> Tuple[Any, ...]:
        options = RouteOptionsStruct(sizing=to_enum(Sizing, "sizing", sizing), timeout_ms=timeout_ms)
        if layout is not None:
            options.has_layout = 1
            options.layout = to_enum(Layout, "layout", layout)
        retain_for_stream(topk_idx, stream, self._core.device)
        return to_packed("topk_idx", topk_idx), byref(options), self._stream(stream)

    def _new_route(self, handle: int) -> Route:
        return Route(Handle(self._core, handle, lib.ferry_route_free))

    # ---- dispatch --------------------------------------------------------------------------------

    def dispatch(self, route: Route, x: Any, *, topk_weights: Any = None, scales: Any = None,
                 quantize: Union[Quantize, str] = Quantize.NONE,
                 scale_layout: Union[ScaleLayout, str] = ScaleLayout.ROW_MAJOR,
                 gaps: Union[Gaps, str] = Gaps.UNDEFINED, scale_by_weights: bool = False,
                 outputs: Optional[DeliveryOutputs] = None, timeout_ms: int = 0,
                 stream: Any = None) -> Delivery:
        """Collective. Moves the rows of x along the route.

        x: [T, H]. topk_weights: [T, K] float32, delivered beside the rows. scales: [T, S] of any
        1, 2 or 4-byte dtype and any strides, moved as they are. quantize: bf16 rows become fp8 on
        the way. scale_by_weights: delivers round(weight * x) for the row's own weight; needs one row
        per expert.
        """
        options = dispatch_options(topk_weights, scales, quantize, scale_layout, gaps,
                                   scale_by_weights, outputs, timeout_ms)
        self._retain(stream, x, topk_weights, scales, *given_tensors(outputs))
        handle = self._begin(lib.ferry_exchange_dispatch, route._handle.alive(), to_packed("x", x),
                             options, self._stream(stream))
        return Delivery(Handle(self._core, handle, lib.ferry_delivery_free), framework_of(x), outputs)

    def begin_dispatch(self, route: Route, x: Any, *, topk_weights: Any = None, scales: Any = None,
                       quantize: Union[Quantize, str] = Quantize.NONE,
                       scale_layout: Union[ScaleLayout, str] = ScaleLayout.ROW_MAJOR,
                       gaps: Union[Gaps, str] = Gaps.UNDEFINED, scale_by_weights: bool = False,
                       outputs: Optional[DeliveryOutputs] = None, timeout_ms: int = 0,
                       stream: Any = None) -> Pending[Delivery]:
        """dispatch() in two parts; no compute unit is held between begin and finish."""
        options = dispatch_options(topk_weights, scales, quantize, scale_layout, gaps,
                                   scale_by_weights, outputs, timeout_ms)
        self._retain(stream, x, topk_weights, scales, *given_tensors(outputs))
        handle = self._begin(lib.ferry_exchange_begin_dispatch, route._handle.alive(),
                             to_packed("x", x), options, self._stream(stream))
        framework = framework_of(x)

        def finish(pending: int) -> Delivery:
            out = c_void_p()
            check(lib.ferry_pending_delivery_finish(pending, byref(out)))
            return Delivery(Handle(self._core, out.value or 0, lib.ferry_delivery_free), framework,
                            outputs)

        return Pending(Handle(self._core, handle, lib.ferry_pending_delivery_free), finish,
                       (route, x, topk_weights, scales, outputs))

    # ---- combine ---------------------------------------------------------------------------------

    def combine(self, route: Route, y: Any, out: Any = None, *, topk_weights: Any = None,
                bias: Any = None, second_bias: Any = None, row_weights: Any = None,
                combined_weights: Any = None, form: Union[CombineForm, str] = CombineForm.AUTO,
                timeout_ms: int = 0, stream: Any = None) -> Any:
        """Collective. out[t] = sum of the rows of token t; returns out, made where it is not given.

        y: the delivery's shape, bf16, fp16 or fp32. out: [T, H] of y's dtype, written. topk_weights:
        [T, K] float32, out[t] = sum over k of weight * row; needs one row per expert. bias and
        second_bias: [T, H], added first. row_weights (the delivery's shape, float32) are gathered
        into combined_weights [T, K], 0 where topk_idx is -1; given together.
        """
        if out is None:
            out = self._empty_like(y, route)
        options = combine_options(topk_weights, bias, second_bias, row_weights, combined_weights,
                                  form, timeout_ms)
        self._retain(stream, y, out, topk_weights, bias, second_bias, row_weights, combined_weights)
        self._call(lib.ferry_exchange_combine, route._handle.alive(), to_packed("y", y),
                   to_packed_output("out", out), options, self._stream(stream))
        return out

    def begin_combine(self, route: Route, y: Any, out: Any = None, *, topk_weights: Any = None,
                      bias: Any = None, second_bias: Any = None, row_weights: Any = None,
                      combined_weights: Any = None,
                      form: Union[CombineForm, str] = CombineForm.AUTO, timeout_ms: int = 0,
                      stream: Any = None) -> Pending[Any]:
        """combine() in two parts; finish() returns out."""
        if out is None:
            out = self._empty_like(y, route)
        options = combine_options(topk_weights, bias, second_bias, row_weights, combined_weights,
                                  form, timeout_ms)
        self._retain(stream, y, out, topk_weights, bias, second_bias, row_weights, combined_weights)
        handle = self._begin(lib.ferry_exchange_begin_combine, route._handle.alive(),
                             to_packed("y", y), to_packed_output("out", out), options,
                             self._stream(stream))

        def finish(pending: int) -> Any:
            check(lib.ferry_pending_combine_finish(pending))
            return out

        return Pending(Handle(self._core, handle, lib.ferry_pending_combine_free), finish,
                       (route, y, out, topk_weights, bias, second_bias, row_weights,
                        combined_weights))

    def combine_weights(self, route: Route, row_weights: Any, combined_weights: Any = None, *,
                        stream: Any = None) -> Any:
        """Collective; moves scalars only: the weights part of combine. Returns combined_weights,
        [T, K] float32, 0 where topk_idx is -1; made where it is not given.
        """
        if combined_weights is None:
            shape = (route.num_tokens, self.config.top_k)
            combined_weights = framework_of(row_weights).empty(shape, DType.FP32, self._core.device)
        self._retain(stream, row_weights, combined_weights)
        self._call(lib.ferry_exchange_combine_weights, route._handle.alive(),
                   to_packed("row_weights", row_weights),
                   to_packed_output("combined_weights", combined_weights), self._stream(stream))
        return combined_weights

    def _empty_like(self, y: Any, route: Route) -> Any:
        framework = framework_of(y)
        if framework is TORCH:
            return y.new_empty((route.num_tokens, y.shape[-1]))
        shape = getattr(y, "shape", None)
        if not shape:
            raise InvalidArgumentError("out is not given and y has no shape; try: give out")
        dtype = packed_dtype(to_packed("y", y))
        return framework.empty((route.num_tokens, shape[-1]), dtype, self._core.device)

    # ---- memory, owners, state -------------------------------------------------------------------

    def post(self, route: Route, outputs: DeliveryOutputs, *, stream: Any = None) -> None:
        """Names the outputs of the next dispatch on `route` early, so that peers are granted sooner.
        Local. The caller keeps the tensors alive until that dispatch's delivery.
        """
        self._call(lib.ferry_exchange_post, route._handle.alive(), byref(to_outputs(outputs)),
                   self._stream(stream))

    def set_owner_map(self, expert_owner: Sequence[int], *, stream: Any = None) -> None:
        """Collective: new owners of the experts, one rank each, for later routes; older routes keep
        their map.
        """
        owners = (ctypes.c_int32 * len(expert_owner))(*expert_owner)
        self._call(lib.ferry_exchange_set_owner_map, owners, len(expert_owner), self._stream(stream))

    def allocate(self, shape: Sequence[int], dtype: Any, *, framework: str = "",
                 stream: Any = None) -> Any:
        """A dense tensor in the arena, 256-byte aligned: memory that peers read and write directly,
        which makes combine pull and outputs arrive without staging. It is given back when the last
        tensor on it is gone. Local.

        framework: "torch", "numpy", "cupy" or "ferry_ep"; not given: torch, else NumPy, where one of
        them is imported. Raises NoResourceError with need, available and limit.
        """
        kind = to_enum(DType, "dtype", _dtype_name(dtype))
        num_bytes = kind.num_bytes
        for extent in shape:
            if extent < 0:
                raise InvalidArgumentError(f"allocate: an extent is {extent}, expected at least 0")
            num_bytes *= extent
        owner: Any = None
        if num_bytes:
            owner = self._allocate_block(num_bytes, stream)
        tensor = Tensor(owner.handle.value if owner else 0, kind, shape, dense_strides(shape),
                        self._core.device, owner)
        return _framework_for(framework).view(tensor)

    def allocate_bytes(self, num_bytes: int, *, stream: Any = None) -> int:
        """The address of arena memory; until deallocate() or destroy()."""
        out = c_void_p()
        self._call(lib.ferry_exchange_allocate, num_bytes, self._stream(stream), byref(out))
        return out.value or 0

    def deallocate(self, address: int, *, stream: Any = None) -> None:
        """Gives back what allocate_bytes() gave. 0 is accepted."""
        self._call(lib.ferry_exchange_deallocate, address or None, self._stream(stream))

    def _allocate_block(self, num_bytes: int, stream: Any) -> Lease:
        handle = self._stream(stream)
        address = self.allocate_bytes(num_bytes, stream=handle)
        core, arena = self._core, self._core.arena
        assert arena is not None
        native = arena.handle

        def free(block: int) -> None:
            if core.arena is not None:  # destroyed: the arena went, or goes, as a whole
                check(lib.ferry_exchange_deallocate(native, block, handle))

        return Lease(arena, Handle(core, address, free))

    def check(self) -> None:
        """Raises the exchange's sticky fault, if there is one, and what a device found in the input
        of an operation that is complete. Does not block.
        """
        check(lib.ferry_exchange_check(self._core.alive()))

    def counters(self) -> Counters:
        return read_counters(lib.ferry_exchange_counters, self._core.alive(), self._core.num_ranks,
                             check)

    @property
    def config(self) -> ExchangeConfig:
        """The configuration in force."""
        struct = ExchangeConfigStruct()
        check(lib.ferry_exchange_get_config(self._core.alive(), byref(struct)))
        return from_struct(struct)

    @property
    def group(self) -> Group:
        return self._group

    @property
    def num_local_experts(self) -> int:
        return _library.read_i32(lib.ferry_exchange_num_local_experts, self._core.alive())

    @property
    def is_destroyed(self) -> bool:
        return self._core.arena is None

    def destroy(self) -> None:
        """Ends the exchange: routes, deliveries and calls raise from here on. Local, idempotent,
        never waits for a peer. The memory goes at once, or with the last tensor on it.
        """
        self._core.destroy()

    def __enter__(self) -> Exchange:
        self._core.alive()
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.destroy()

    def __repr__(self) -> str:
        return f"ferry_ep.Exchange({'destroyed' if self.is_destroyed else self.config})"

    # ---- calls -----------------------------------------------------------------------------------

    def _stream(self, stream: Any) -> Optional[int]:
        device = self._core.device
        if device.kind is DeviceKind.CPU:
            return None
        return to_stream(stream, device)

    def _retain(self, stream: Any, *tensors: Any) -> None:
        if stream is not None:
            for tensor in tensors:
                retain_for_stream(tensor, stream, self._core.device)

    def _call(self, function: Any, *arguments: Any) -> None:
        core = self._core
        with core.lock:
            if core._dropped:
                core.collect()
            finished_by_this, core.abandoned = core.abandoned, []
            check(function(core.alive(), *arguments))
            del finished_by_this

    def _begin(self, function: Any, *arguments: Any) -> int:
        """A call that gives a handle."""
        out = c_void_p()
        self._call(function, *arguments, byref(out))
        return out.value or 0


def _make_config(config: Optional[ExchangeConfig], fields: Dict[str, Any]) -> ExchangeConfig:
    if config is None:
        return ExchangeConfig(**fields)
    return dataclasses.replace(config, **fields)


def _framework_for(name: str) -> Framework:
    if not name:
        name = next((known for known in ("torch", "numpy") if known in sys.modules), "ferry_ep")
    return framework_named(name)
