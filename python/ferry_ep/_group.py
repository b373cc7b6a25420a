"""The ranks that exchange tokens."""

from __future__ import annotations

import ctypes
import os
from types import TracebackType
from typing import Any, Callable, List, Optional, Type

from . import _library
from ._errors import Error, InvalidArgumentError
from ._library import check, lib
from ._structs import GroupConfigStruct


class Group:
    """One rank's membership in a group. Made by from_env, open, self, run_threads or
    from_process_group; use it from one thread at a time.

    The membership ends with `leave()`, at the end of a `with` block, or when the group and every
    exchange on it are gone. Peers that still wait for this rank then get PeerLostError.
    """

    def __init__(self, handle: int, is_borrowed: bool = False) -> None:
        """Not for programs: takes over a ferry_group."""
        self._handle: Optional[int] = handle
        self._is_borrowed = is_borrowed
        self._pid = os.getpid()

    @staticmethod
    def from_env() -> Group:
        """Joins the group that torchrun, mpirun, srun or FERRY_RANK, FERRY_SIZE and FERRY_ADDRESS
        describe. Blocks until every rank has joined.

        Raises InvalidArgumentError for a malformed environment, TimeoutError naming the ranks that
        did not come, UnavailableError where ranks on several hosts share no secret.
        """
        return _open(lib.ferry_group_from_env)

    @staticmethod
    def is_launched() -> bool:
        """Whether a launcher has described a rank to this process."""
        return bool(lib.ferry_group_is_launched())

    @staticmethod
    def open(rank: int, size: int, address: str, *, secret: str = "", num_pretended_nodes: int = 0,
             meeting_timeout_ms: int = 0, arrival_timeout_ms: int = 0,
             progress_timeout_ms: int = 0) -> Group:
        """The same from an explicit description. `address` is "unix:NAME" (one host, any text the
        ranks share) or "HOST:PORT" of rank 0; times of 0 take the environment's.
        """
        config = GroupConfigStruct(
            rank=rank, size=size, address=_encode("address", address),
            secret=_encode("secret", secret), num_pretended_nodes=num_pretended_nodes,
            meeting_timeout_ms=meeting_timeout_ms, arrival_timeout_ms=arrival_timeout_ms,
            progress_timeout_ms=progress_timeout_ms)
        return _open(lib.ferry_group_open, ctypes.byref(config))

    @staticmethod
    def self() -> Group:
        """A group of one rank; every operation is local. Never blocks."""
        return _open(lib.ferry_group_self)

    @staticmethod
    def from_process_group(process_group: Any = None, *, num_pretended_nodes: int = 0,
                           meeting_timeout_ms: int = 0, arrival_timeout_ms: int = 0,
                           progress_timeout_ms: int = 0) -> Group:
        """The ranks of a torch.distributed process group of any backend, gloo included; None is
        the default group. Collective. torch carries the address and the secret, nothing else.
        """
        from ._process_group import open_from_process_group

        return open_from_process_group(
            process_group, num_pretended_nodes=num_pretended_nodes,
            meeting_timeout_ms=meeting_timeout_ms, arrival_timeout_ms=arrival_timeout_ms,
            progress_timeout_ms=progress_timeout_ms)

    @staticmethod
    def run_threads(num_ranks: int, body: Callable[[Group], object], *,
                    num_pretended_nodes: int = 0, arrival_timeout_ms: int = 0,
                    progress_timeout_ms: int = 0) -> None:
        """Runs `body(group)` once per rank, each on a thread of its own, and joins them all.

        Raises the exception that was raised first; a rank that raises leaves the group, so that
        its peers do not wait for it. A body's group ends with the body.
        """
        _library.remember_open()
        raised: List[BaseException] = []

        def run(handle: Optional[int], _user: Optional[int]) -> int:
            group = Group(handle or 0, is_borrowed=True)
            try:
                body(group)
                return 0
            except BaseException as error:
                raised.append(error)
                group.leave()
                return 7
            finally:
                group._handle = None

        config = GroupConfigStruct(
            num_pretended_nodes=num_pretended_nodes, arrival_timeout_ms=arrival_timeout_ms,
            progress_timeout_ms=progress_timeout_ms)
        status = lib.ferry_group_run_threads(num_ranks, ctypes.byref(config),
                                             _library.RANK_BODY(run), None)
        if raised:
            raise raised[0]
        check(status)

    def _alive(self) -> int:
        if self._pid != os.getpid():
            _library.check_process(self._pid, "a group")
        if self._handle is None:
            raise InvalidArgumentError("a group is used after its end")
        return self._handle

    @property
    def rank(self) -> int:
        return _library.read_i32(lib.ferry_group_rank, self._alive())

    @property
    def size(self) -> int:
        return _library.read_i32(lib.ferry_group_size, self._alive())

    @property
    def num_nodes(self) -> int:
        """Nodes are numbered by their lowest rank; their ranks can map each other's memory."""
        return _library.read_i32(lib.ferry_group_num_nodes, self._alive())

    @property
    def node(self) -> int:
        return _library.read_i32(lib.ferry_group_node, self._alive())

    @property
    def local_rank(self) -> int:
        return _library.read_i32(lib.ferry_group_local_rank, self._alive())

    def node_of(self, rank: int) -> int:
        """The node of a rank."""
        node = ctypes.c_int32()
        check(lib.ferry_group_node_of(self._alive(), rank, ctypes.byref(node)))
        return node.value

    def all_gather(self, content: bytes) -> List[bytes]:
        """Every rank's bytes, of any length each, in rank order. Collective, blocking; for set-up."""
        gathered = ctypes.c_void_p()
        num_ranks = self.size
        check(lib.ferry_group_all_gather(self._alive(), content, len(content),
                                         ctypes.byref(gathered)))
        try:
            out = []
            for rank in range(num_ranks):
                first, length = ctypes.c_void_p(), ctypes.c_size_t()
                check(lib.ferry_gathered_from_rank(gathered, rank, ctypes.byref(first),
                                                   ctypes.byref(length)))
                out.append(ctypes.string_at(first.value or 0, length.value) if length.value else b"")
            return out
        finally:
            lib.ferry_gathered_free(gathered)

    def barrier(self) -> None:
        """Collective, blocking."""
        check(lib.ferry_group_barrier(self._alive()))

    def check(self) -> None:
        """Raises the group's sticky fault (PeerLostError, TimeoutError), if there is one."""
        check(lib.ferry_group_check(self._alive()))

    def leave(self) -> None:
        """Ends the membership. Idempotent, never blocks, and allowed after the group's end."""
        if self._handle is not None and self._pid == os.getpid():
            check(lib.ferry_group_leave(self._handle))

    def __enter__(self) -> Group:
        self._alive()
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.leave()

    def __del__(self) -> None:
        handle = getattr(self, "_handle", None)
        if handle is not None and not self._is_borrowed and _library.may_free(self._pid):
            self._handle = None
            lib.ferry_group_free(handle)

    def __repr__(self) -> str:
        try:
            return f"ferry_ep.Group(rank {self.rank} of {self.size})"
        except Error:
            return "ferry_ep.Group(ended)"


def _open(function: Any, *arguments: Any) -> Group:
    _library.remember_open()
    handle = ctypes.c_void_p()
    check(function(*arguments, ctypes.byref(handle)))
    return Group(handle.value or 0)


def _encode(name: str, text: str) -> Optional[bytes]:
    if "\0" in text:
        raise InvalidArgumentError(f"{name} contains a NUL character")
    return text.encode() or None
