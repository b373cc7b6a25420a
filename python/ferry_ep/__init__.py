"""FerryEP: the dispatch and combine of expert parallelism, on CPUs and CUDA GPUs.

    group = ferry_ep.Group.from_env()
    exchange = ferry_ep.Exchange(group, num_experts=256, top_k=8, hidden=7168, max_tokens=4096)
    route = exchange.route(topk_idx)
    delivery = exchange.dispatch(route, x, topk_weights=weights)
    out = exchange.combine(route, y)

Needs nothing but the standard library; PyTorch, NumPy and CuPy are used where the caller does.
`ferry_ep.autograd` holds the differentiable forms for PyTorch.
"""

import atexit as _atexit

from . import _core
from ._config import Counters, ExchangeConfig, MemoryNeed
from ._device import Device
from ._enums import (CombineForm, DeviceKind, DType, Duplicates, Gaps, Layout, LowLatencyForm, Mode,
                     Overflow, Quantize, Reduction, RowOrder, ScaleLayout, Sizing)
from ._env import EnvLine, env_table
from ._errors import (Error, ErrorCode, InternalError, InvalidArgumentError, NoResourceError,
                      PeerLostError, SystemCallError, TimeoutError, UnavailableError)
from ._exchange import Exchange
from ._group import Group
from ._library import version
from ._options import DeliveryOutputs
from ._replicas import map_replicas
from ._results import Delivery, Pending, Route
from ._tensor import Tensor
from ._tensors import Typed

__version__ = version()

__all__ = [
    "CombineForm", "Counters", "DType", "Delivery", "DeliveryOutputs", "Device", "DeviceKind",
    "Duplicates", "EnvLine", "Error", "ErrorCode", "Exchange", "ExchangeConfig", "Gaps", "Group",
    "InternalError", "InvalidArgumentError", "Layout", "LowLatencyForm", "MemoryNeed", "Mode",
    "NoResourceError", "Overflow", "PeerLostError", "Pending", "Quantize", "Reduction", "Route",
    "RowOrder", "ScaleLayout", "Sizing", "SystemCallError", "Tensor", "TimeoutError", "Typed",
    "UnavailableError", "env_table", "map_replicas", "version",
]

_atexit.register(_core.shut_down)
