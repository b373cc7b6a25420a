"""Devices and streams, in the words of every framework."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any, Optional

from ._enums import DeviceKind
from ._errors import InvalidArgumentError


@dataclasses.dataclass(frozen=True)
class Device:
    """Where a tensor lies: the CPU, or a CUDA device by its index in this process."""

    kind: DeviceKind = DeviceKind.CPU
    index: int = 0

    @staticmethod
    def cpu() -> Device:
        return Device(DeviceKind.CPU, 0)

    @staticmethod
    def cuda(index: int) -> Device:
        return Device(DeviceKind.CUDA, index)

    def __str__(self) -> str:
        return "cpu" if self.kind is DeviceKind.CPU else f"cuda:{self.index}"


def to_device(value: Any) -> Device:
    """A Device, "cpu", "cuda", "cuda:1" or a torch.device. "cuda" is torch's current device, or 0."""
    if isinstance(value, Device):
        return value
    kind, _, index = str(value).partition(":")
    if kind == "cpu" and index in ("", "0"):
        return Device.cpu()
    if kind == "cuda" and (index == "" or index.isdecimal()):
        return Device.cuda(int(index) if index else _current_cuda_index())
    raise InvalidArgumentError(f"device is {str(value)!r}, expected 'cpu', 'cuda' or 'cuda:INDEX'")


def _current_cuda_index() -> int:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return int(torch.cuda.current_device())
    return 0


def to_stream(stream: Any, device: Device) -> Optional[int]:
    """The cudaStream_t to enqueue on; None on the CPU.

    Taken as given: a number, or the stream object of torch, CuPy or any library with
    `__cuda_stream__`. Not given: the caller's current stream in torch, else in CuPy, else the
    legacy default stream.
    """
    if device.kind is DeviceKind.CPU:
        return None
    if stream is None:
        return _current_stream(device.index)
    if isinstance(stream, int):
        return stream
    for attribute in ("cuda_stream", "ptr"):
        handle = getattr(stream, attribute, None)
        if isinstance(handle, int):
            return handle
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    raise InvalidArgumentError(f"stream is {stream!r}, expected a number or a stream of torch or CuPy")


def _current_stream(index: int) -> int:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return int(torch.cuda.current_stream(index).cuda_stream)
    cupy = sys.modules.get("cupy")
    if cupy is not None:
        return int(cupy.cuda.get_current_stream(index).ptr)
    return 0


def retain_for_stream(tensor: Any, stream: Any, device: Device) -> None:
    """Keeps the memory of a torch tensor until the work now on a stream given by hand is done.

    On the current stream torch's allocator already orders reuse behind that work.
    """
    if stream is None or device.kind is DeviceKind.CPU or tensor is None:
        return
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(tensor, torch.Tensor) or not tensor.is_cuda:
        return
    handle = to_stream(stream, device)
    if handle and handle != torch.cuda.current_stream(device.index).cuda_stream:
        tensor.record_stream(torch.cuda.ExternalStream(handle, device=tensor.device))
