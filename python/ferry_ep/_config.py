"""What an exchange is made for, what it needs, and what it counts."""

from __future__ import annotations

import ctypes
import dataclasses
from typing import Any, List, Optional, Sequence

from ._device import Device, to_device
from ._enums import (DeviceKind, DType, Duplicates, Layout, LowLatencyForm, Mode, Overflow, Reduction,
                     RowOrder, to_enum)
from ._structs import CountersStruct, ExchangeConfigStruct


@dataclasses.dataclass
class ExchangeConfig:
    """The same on every rank, except num_threads, num_sms and the device's index; a difference is
    refused at creation naming the field, the ranks and the values. Enumerations are taken by name
    as well (layout="by_expert").
    """

    num_experts: int = 0  # E, 1..4096; physical slots
    top_k: int = 0  # K, 1..32, at most E
    hidden: int = 0  # widest row, in elements of `dtype`; rows are multiples of 16 bytes
    max_tokens: int = 0  # largest T of any rank in any call
    dtype: DType = DType.BF16  # widest element that is moved
    device: Device = Device()
    mode: Mode = Mode.HIGH_THROUGHPUT
    layout: Layout = Layout.BY_RANK  # of routes that do not say otherwise
    expert_alignment: int = 1  # rows; by_expert starts and the aligned counts
    duplicates: Duplicates = Duplicates.REFUSE
    expert_owner: Sequence[int] = ()  # the rank of each expert; empty: contiguous blocks
    scale_bytes_per_row: int = 0  # widest row of caller-given scales; 0: none but quantize's
    max_recv_rows: int = 0  # cap of delivered rows; 0: the worst case
    overflow: Overflow = Overflow.ERROR
    memory_limit: int = 0  # bytes of staging per rank; 0: none
    arena_bytes: int = 0  # room for allocate(); 0: two worst-case outputs
    low_latency_form: LowLatencyForm = LowLatencyForm.AUTO
    row_order: RowOrder = RowOrder.RANK_ASCENDING
    reduction: Reduction = Reduction.PER_NODE
    num_threads: int = 0  # CPU engine, per rank; 0: usable cores / ranks
    num_sms: int = 0  # CUDA engine, per rank; 0: the plan's choice
    arrival_timeout_ms: int = 0  # 0: the group's
    progress_timeout_ms: int = 0  # 0: the group's

    def __post_init__(self) -> None:
        self.dtype = to_enum(DType, "dtype", _dtype_name(self.dtype))
        self.device = to_device(self.device)
        for name, kind in _ENUMS.items():
            setattr(self, name, to_enum(kind, name, getattr(self, name)))
        self.expert_owner = tuple(int(owner) for owner in self.expert_owner)


_ENUMS = {
    "mode": Mode, "layout": Layout, "duplicates": Duplicates, "overflow": Overflow,
    "low_latency_form": LowLatencyForm, "row_order": RowOrder, "reduction": Reduction,
}
# Fields that go to the struct under the same name and as they are.
_PLAIN = [field.name for field in dataclasses.fields(ExchangeConfig)
          if field.name not in ("device", "expert_owner")]

_FRAMEWORK_NAMES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32",
                    "float8_e4m3fn": "fp8_e4m3", "float8_e5m2": "fp8_e5m2"}


def _dtype_name(dtype: Any) -> Any:
    """A DType, its name, or a framework's dtype such as torch.bfloat16."""
    if isinstance(dtype, int):
        return dtype
    name = str(getattr(dtype, "name", dtype)).rpartition(".")[2]
    return _FRAMEWORK_NAMES.get(name, name)


def to_struct(config: ExchangeConfig) -> ExchangeConfigStruct:
    struct = ExchangeConfigStruct(**{name: getattr(config, name) for name in _PLAIN})
    struct.device_kind = config.device.kind
    struct.device_index = config.device.index
    if config.expert_owner:
        owners = (ctypes.c_int32 * len(config.expert_owner))(*config.expert_owner)
        struct.expert_owner = owners
        struct.num_expert_owners = len(config.expert_owner)
    return struct


def from_struct(struct: ExchangeConfigStruct) -> ExchangeConfig:
    config = ExchangeConfig(
        **{name: getattr(struct, name) for name in _PLAIN},
        device=Device(DeviceKind(struct.device_kind), struct.device_index))
    config.expert_owner = tuple(struct.expert_owner[: struct.num_expert_owners])
    return config


@dataclasses.dataclass(frozen=True)
class MemoryNeed:
    """What an exchange needs per rank, in bytes."""

    arena_virtual_bytes: int  # address space of one arena
    delivery_bytes: int  # one worst-case delivery
    staging_bytes: int  # staging regions at their limit
    control_bytes: int  # counts, headers, flags


@dataclasses.dataclass(frozen=True)
class Counters:
    """Totals since creation, or of one route. Logical bytes count every received row (dispatch) or
    contributed row (combine), own ones included; wire bytes left this rank for another.
    """

    dispatches: int
    combines: int
    dispatch_logical_bytes: int
    dispatch_wire_bytes: int
    combine_logical_bytes: int
    combine_wire_bytes: int
    memory_bytes_read: int
    memory_bytes_written: int
    staged_bytes: int  # copies beyond write-once
    dropped_rows: int
    arena_bytes: int
    arena_peak_bytes: int
    wait_ns: int  # time blocked on peers
    wait_ns_by_peer: List[int]  # [R]


def read_counters(function: Any, handle: Optional[int], num_ranks: int, check: Any) -> Counters:
    struct = CountersStruct()
    by_peer = (ctypes.c_int64 * num_ranks)()
    check(function(handle, ctypes.byref(struct), by_peer, num_ranks))
    names = [name for name, _ in CountersStruct._fields_ if name != "struct_bytes"]
    return Counters(**{name: getattr(struct, name) for name in names}, wait_ns_by_peer=list(by_peer))
