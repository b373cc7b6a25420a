"""Reading tensors through protocols: DLPack, __cuda_array_interface__, the buffer protocol.

Each reader gives (address, dtype, shape, strides in elements, device). The caller keeps the tensor
alive for the call; the memory is the tensor's, so a view that the protocol made may go earlier.
"""

from __future__ import annotations

import ctypes
from typing import Any, Sequence, Tuple

from ._device import Device
from ._enums import DType
from ._errors import InvalidArgumentError
from ._tensor import dense_strides

Read = Tuple[int, DType, Sequence[int], Sequence[int], Device]

_OF_TYPESTR = {
    "f2": DType.FP16, "f4": DType.FP32, "i4": DType.INT32, "i8": DType.INT64, "u1": DType.UINT8,
    "i1": DType.UINT8, "u2": DType.UINT16, "i2": DType.UINT16, "u4": DType.UINT32,
    "V2": DType.UINT16, "V1": DType.UINT8,
}


def _dtype_of_typestr(name: str, typestr: str) -> DType:
    if typestr[0] == ">" or typestr[1:] not in _OF_TYPESTR:
        raise InvalidArgumentError(f"{name} has elements of type '{typestr}', expected a little-endian "
                                   "type of 1, 2 or 4 bytes or int64")
    return _OF_TYPESTR[typestr[1:]]


def read_cuda_array_interface(name: str, tensor: Any) -> Read:
    interface = tensor.__cuda_array_interface__
    if interface.get("mask") is not None:
        raise InvalidArgumentError(f"{name} is a masked array, expected one without a mask")
    dtype = _dtype_of_typestr(name, interface["typestr"])
    # CuPy says void for the types of ml_dtypes; its own dtype knows.
    own = str(getattr(tensor, "dtype", ""))
    dtype = {"bfloat16": DType.BF16, "float8_e4m3fn": DType.FP8_E4M3,
             "float8_e5m2": DType.FP8_E5M2}.get(own, dtype)
    shape = tuple(interface["shape"])
    strides = interface.get("strides")
    if strides is None:
        steps = dense_strides(shape)
    else:
        steps = tuple(stride // dtype.num_bytes for stride in strides)
    return interface["data"][0] or 0, dtype, shape, steps, Device.cuda(_cuda_index(tensor))


def _cuda_index(tensor: Any) -> int:
    device = getattr(tensor, "device", None)
    index = getattr(device, "id", getattr(device, "index", None))
    return index if isinstance(index, int) else 0


def is_read_only(tensor: Any) -> bool:
    """Whether an array interface or a buffer says that its memory must not be written."""
    for name in ("__array_interface__", "__cuda_array_interface__"):
        interface = getattr(tensor, name, None)
        if interface is not None:
            return bool(interface["data"][1])
    try:
        return memoryview(tensor).readonly
    except TypeError:
        return False


# ---- DLPack --------------------------------------------------------------------------------------


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


# (code, bits): int 0, uint 1, float 2, bfloat 4; fp8 since DLPack 1.1.
OF_DLPACK = {
    (0, 32): DType.INT32, (0, 64): DType.INT64, (0, 8): DType.UINT8, (0, 16): DType.UINT16,
    (1, 8): DType.UINT8, (1, 16): DType.UINT16, (1, 32): DType.UINT32, (2, 16): DType.FP16,
    (2, 32): DType.FP32, (4, 16): DType.BF16, (10, 8): DType.FP8_E4M3, (12, 8): DType.FP8_E5M2,
}

_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype = ctypes.c_void_p
_get_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]

_DL_CPU, _DL_CUDA, _DL_CUDA_HOST, _DL_CUDA_MANAGED = 1, 2, 3, 13


def read_dlpack(name: str, tensor: Any) -> Read:
    # The capsule frees its own view of the memory when it goes; nothing is taken over.
    capsule = tensor.__dlpack__()
    view = DLTensor.from_address(_get_pointer(capsule, b"dltensor"))
    dtype = OF_DLPACK.get((view.code, view.bits))
    if dtype is None or view.lanes != 1:
        raise InvalidArgumentError(f"{name} has elements of DLPack type ({view.code}, {view.bits}, "
                                   f"{view.lanes}), expected a real type of 1, 2 or 4 bytes or int64")
    if view.device_type in (_DL_CPU, _DL_CUDA_HOST):
        device = Device.cpu()
    elif view.device_type in (_DL_CUDA, _DL_CUDA_MANAGED):
        device = Device.cuda(view.device_id)
    else:
        raise InvalidArgumentError(f"{name} lies on a device of DLPack type {view.device_type}, "
                                   "expected cpu or cuda")
    shape = tuple(view.shape[: view.ndim])
    steps = tuple(view.strides[: view.ndim]) if view.strides else dense_strides(shape)
    return (view.data or 0) + view.byte_offset, dtype, shape, steps, device


# ---- the buffer protocol -------------------------------------------------------------------------


class _PyBuffer(ctypes.Structure):
    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_ssize_t)),
        ("strides", ctypes.POINTER(ctypes.c_ssize_t)),
        ("suboffsets", ctypes.POINTER(ctypes.c_ssize_t)),
        ("internal", ctypes.c_void_p),
    ]


_PYBUF_RECORDS_RO = 0x18 | 0x4  # strides and format
_OF_FORMAT = {
    "f": DType.FP32, "e": DType.FP16, "i": DType.INT32, "q": DType.INT64, "l": DType.INT64,
    "I": DType.UINT32, "H": DType.UINT16, "h": DType.UINT16, "B": DType.UINT8, "b": DType.UINT8,
    "c": DType.UINT8,
}


def read_memory(name: str, tensor: Any) -> Read:
    view = _PyBuffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(tensor), ctypes.byref(view),
                                        _PYBUF_RECORDS_RO)
    try:
        code = (view.format or b"B").decode().lstrip("@=<")
        dtype = _OF_FORMAT.get(code)
        if dtype is None or dtype.num_bytes != view.itemsize:
            raise InvalidArgumentError(f"{name} is a buffer of elements '{code}', expected a real type "
                                       "of 1, 2 or 4 bytes or int64")
        shape = tuple(view.shape[: view.ndim])
        if view.strides:
            steps = tuple(step // view.itemsize for step in view.strides[: view.ndim])
        else:  # ctypes says so of its dense arrays
            steps = dense_strides(shape)
        return view.buf or 0, dtype, shape, steps, Device.cpu()
    finally:
        ctypes.pythonapi.PyBuffer_Release(ctypes.byref(view))
