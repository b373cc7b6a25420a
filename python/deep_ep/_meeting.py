"""How the ranks of a Buffer meet: once per process group, communicator or environment.

All buffers of a process group share one membership, so that a buffer is destroyed, or dropped by the
collector, without a word to the peers, and made again at little cost.
"""

from __future__ import annotations

import os
import secrets
import socket
import weakref
from typing import Any, Callable, Dict, Optional, Tuple

import ferry_ep

_by_owner: "weakref.WeakKeyDictionary[Any, ferry_ep.Group]" = weakref.WeakKeyDictionary()
_by_rank: Dict[Tuple[int, int], ferry_ep.Group] = {}


def meet(group: Any, comm: Any, rank: Optional[int], group_size: Optional[int]) -> ferry_ep.Group:
    """Collective on first use."""
    if group is not None:
        return _remembered(_by_owner, group, lambda: ferry_ep.Group.from_process_group(group))
    if comm is not None:
        try:
            return _remembered(_by_owner, comm, lambda: _meet_over(comm))
        except TypeError:  # it cannot be a weak key
            return _meet_over(comm)
    if rank is None or group_size is None:
        raise ValueError(
            "Buffer needs a process group, a communicator (comm=), or rank= and group_size= with the "
            "address of rank 0 in the environment"
        )
    place = (rank, group_size)
    return _remembered(_by_rank, place, lambda: _meet_by_rank(*place))


def _remembered(known: Any, key: Any, make: Callable[[], ferry_ep.Group]) -> ferry_ep.Group:
    group: Optional[ferry_ep.Group] = known.get(key)
    if group is not None:
        try:
            group.check()
            return group
        except ferry_ep.Error:  # a fault ends a membership on every rank
            del known[key]
    known[key] = group = make()
    return group


def _meet_over(comm: Any) -> ferry_ep.Group:
    """mpi4py's words: Get_rank, Get_size, allgather."""
    rank, size = comm.Get_rank(), comm.Get_size()
    address = os.environ.get("FERRY_ADDRESS", "")
    if not address:
        proposals = comm.allgather((socket.gethostname(), secrets.token_hex(8)))
        if len({host for host, _ in proposals}) > 1:
            raise ValueError(
                f"Buffer(comm=): the {size} ranks are on several hosts and have no address to meet "
                "at; try: FERRY_ADDRESS=<host of rank 0>:<port> and FERRY_SECRET"
            )
        address = f"unix:ferry-{proposals[0][1]}"
    return ferry_ep.Group.open(rank, size, address)


def _meet_by_rank(rank: int, group_size: int) -> ferry_ep.Group:
    if group_size == 1:
        return ferry_ep.Group.self()
    if ferry_ep.Group.is_launched():
        group = ferry_ep.Group.from_env()
        if (group.rank, group.size) != (rank, group_size):
            raise ValueError(
                f"Buffer(rank={rank}, group_size={group_size}): the launcher says rank {group.rank} "
                f"of {group.size}"
            )
        return group
    return ferry_ep.Group.open(rank, group_size, _address_in_environment(rank, group_size))


def _address_in_environment(rank: int, group_size: int) -> str:
    address = os.environ.get("FERRY_ADDRESS", "")
    if address:
        return address
    host, port = os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", "")
    if not host or not port.isdecimal():
        raise ValueError(
            f"Buffer(rank={rank}, group_size={group_size}) has no address to meet at; try: "
            "MASTER_ADDR and MASTER_PORT, or FERRY_ADDRESS=unix:<name of the job> on one host"
        )
    if host in ("localhost", "::1") or host.startswith("127."):
        return f"unix:deep-ep-{port}"
    # torch keeps MASTER_PORT for itself.
    return f"{host}:{os.environ.get('FERRY_PORT', '') or int(port) + 1}"
