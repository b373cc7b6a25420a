"""Tensors of every framework to ferry_tensor and back, never copied.

A tensor goes to the library as the packed bytes of a ferry_tensor. What comes back is a tensor of
the framework of the call's input; it keeps the memory's owner alive.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from typing import Any, Callable, Dict, Optional, Sequence, Tuple

from ._device import Device
from ._enums import DeviceKind, DType, to_enum
from ._errors import InvalidArgumentError
from ._foreign import is_read_only, read_cuda_array_interface, read_dlpack, read_memory
from ._structs import MAX_DIMS, TensorStruct
from ._tensor import Tensor, dense_strides

_PACKED = struct.Struct("@NPii4q4qii")
assert _PACKED.size == ctypes.sizeof(TensorStruct)
_PAD: Tuple[Tuple[int, ...], ...] = tuple((0,) * (MAX_DIMS - n) for n in range(MAX_DIMS + 1))


class Typed:
    """A tensor whose bytes are of another dtype than its framework says.

    For fp8 in a framework without fp8 (`Typed(x.view(torch.uint8), "fp8_e4m3")`) and bf16 in NumPy
    (`Typed(x_as_uint16, "bf16")`). The elements must have the same number of bytes.
    """

    def __init__(self, tensor: Any, dtype: Any) -> None:
        self.tensor = tensor
        self.dtype = to_enum(DType, "dtype", dtype)


def pack(data: int, dtype: int, shape: Sequence[int], strides: Sequence[int],
         device_kind: int, device_index: int) -> bytes:
    """A ferry_tensor; `strides` in elements."""
    pad = _PAD[len(shape)]
    return _PACKED.pack(_PACKED.size, data, dtype, len(shape), *shape, *pad, *strides, *pad,
                        device_kind, device_index)


def packed_dtype(packed: bytes) -> DType:
    return DType(_PACKED.unpack(packed)[2])


def packed_shape(packed: bytes) -> Tuple[int, ...]:
    fields = _PACKED.unpack(packed)
    return fields[4 : 4 + fields[3]]


def to_packed(name: str, tensor: Any) -> bytes:
    """`tensor` as a ferry_tensor. Errors name it `name`."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(tensor, torch.Tensor):
        return _pack_torch(name, tensor, torch, None)
    return _pack_other(name, tensor, None)


def to_packed_or_none(name: str, tensor: Any) -> Optional[bytes]:
    return None if tensor is None else to_packed(name, tensor)


def to_packed_output(name: str, tensor: Any) -> Optional[bytes]:
    """The same for a tensor that is written."""
    if tensor is None:
        return None
    inner = tensor.tensor if isinstance(tensor, Typed) else tensor
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(inner, torch.Tensor):
        if inner.requires_grad and torch.is_grad_enabled() and inner.is_leaf:
            raise InvalidArgumentError(f"{name} is a leaf that requires grad, expected a tensor that "
                                       "can be written; try: torch.no_grad()")
    elif is_read_only(inner):
        raise InvalidArgumentError(f"{name} is read-only, expected memory that can be written")
    return to_packed(name, tensor)


# ---- torch ---------------------------------------------------------------------------------------

_torch_dtypes: Dict[Any, DType] = {}


def _learn_torch_dtypes(torch: Any) -> None:
    names = {
        "bfloat16": DType.BF16, "float16": DType.FP16, "float32": DType.FP32,
        "float8_e4m3fn": DType.FP8_E4M3, "float8_e5m2": DType.FP8_E5M2, "int32": DType.INT32,
        "int64": DType.INT64, "uint8": DType.UINT8, "int8": DType.UINT8, "int16": DType.UINT16,
        "uint16": DType.UINT16, "uint32": DType.UINT32, "float8_e8m0fnu": DType.UINT8,
    }
    for name, dtype in names.items():
        if hasattr(torch, name):
            _torch_dtypes[getattr(torch, name)] = dtype


def _pack_torch(name: str, tensor: Any, torch: Any, dtype: Optional[DType]) -> bytes:
    own = _torch_dtypes.get(tensor.dtype)
    if own is None:
        if not _torch_dtypes:
            _learn_torch_dtypes(torch)
            own = _torch_dtypes.get(tensor.dtype)
        if own is None:
            raise _unknown_dtype(name, tensor.dtype)
    device = tensor.device
    if device.type == "cuda":
        kind, index = 1, device.index
    elif device.type == "cpu":
        kind, index = 0, 0
    else:
        raise InvalidArgumentError(f"{name} lies on {device}, expected cpu or cuda")
    if tensor.layout is not torch.strided:
        raise InvalidArgumentError(f"{name} has the layout {tensor.layout}, expected torch.strided")
    shape = tensor.shape
    if len(shape) > MAX_DIMS or not len(shape):
        raise _wrong_dims(name, shape)
    return pack(tensor.data_ptr(), _retyped(name, own, dtype), shape, tensor.stride(), kind, index)


# ---- everything else -----------------------------------------------------------------------------

_NUMPY_DTYPES = {
    "float16": DType.FP16, "float32": DType.FP32, "int32": DType.INT32, "int64": DType.INT64,
    "uint8": DType.UINT8, "int8": DType.UINT8, "uint16": DType.UINT16, "int16": DType.UINT16,
    "uint32": DType.UINT32, "bfloat16": DType.BF16, "float8_e4m3fn": DType.FP8_E4M3,
    "float8_e5m2": DType.FP8_E5M2,
}


_numpy_dtypes: Dict[Any, DType] = {}  # a dtype's own name takes microseconds
_CPU = Device.cpu()


def _learn_numpy_dtype(name: str, dtype: Any) -> DType:
    own = _NUMPY_DTYPES.get(dtype.name)
    if own is None or not dtype.isnative:
        raise _unknown_dtype(name, dtype)
    _numpy_dtypes[dtype] = own
    return own


def _pack_numpy(name: str, tensor: Any, dtype: Optional[DType]) -> bytes:
    own = _numpy_dtypes.get(tensor.dtype) or _learn_numpy_dtype(name, tensor.dtype)
    interface = tensor.__array_interface__
    shape, strides = interface["shape"], interface["strides"]
    if strides is None:
        steps = dense_strides(shape)
    else:
        steps = _element_strides(name, strides, own.num_bytes)
    return _pack_checked(name, interface["data"][0], own, shape, steps, _CPU, dtype)


def _pack_other(name: str, tensor: Any, dtype: Optional[DType]) -> bytes:
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(tensor, numpy.ndarray):
        return _pack_numpy(name, tensor, dtype)
    if isinstance(tensor, Typed):
        if dtype is not None:
            raise InvalidArgumentError(f"{name} is a Typed of a Typed, expected a Typed of a tensor")
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(tensor.tensor, torch.Tensor):
            return _pack_torch(name, tensor.tensor, torch, tensor.dtype)
        return _pack_other(name, tensor.tensor, tensor.dtype)
    if isinstance(tensor, Tensor):
        return _pack_checked(name, tensor.data_ptr, tensor.dtype, tensor.shape, tensor.strides,
                             tensor.device, dtype)
    read = _reader(tensor)
    if read is None:
        raise InvalidArgumentError(
            f"{name} is a {type(tensor).__name__}, expected a tensor: torch, NumPy, CuPy, DLPack, "
            "__cuda_array_interface__ or a buffer")
    data, read_dtype, shape, strides, device = read(name, tensor)
    return _pack_checked(name, data, read_dtype, shape, strides, device, dtype)


def _reader(tensor: Any) -> Optional[Callable[..., Any]]:
    if hasattr(tensor, "__cuda_array_interface__"):
        return read_cuda_array_interface
    if hasattr(tensor, "__dlpack__"):
        return read_dlpack
    try:
        memoryview(tensor)
    except TypeError:
        return None
    return read_memory


def _pack_checked(name: str, data: int, own: DType, shape: Sequence[int], strides: Sequence[int],
                  device: Device, dtype: Optional[DType]) -> bytes:
    if len(shape) > MAX_DIMS or not len(shape):
        raise _wrong_dims(name, shape)
    return pack(data, _retyped(name, own, dtype), shape, strides, device.kind, device.index)


def _element_strides(name: str, strides: Sequence[int], itemsize: int) -> Tuple[int, ...]:
    for stride in strides:
        if stride % itemsize:
            raise InvalidArgumentError(f"{name} has a stride of {stride} bytes, expected a multiple "
                                       f"of its {itemsize}-byte elements")
    return tuple([stride // itemsize for stride in strides])


def _retyped(name: str, own: DType, dtype: Optional[DType]) -> int:
    if dtype is None:
        return own
    if own.num_bytes != dtype.num_bytes:
        raise InvalidArgumentError(
            f"{name} has {own.num_bytes}-byte elements ({own.name.lower()}) and is declared as "
            f"{dtype.name.lower()} of {dtype.num_bytes}; try: a tensor of {dtype.num_bytes}-byte "
            "elements")
    return dtype


def _unknown_dtype(name: str, dtype: Any) -> InvalidArgumentError:
    return InvalidArgumentError(f"{name} has the dtype {dtype}, expected a real type of 1, 2 or 4 "
                                "bytes or int64, in this machine's byte order")


def _wrong_dims(name: str, shape: Sequence[int]) -> InvalidArgumentError:
    return InvalidArgumentError(f"{name} has {len(shape)} dimensions, expected 1 to {MAX_DIMS}")


# ---- back to a framework -------------------------------------------------------------------------


class Framework:
    """Whose tensors a call gives back: those of its input."""

    def __init__(self, name: str, bf16: Any = None) -> None:
        self.name = name  # "torch", "numpy", "cupy" or "ferry_ep"
        self.bf16 = bf16  # NumPy: the dtype of bf16 input (ml_dtypes), else None

    def view(self, tensor: Tensor) -> Any:
        """`tensor` in this framework, on the same memory."""
        if self.name == "torch":
            return _view_torch(tensor)
        if self.name == "numpy":
            return tensor.numpy(self.bf16)
        if self.name == "cupy":
            return _view_cupy(tensor)
        return tensor

    def empty(self, shape: Sequence[int], dtype: DType, device: Device) -> Any:
        """A new tensor in the framework's own memory."""
        if self.name == "torch":
            torch = sys.modules["torch"]
            return torch.empty(tuple(shape), dtype=torch_dtype(dtype), device=str(device))
        if self.name == "numpy":
            numpy = sys.modules["numpy"]
            is_bf16 = self.bf16 is not None and dtype is DType.BF16
            return numpy.empty(tuple(shape), self.bf16 if is_bf16 else _NUMPY_NAMES[dtype])
        if self.name == "cupy":
            cupy = sys.modules["cupy"]
            with cupy.cuda.Device(device.index):
                return cupy.empty(tuple(shape), _NUMPY_NAMES[dtype])
        if device.kind is DeviceKind.CPU:
            return Tensor.empty(shape, dtype)
        raise InvalidArgumentError("out is not given and the input's framework cannot make one; "
                                   "try: give out")


TORCH, NUMPY, CUPY, PLAIN = (Framework(name) for name in ("torch", "numpy", "cupy", "ferry_ep"))

_NUMPY_NAMES = {
    DType.BF16: "uint16", DType.FP16: "float16", DType.FP32: "float32", DType.FP8_E4M3: "uint8",
    DType.FP8_E5M2: "uint8", DType.INT32: "int32", DType.INT64: "int64", DType.UINT8: "uint8",
    DType.UINT16: "uint16", DType.UINT32: "uint32",
}


def framework_of(tensor: Any) -> Framework:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(tensor, torch.Tensor):
        return TORCH
    if isinstance(tensor, Typed):
        return framework_of(tensor.tensor)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(tensor, numpy.ndarray):
        return Framework("numpy", tensor.dtype) if tensor.dtype.name == "bfloat16" else NUMPY
    cupy = sys.modules.get("cupy")
    if cupy is not None and isinstance(tensor, cupy.ndarray):
        return CUPY
    return PLAIN


def framework_named(name: str) -> Framework:
    """The framework for tensors that have no input to follow; it is imported."""
    if name not in ("torch", "numpy", "cupy", "ferry_ep"):
        raise InvalidArgumentError(f"framework is {name!r}, expected torch, numpy, cupy or ferry_ep")
    if name != "ferry_ep":
        __import__(name)
    return {"torch": TORCH, "numpy": NUMPY, "cupy": CUPY, "ferry_ep": PLAIN}[name]


_TORCH_NAMES = {
    DType.BF16: ("bfloat16",), DType.FP16: ("float16",), DType.FP32: ("float32",),
    DType.FP8_E4M3: ("float8_e4m3fn", "uint8"), DType.FP8_E5M2: ("float8_e5m2", "uint8"),
    DType.INT32: ("int32",), DType.INT64: ("int64",), DType.UINT8: ("uint8",),
    DType.UINT16: ("uint16", "int16"), DType.UINT32: ("uint32", "int32"),
}


def torch_dtype(dtype: DType) -> Any:
    """The torch dtype of `dtype`; bytes where this torch is too old to have it."""
    torch = sys.modules["torch"]
    names = _TORCH_NAMES[dtype]
    found = next(getattr(torch, name) for name in names if hasattr(torch, name))
    _torch_dtype_of[dtype] = found
    return found


_torch_dtype_of: Dict[DType, Any] = {}


def _view_torch(tensor: Tensor) -> Any:
    torch = sys.modules["torch"]
    dtype = _torch_dtype_of.get(tensor.dtype) or torch_dtype(tensor.dtype)
    if 0 in tensor.shape:
        return torch.empty(tensor.shape, dtype=dtype, device=str(tensor.device))
    if tensor.device.kind is DeviceKind.CPU:
        flat = torch.frombuffer(tensor.buffer(), dtype=dtype)
    else:
        with torch.cuda.device(tensor.device.index):
            flat = torch.as_tensor(tensor.flat_bytes(), device=str(tensor.device)).view(dtype)
    if tensor.is_dense:
        return flat.view(tensor.shape)
    return flat.as_strided(tensor.shape, tensor.strides)


def _view_cupy(tensor: Tensor) -> Any:
    cupy = sys.modules["cupy"]
    name = _NUMPY_NAMES[tensor.dtype]
    if 0 in tensor.shape:
        return cupy.empty(tensor.shape, name)
    memory = cupy.cuda.UnownedMemory(tensor.data_ptr, tensor.num_bytes, tensor, tensor.device.index)
    strides = tuple(stride * tensor.dtype.num_bytes for stride in tensor.strides)
    return cupy.ndarray(tensor.shape, name, cupy.cuda.MemoryPointer(memory, 0), strides)
