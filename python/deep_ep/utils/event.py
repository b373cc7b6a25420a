"""Events that say when a call's results are there."""

from __future__ import annotations

from typing import Any, Callable, Optional, Tuple

import torch

from deep_ep._refusal import Refused, require


class EventHandle:
    """A point in the current CUDA stream. Where no CUDA is in use every point has been reached."""

    def __init__(self) -> None:
        self._event: Optional[torch.cuda.Event] = None
        # Asking for the current stream would create a context; without one nothing is in flight.
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            self._event = torch.cuda.Event()
            self._event.record(torch.cuda.current_stream())

    def current_stream_wait(self) -> None:
        """Makes the current stream wait for the point; the host does not wait."""
        if self._event is not None:
            torch.cuda.current_stream().wait_event(self._event)

    def stream_wait(self, stream: "torch.cuda.Stream") -> None:
        if self._event is not None:
            stream.wait_event(self._event)


class EventOverlap:
    """What every call returns beside its results; ``event`` is None where nothing is to be waited for.

    ``extra_tensors`` are kept alive as long as this object is.
    """

    def __init__(
        self, event: Optional[EventHandle] = None, extra_tensors: Optional[Tuple[Any, ...]] = None
    ) -> None:
        self.event = event
        self.extra_tensors = extra_tensors
        self.hook_after_wait: Optional[Callable[[], Any]] = None
        self._releases_handle = False

    def current_stream_wait(self, release_handle: bool = False) -> None:
        """Makes the current stream wait for the event, then runs ``hook_after_wait`` once."""
        event = self.event
        if event is None:
            raise Refused("current_stream_wait: this EventOverlap holds no event")
        event.current_stream_wait()
        hook, self.hook_after_wait = self.hook_after_wait, None
        if hook is not None:
            hook()
        if release_handle:
            self.event = None
            self.extra_tensors = None

    def __call__(self, release_handle: bool = False) -> "EventOverlap":
        self._releases_handle = release_handle
        return self

    def __enter__(self) -> "EventOverlap":
        return self

    def __exit__(self, *_: Any) -> None:
        if self.event is not None:
            self.current_stream_wait(self._releases_handle)


def handle_of(previous_event: Any) -> Optional[EventHandle]:
    """The event of an EventOverlap or EventHandle; an overlap that holds None is no event."""
    if previous_event is None or isinstance(previous_event, EventHandle):
        return previous_event
    require(
        isinstance(previous_event, EventOverlap),
        f"previous_event is a {type(previous_event).__name__}, expected an EventOverlap or None",
    )
    event: Optional[EventHandle] = previous_event.event
    return event
