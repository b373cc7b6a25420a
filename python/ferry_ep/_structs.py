"""The structs of ferry.h, field by field."""

from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_int32, c_int64, c_size_t, c_void_p

MAX_DIMS = 4


class SizedStruct(ctypes.Structure):
    """Begins with its size, which is set here; every other field starts as zero, its default."""

    def __init__(self, **fields: object) -> None:
        super().__init__(ctypes.sizeof(self), **fields)


class TensorStruct(SizedStruct):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("data", c_void_p),
        ("dtype", c_int32),
        ("num_dims", c_int32),
        ("shape", c_int64 * MAX_DIMS),
        ("strides", c_int64 * MAX_DIMS),
        ("device_kind", c_int32),
        ("device_index", c_int32),
    ]


class GroupConfigStruct(SizedStruct):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("rank", c_int32),
        ("size", c_int32),
        ("address", c_char_p),
        ("secret", c_char_p),
        ("num_pretended_nodes", c_int32),
        ("reserved", c_int32),
        ("meeting_timeout_ms", c_int64),
        ("arrival_timeout_ms", c_int64),
        ("progress_timeout_ms", c_int64),
    ]


class ExchangeConfigStruct(SizedStruct):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("num_experts", c_int32),
        ("top_k", c_int32),
        ("hidden", c_int64),
        ("max_tokens", c_int64),
        ("dtype", c_int32),
        ("device_kind", c_int32),
        ("device_index", c_int32),
        ("mode", c_int32),
        ("layout", c_int32),
        ("duplicates", c_int32),
        ("expert_alignment", c_int64),
        ("expert_owner", ctypes.POINTER(c_int32)),
        ("num_expert_owners", c_size_t),
        ("scale_bytes_per_row", c_int64),
        ("max_recv_rows", c_int64),
        ("memory_limit", c_int64),
        ("arena_bytes", c_int64),
        ("overflow", c_int32),
        ("row_order", c_int32),
        ("reduction", c_int32),
        ("low_latency_form", c_int32),
        ("num_threads", c_int32),
        ("num_sms", c_int32),
        ("arrival_timeout_ms", c_int64),
        ("progress_timeout_ms", c_int64),
    ]


class MemoryNeedStruct(SizedStruct):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("arena_virtual_bytes", c_int64),
        ("delivery_bytes", c_int64),
        ("staging_bytes", c_int64),
        ("control_bytes", c_int64),
    ]


class CountersStruct(SizedStruct):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("dispatches", c_int64),
        ("combines", c_int64),
        ("dispatch_logical_bytes", c_int64),
        ("dispatch_wire_bytes", c_int64),
        ("combine_logical_bytes", c_int64),
        ("combine_wire_bytes", c_int64),
        ("memory_bytes_read", c_int64),
        ("memory_bytes_written", c_int64),
        ("staged_bytes", c_int64),
        ("dropped_rows", c_int64),
        ("arena_bytes", c_int64),
        ("arena_peak_bytes", c_int64),
        ("wait_ns", c_int64),
    ]


class RouteOptionsStruct(SizedStruct):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("has_layout", c_int32),
        ("layout", c_int32),
        ("sizing", c_int32),
        ("reserved", c_int32),
        ("timeout_ms", c_int64),
    ]


class DeliveryOutputsStruct(SizedStruct):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("tokens", c_char_p),
        ("scales", c_char_p),
        ("topk_idx", c_char_p),
        ("topk_weights", c_char_p),
    ]


class DispatchOptionsStruct(SizedStruct):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("topk_weights", c_char_p),
        ("scales", c_char_p),
        ("quantize", c_int32),
        ("scale_layout", c_int32),
        ("gaps", c_int32),
        ("scale_by_weights", c_int32),
        ("outputs", ctypes.POINTER(DeliveryOutputsStruct)),
        ("timeout_ms", c_int64),
    ]


class CombineOptionsStruct(SizedStruct):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("topk_weights", c_char_p),
        ("bias", c_char_p),
        ("second_bias", c_char_p),
        ("row_weights", c_char_p),
        ("combined_weights", c_char_p),
        ("form", c_int32),
        ("reserved", c_int32),
        ("timeout_ms", c_int64),
    ]


class EnvLineStruct(SizedStruct):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("name", c_char_p),
        ("value", c_char_p),
        ("source", c_char_p),
        ("fallback", c_char_p),
        ("help", c_char_p),
    ]
