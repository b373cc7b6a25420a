"""The native exchange behind Exchange, Route, Delivery and Pending, and who may free what when."""

from __future__ import annotations

import collections
import os
import threading
import weakref
from typing import Any, Deque, List, Optional, Tuple

from . import _library
from ._device import Device
from ._errors import InvalidArgumentError
from ._library import lib


class Arena:
    """Owns the ferry_exchange. Lives as long as the exchange and every tensor on its memory."""

    def __init__(self, handle: int) -> None:
        self.handle = handle
        self.pid = os.getpid()

    def __del__(self) -> None:
        if _library.may_free(self.pid):
            lib.ferry_exchange_free(self.handle)


class Core:
    """What the objects of one exchange share.

    The collector may drop a handle on any thread, also while another thread is inside a call on the
    same exchange. Waiting there for that call could wait for this very thread (ranks as threads), so
    dropped handles queue up and are freed by whoever can have the lock at once.
    """

    def __init__(self, arena: Arena, num_ranks: int, device: Device) -> None:
        self.arena: Optional[Arena] = arena
        self.num_ranks = num_ranks
        self.device = device
        self.lock = threading.RLock()
        self.pid = os.getpid()
        # Tensors of operations that were dropped unfinished: the next operation finishes those.
        self.abandoned: List[Any] = []
        self._dropped: Deque[Tuple[Any, Tuple[Any, ...]]] = collections.deque()
        _live.add(self)

    def alive(self) -> int:
        """The native exchange."""
        if self.pid != os.getpid():
            _library.check_process(self.pid, "an exchange")
        if self.arena is None:
            raise InvalidArgumentError("an exchange is used after it was destroyed")
        return self.arena.handle

    def drop(self, free: Any, *arguments: Any) -> None:
        """Calls free(*arguments) now or, if a call is under way, before the next one."""
        if not _library.may_free(self.pid):
            return
        if self.lock.acquire(blocking=False):
            try:
                free(*arguments)
            finally:
                self.lock.release()
        else:
            self._dropped.append((free, arguments))
            self.collect()  # the other thread may be past its own look at the queue

    def collect(self) -> None:
        while self._dropped and self.lock.acquire(blocking=False):
            try:
                while self._dropped:
                    free, arguments = self._dropped.popleft()
                    free(*arguments)
            finally:
                self.lock.release()

    def destroy(self) -> None:
        with self.lock:
            self.collect()
            self.arena = None
            self.abandoned.clear()


class Handle:
    """Owns a route, a delivery or a pending operation of an exchange."""

    __slots__ = ("core", "value", "_free", "__weakref__")

    def __init__(self, core: Core, value: Optional[int], free: Any) -> None:
        self.core = core
        self.value = value
        self._free = free

    def alive(self) -> int:
        self.core.alive()
        if self.value is None:
            raise InvalidArgumentError("a delivery is used after release()")
        return self.value

    def release(self) -> None:
        value, self.value = self.value, None
        if value is not None:
            self.core.drop(self._free, value)

    def given_back(self) -> Handle:
        """A handle that holds nothing, to take the place of this one: tensors may share this."""
        return Handle(self.core, None, self._free)

    def __del__(self) -> None:
        self.release()


class Lease:
    """What a tensor on the exchange's memory keeps alive."""

    __slots__ = ("arena", "handle")

    def __init__(self, arena: Optional[Arena], handle: Any) -> None:
        self.arena = arena
        self.handle = handle


_live: weakref.WeakSet[Core] = weakref.WeakSet()


def shut_down() -> None:
    """Before the interpreter ends: exchanges without tensors go now, while devices still work."""
    for core in list(_live):
        if core.pid == os.getpid() and core.lock.acquire(blocking=False):
            core.destroy()
            core.lock.release()
    _library._stop_freeing()
