"""libferry: found beside this package, opened with ctypes.

ctypes.CDLL releases the GIL in every call, so a call that waits for a peer stops no other thread.
"""

from __future__ import annotations

import ctypes
import os
import pathlib
import sys
from ctypes import POINTER, c_char_p, c_int32, c_int64, c_size_t, c_void_p
from typing import Any, List, Optional

from . import _structs
from ._errors import InvalidArgumentError, UnavailableError, make_error

_FILE = "libferry.so.0"

# A tensor is passed as the packed bytes of a ferry_tensor, a handle as a number.
_TENSOR = c_char_p
_HANDLE = c_void_p
_OUT_HANDLE = POINTER(c_void_p)

RANK_BODY = ctypes.CFUNCTYPE(c_int32, c_void_p, c_void_p)


def _open() -> ctypes.CDLL:
    # Beside this file; an editable install has its sources in one folder and the library in another.
    folders = [pathlib.Path(__file__).parent, *map(pathlib.Path, sys.modules["ferry_ep"].__path__)]
    paths = [folder / "lib" / _FILE for folder in folders]
    path = next((path for path in paths if path.exists()), paths[0])
    if not path.exists():
        raise UnavailableError(f"{path} is missing: this ferry_ep is source without the library; "
                               "try: pip install . in the repository's root")
    try:
        return ctypes.CDLL(str(path), mode=os.RTLD_NOW | os.RTLD_LOCAL)
    except OSError as error:
        raise UnavailableError(f"cannot open {path}: {error}") from error


def _declare(lib: ctypes.CDLL) -> None:
    def declare(name: str, *arguments: Any, result: Any = c_int32) -> None:
        function = getattr(lib, name)
        function.argtypes = list(arguments)
        function.restype = result

    s = _structs
    out_tensor = POINTER(s.TensorStruct)
    out_counters = POINTER(s.CountersStruct)
    out_i32, out_i64 = POINTER(c_int32), POINTER(c_int64)

    declare("ferry_last_error", result=c_char_p)
    declare("ferry_status_name", c_int32, result=c_char_p)
    declare("ferry_version", result=c_char_p)

    declare("ferry_group_from_env", _OUT_HANDLE)
    declare("ferry_group_is_launched")
    declare("ferry_group_open", POINTER(s.GroupConfigStruct), _OUT_HANDLE)
    declare("ferry_group_self", _OUT_HANDLE)
    declare("ferry_group_run_threads", c_int32, POINTER(s.GroupConfigStruct), RANK_BODY, c_void_p)
    for field in ("rank", "size", "num_nodes", "node", "local_rank"):
        declare(f"ferry_group_{field}", _HANDLE, out_i32)
    declare("ferry_group_node_of", _HANDLE, c_int32, out_i32)
    declare("ferry_group_all_gather", _HANDLE, c_char_p, c_size_t, _OUT_HANDLE)
    declare("ferry_gathered_from_rank", _HANDLE, c_int32, POINTER(c_void_p), POINTER(c_size_t))
    declare("ferry_gathered_free", _HANDLE, result=None)
    for verb in ("barrier", "check", "leave"):
        declare(f"ferry_group_{verb}", _HANDLE)
    declare("ferry_group_free", _HANDLE, result=None)

    config = POINTER(s.ExchangeConfigStruct)
    declare("ferry_exchange_create", _HANDLE, config, _OUT_HANDLE)
    declare("ferry_exchange_bytes_needed", config, c_int32, POINTER(s.MemoryNeedStruct))
    route_options = POINTER(s.RouteOptionsStruct)
    dispatch_options = POINTER(s.DispatchOptionsStruct)
    combine_options = POINTER(s.CombineOptionsStruct)
    for begin in ("", "begin_"):
        declare(f"ferry_exchange_{begin}route", _HANDLE, _TENSOR, route_options, c_void_p,
                _OUT_HANDLE)
        declare(f"ferry_exchange_{begin}dispatch", _HANDLE, _HANDLE, _TENSOR, dispatch_options,
                c_void_p, _OUT_HANDLE)
    declare("ferry_exchange_combine", _HANDLE, _HANDLE, _TENSOR, _TENSOR, combine_options, c_void_p)
    declare("ferry_exchange_begin_combine", _HANDLE, _HANDLE, _TENSOR, _TENSOR, combine_options,
            c_void_p, _OUT_HANDLE)
    declare("ferry_exchange_combine_weights", _HANDLE, _HANDLE, _TENSOR, _TENSOR, c_void_p)
    declare("ferry_exchange_post", _HANDLE, _HANDLE, POINTER(s.DeliveryOutputsStruct), c_void_p)
    declare("ferry_exchange_set_owner_map", _HANDLE, POINTER(c_int32), c_size_t, c_void_p)
    declare("ferry_exchange_allocate", _HANDLE, c_int64, c_void_p, _OUT_HANDLE)
    declare("ferry_exchange_deallocate", _HANDLE, c_void_p, c_void_p)
    declare("ferry_exchange_check", _HANDLE)
    declare("ferry_exchange_counters", _HANDLE, out_counters, POINTER(c_int64), c_size_t)
    declare("ferry_exchange_get_config", _HANDLE, config)
    declare("ferry_exchange_num_local_experts", _HANDLE, out_i32)
    declare("ferry_exchange_destroy", _HANDLE)
    declare("ferry_exchange_free", _HANDLE, result=None)
    declare("ferry_map_replicas", _TENSOR, POINTER(c_int32), c_size_t, c_size_t, _TENSOR)

    declare("ferry_route_num_tokens", _HANDLE, out_i64)
    declare("ferry_route_layout", _HANDLE, out_i32)
    declare("ferry_route_sizing", _HANDLE, out_i32)
    declare("ferry_route_num_recv_rows", _HANDLE, out_i64)
    for field in ("expert_counts", "aligned_expert_counts", "tokens_from_rank"):
        declare(f"ferry_route_{field}", _HANDLE, POINTER(POINTER(c_int64)), POINTER(c_size_t))
    declare("ferry_route_counters", _HANDLE, out_counters, POINTER(c_int64), c_size_t)
    declare("ferry_route_free", _HANDLE, result=None)

    for field in ("tokens", "scales", "topk_idx", "topk_weights", "row_source", "row_expert",
                  "num_rows", "expert_counts", "aligned_expert_counts", "expert_offsets",
                  "source_offsets"):
        declare(f"ferry_delivery_{field}", _HANDLE, out_tensor)
    declare("ferry_delivery_free", _HANDLE, result=None)

    for kind in ("route", "delivery"):
        declare(f"ferry_pending_{kind}_finish", _HANDLE, _OUT_HANDLE)
        declare(f"ferry_pending_{kind}_free", _HANDLE, result=None)
    declare("ferry_pending_combine_finish", _HANDLE)
    declare("ferry_pending_combine_free", _HANDLE, result=None)

    declare("ferry_env_table_open", _OUT_HANDLE)
    declare("ferry_env_table_num_lines", _HANDLE, POINTER(c_size_t))
    declare("ferry_env_table_line", _HANDLE, c_size_t, POINTER(s.EnvLineStruct))
    declare("ferry_env_table_free", _HANDLE, result=None)


lib = _open()
_declare(lib)


def check(status: int) -> None:
    """Raises what the call that returned `status` on this thread said."""
    if status != 0:
        raise make_error(status, lib.ferry_last_error().decode("utf-8", "replace"))


def version() -> str:
    """The version of the library that is loaded, "MAJOR.MINOR.PATCH"."""
    return str(lib.ferry_version().decode())


def read_i32(function: Any, handle: Optional[int]) -> int:
    value = c_int32()
    check(function(handle, ctypes.byref(value)))
    return value.value


def read_i64(function: Any, handle: Optional[int]) -> int:
    value = c_int64()
    check(function(handle, ctypes.byref(value)))
    return value.value


def read_i64_array(function: Any, handle: Optional[int]) -> List[int]:
    first, count = POINTER(c_int64)(), c_size_t()
    check(function(handle, ctypes.byref(first), ctypes.byref(count)))
    return first[: count.value]


# ---- the life of a process -----------------------------------------------------------------------

# Handles belong to the process that made them: a forked child has neither the library's threads nor
# a right to its parent's connections.
_owner_pid = os.getpid()
_has_opened = False
_is_exiting = False


def remember_open() -> None:
    """Called before a group is made. A child of a process that had one cannot make its own."""
    global _has_opened, _owner_pid
    if os.getpid() != _owner_pid:
        if _has_opened:
            raise _forked("a new group")
        _owner_pid = os.getpid()
    _has_opened = True


def check_process(pid: int, what: str) -> None:
    if pid != os.getpid():
        raise _forked(what, pid)


def _forked(what: str, pid: Optional[int] = None) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{what} is used in process {os.getpid()}, forked from process {pid or _owner_pid} where "
        "FerryEP was in use; its threads and connections do not survive a fork; "
        "try: multiprocessing.set_start_method('spawn')")


def may_free(pid: int) -> bool:
    """Whether a handle of process `pid` is still this process's to free."""
    return pid == os.getpid() and not _is_exiting


def _stop_freeing() -> None:
    # Past this point the system takes back what is left: device drivers and threads may be gone.
    global _is_exiting
    _is_exiting = True
