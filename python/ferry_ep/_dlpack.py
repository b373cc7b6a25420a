"""Giving memory of the library away as a DLPack capsule."""

from __future__ import annotations

import ctypes
from typing import Any, Dict, Tuple

from ._enums import DeviceKind
from ._foreign import OF_DLPACK, DLTensor
from ._tensor import Tensor


class _Managed(ctypes.Structure):
    pass


_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_Managed._fields_ = [("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", _DELETER)]

# What each capsule's memory needs, by the address of its struct, until the consumer deletes it.
_alive: Dict[int, Tuple[Any, ...]] = {}


def _forget(address: int) -> None:
    _alive.pop(address, None)


_delete = _DELETER(_forget)


_CAPSULE_DESTRUCTOR = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi))
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, _CAPSULE_DESTRUCTOR]

_NAME = b"dltensor"  # its address goes into capsules: it lives as long as this module
_CODE_OF = {dtype: key for key, dtype in reversed(list(OF_DLPACK.items()))}
_CODE_OF.update({dtype: (1, 8 * dtype.num_bytes) for dtype in _CODE_OF
                 if dtype.name.startswith("UINT")})


def _forget_untaken(capsule: int) -> None:
    if _is_valid(capsule, _NAME):
        _alive.pop(_pointer_of(capsule, _NAME), None)


_destroy = _CAPSULE_DESTRUCTOR(_forget_untaken)


def make_capsule(tensor: Tensor) -> Any:
    num_dims = len(tensor.shape)
    shape = (ctypes.c_int64 * num_dims)(*tensor.shape)
    strides = (ctypes.c_int64 * num_dims)(*tensor.strides)
    code, bits = _CODE_OF[tensor.dtype]
    is_cpu = tensor.device.kind is DeviceKind.CPU
    managed = _Managed()
    managed.tensor = DLTensor(tensor.data_ptr, 1 if is_cpu else 2, tensor.device.index, num_dims,
                              code, bits, 1, ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64)),
                              ctypes.cast(strides, ctypes.POINTER(ctypes.c_int64)), 0)
    managed.deleter = _delete
    address = ctypes.addressof(managed)
    _alive[address] = (managed, shape, strides, tensor)
    return _new_capsule(address, _NAME, _destroy)
