"""Memory of the library as a Python object that every framework can take."""

from __future__ import annotations

import ctypes
from typing import Any, Dict, Optional, Sequence, Tuple

from ._device import Device
from ._enums import DeviceKind, DType
from ._errors import InvalidArgumentError

# The type strings of the array interfaces; bf16 and fp8 have none and go as unsigned integers.
TYPESTR = {
    DType.BF16: "<u2", DType.FP16: "<f2", DType.FP32: "<f4", DType.FP8_E4M3: "|u1",
    DType.FP8_E5M2: "|u1", DType.INT32: "<i4", DType.INT64: "<i8", DType.UINT8: "|u1",
    DType.UINT16: "<u2", DType.UINT32: "<u4",
}


class Tensor:
    """A view of memory that `owner` keeps alive. Supports DLPack and the array interfaces.

    What a call gives back when its input is of no known framework; other code converts it with
    `numpy.asarray(t)`, `torch.from_dlpack(t)`, `jax.dlpack.from_dlpack(t)` or `memoryview(t.buffer())`.
    """

    __slots__ = ("data_ptr", "dtype", "shape", "strides", "device", "owner", "__weakref__")

    def __init__(self, data_ptr: int, dtype: DType, shape: Sequence[int], strides: Sequence[int],
                 device: Device, owner: Any) -> None:
        self.data_ptr = data_ptr
        self.dtype = dtype
        self.shape: Tuple[int, ...] = tuple(shape)
        self.strides: Tuple[int, ...] = tuple(strides)  # in elements
        self.device = device
        self.owner = owner

    @staticmethod
    def empty(shape: Sequence[int], dtype: DType) -> Tensor:
        """New dense CPU memory."""
        num_bytes = dtype.num_bytes
        for extent in shape:
            num_bytes *= extent
        memory = bytearray(num_bytes)
        data_ptr = 0
        if num_bytes:
            data_ptr = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        return Tensor(data_ptr, dtype, shape, dense_strides(shape), Device.cpu(), memory)

    @property
    def is_dense(self) -> bool:
        return self.strides == dense_strides(self.shape)

    @property
    def num_bytes(self) -> int:
        """Bytes from the first to the last element."""
        if 0 in self.shape:
            return 0
        last = sum((extent - 1) * stride for extent, stride in zip(self.shape, self.strides))
        return (last + 1) * self.dtype.num_bytes

    def buffer(self) -> Any:
        """The bytes on the CPU, as an object of the buffer protocol."""
        if self.device.kind is not DeviceKind.CPU:
            raise InvalidArgumentError(f"a tensor on {self.device} has no CPU buffer; "
                                       "try: torch.as_tensor or cupy.asarray")
        memory = (ctypes.c_char * self.num_bytes).from_address(self.data_ptr)
        memory._ferry_owner = self.owner  # type: ignore[attr-defined]
        return memory

    def tolist(self) -> Any:
        """Nested lists of the numbers; for integer and fp32 tensors on the CPU."""
        format_of = {DType.INT32: "i", DType.INT64: "q", DType.FP32: "f", DType.UINT8: "B",
                     DType.UINT16: "H", DType.UINT32: "I"}
        if self.dtype not in format_of:
            raise InvalidArgumentError(f"a tensor of {self.dtype.name.lower()} has no Python numbers")
        if 0 in self.shape:
            return _nested(self.shape)
        flat = memoryview(self.buffer()).cast("B").cast(format_of[self.dtype])
        return _read_nested(flat, self.shape, self.strides, 0)

    def numpy(self, bf16: Any = None) -> Any:
        """The same memory as a NumPy array; bf16 as `bf16` or uint16, fp8 as uint8."""
        import numpy

        array = numpy.asarray(self)
        return array.view(bf16) if bf16 is not None and self.dtype is DType.BF16 else array

    def flat_bytes(self) -> FlatBytes:
        return FlatBytes(self)

    def _interface(self) -> Dict[str, Any]:
        size = self.dtype.num_bytes
        return {
            "shape": self.shape,
            "typestr": TYPESTR[self.dtype],
            "data": (self.data_ptr, False),
            "strides": tuple(stride * size for stride in self.strides),
            "version": 3,
        }

    @property
    def __array_interface__(self) -> Dict[str, Any]:
        if self.device.kind is not DeviceKind.CPU:
            raise AttributeError("__array_interface__: the tensor lies on " + str(self.device))
        interface = self._interface()
        if 0 in self.shape:  # a null pointer is refused there
            interface["data"] = (ctypes.addressof(_nothing), False)
        return interface

    @property
    def __cuda_array_interface__(self) -> Dict[str, Any]:
        if self.device.kind is not DeviceKind.CUDA:
            raise AttributeError("__cuda_array_interface__: the tensor lies on the CPU")
        return self._interface()

    def __dlpack_device__(self) -> Tuple[int, int]:
        return (1, 0) if self.device.kind is DeviceKind.CPU else (2, self.device.index)

    def __dlpack__(self, *, stream: Optional[int] = None, **_: Any) -> Any:
        from ._dlpack import make_capsule

        return make_capsule(self)

    def __repr__(self) -> str:
        return f"ferry_ep.Tensor({list(self.shape)} {self.dtype.name.lower()} on {self.device})"


class FlatBytes:
    """The bytes of a CUDA tensor, for frameworks whose interface has no type for its elements."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor
        self.__cuda_array_interface__ = {
            "shape": (tensor.num_bytes,), "typestr": "|u1", "data": (tensor.data_ptr, False),
            "strides": None, "version": 3,
        }


_nothing = ctypes.create_string_buffer(8)


def dense_strides(shape: Sequence[int]) -> Tuple[int, ...]:
    if len(shape) == 2:
        return (shape[1], 1)
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def _nested(shape: Sequence[int]) -> Any:
    return [] if len(shape) == 1 else [_nested(shape[1:]) for _ in range(shape[0])]


def _read_nested(flat: Any, shape: Sequence[int], strides: Sequence[int], first: int) -> Any:
    if not shape:
        return flat[first]
    return [_read_nested(flat, shape[1:], strides[1:], first + i * strides[0])
            for i in range(shape[0])]
