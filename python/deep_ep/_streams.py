"""On which stream a call runs, and how its results reach the caller's stream."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterable, Optional

import torch

from deep_ep._refusal import require
from deep_ep._routes import find_route
from deep_ep.utils.event import EventHandle, EventOverlap, handle_of


def is_capturing() -> bool:
    return bool(
        torch.cuda.is_available()
        and torch.cuda.is_initialized()
        and torch.cuda.is_current_stream_capturing()
    )


class Passage:
    """One call's way through the streams; a context manager.

    A synchronous call runs on the caller's stream. An asynchronous one runs, and allocates, on the
    buffer's communication stream, behind ``previous_event`` if there is one and else behind all that the
    caller's stream holds. On the CPU there are no streams.
    """

    def __init__(
        self,
        device: torch.device,
        comm_stream: Callable[[], "torch.cuda.Stream"],
        previous_event: Any = None,
        async_finish: bool = False,
        allocate_on_comm_stream: bool = False,
    ) -> None:
        self._previous = handle_of(previous_event)
        require(
            not allocate_on_comm_stream or (self._previous is not None and async_finish),
            "allocate_on_comm_stream needs both a previous_event that holds an event and async_finish",
        )
        self._is_async = async_finish
        self._is_cuda = device.type == "cuda"
        self._device = device
        self._comm_stream = comm_stream
        self._caller: Optional["torch.cuda.Stream"] = None
        self._scopes = contextlib.ExitStack()

    def __enter__(self) -> "Passage":
        if not self._is_cuda:
            return self
        self._scopes.enter_context(torch.cuda.device(self._device))
        self._caller = torch.cuda.current_stream(self._device)
        if not self._is_async:
            if self._previous is not None:
                self._previous.current_stream_wait()
            return self
        comm = self._comm_stream()
        require(comm != self._caller, "the current stream is the buffer's communication stream")
        if self._previous is not None:
            self._previous.stream_wait(comm)
        else:
            comm.wait_stream(self._caller)
        self._scopes.enter_context(torch.cuda.stream(comm))
        return self

    def __exit__(self, *exception: Any) -> None:
        self._scopes.close()

    def finish(self, inputs: Iterable[Any], outputs: Iterable[Any]) -> EventOverlap:
        """Called inside the scope, last: the event of what was issued in it.

        Tensors are remembered by the streams that use them, so that their memory is not handed out
        again too early.
        """
        if not self._is_async:
            return EventOverlap()
        if self._caller is not None:
            comm = torch.cuda.current_stream(self._device)
            for tensor in _cuda_tensors(inputs):
                tensor.record_stream(comm)
            for tensor in _cuda_tensors(outputs):
                tensor.record_stream(self._caller)
                kept = find_route(tensor)
                if kept is not None and kept.backing is not None:
                    kept.backing.record_stream(self._caller)
        return EventOverlap(EventHandle())


def _cuda_tensors(values: Iterable[Any]) -> Iterable[torch.Tensor]:
    for value in values:
        if isinstance(value, (tuple, list)):
            yield from _cuda_tensors(value)
        elif isinstance(value, torch.Tensor) and value.is_cuda:
            yield value
