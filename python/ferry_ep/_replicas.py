"""Which replica of a logical expert a selection goes to."""

from __future__ import annotations

import ctypes
from typing import Any, List, Sequence

from ._device import Device
from ._library import check, lib
from ._tensors import framework_of, packed_dtype, packed_shape, to_packed, to_packed_output


def map_replicas(logical_topk: Any, replicas_of: Sequence[Sequence[int]],
                 physical_topk: Any = None) -> Any:
    """Chooses one replica per selection, the same on every run. Local.

    logical_topk, physical_topk: [T, K], int32 or int64 alike, dense, on the CPU; -1 stays -1.
    replicas_of[l] lists the physical slots of logical expert l; token t, column k takes entry
    (t * 31 + k) % count. Returns physical_topk, made where it is not given.
    """
    packed = to_packed("logical_topk", logical_topk)
    if physical_topk is None:
        framework = framework_of(logical_topk)
        shape = packed_shape(packed)
        physical_topk = framework.empty(shape, packed_dtype(packed), Device.cpu())
    width = max([len(row) for row in replicas_of], default=0)
    flat: List[int] = []
    for row in replicas_of:
        flat += [*row, *[-1] * (width - len(row))]
    table = (ctypes.c_int32 * max(len(flat), 1))(*flat)
    check(lib.ferry_map_replicas(packed, table, len(replicas_of), width,
                                 to_packed_output("physical_topk", physical_topk)))
    return physical_topk
