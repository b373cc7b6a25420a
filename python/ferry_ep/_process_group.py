"""Meeting over a torch.distributed process group."""

from __future__ import annotations

import os
import secrets
import socket
from typing import Any, List, Tuple

from ._group import Group


def open_from_process_group(process_group: Any, **options: Any) -> Group:
    import torch.distributed as dist

    rank, size = dist.get_rank(process_group), dist.get_world_size(process_group)
    with _Proposal(rank) as proposal:
        proposals: List[Any] = [None] * size
        own = (_host(), proposal.name, proposal.endpoint, proposal.secret)
        dist.all_gather_object(proposals, own, group=process_group)
    hosts = {host for host, *_ in proposals}
    _, name, endpoint, secret = proposals[0]
    # One host meets over a Unix socket and needs neither a port nor a secret.
    address = f"unix:{name}" if len(hosts) == 1 else endpoint
    return Group.open(rank, size, address, secret=secret, **options)


class _Proposal:
    """Where rank 0 would meet the others. The port stays taken until all know it."""

    def __init__(self, rank: int) -> None:
        self.name = self.endpoint = self.secret = ""
        self._socket = socket.socket() if rank == 0 else None

    def __enter__(self) -> _Proposal:
        if self._socket is not None:
            self._socket.bind(("", 0))
            self.name = f"ferry-{secrets.token_hex(8)}"
            self.endpoint = f"{_own_address()}:{self._socket.getsockname()[1]}"
            self.secret = secrets.token_hex(32)
        return self

    def __exit__(self, *_: object) -> None:
        if self._socket is not None:
            self._socket.close()


def _own_address() -> str:
    """This host's address towards the others: a host name may well mean the loopback here."""
    master = os.environ.get("MASTER_ADDR", "")
    for target in (master, "192.0.2.1"):  # the second is nobody's: what the default route would use
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((target, 9))  # sends nothing
            except OSError:
                continue
            address = str(probe.getsockname()[0])
            if not address.startswith("127."):
                return address
    return master or "127.0.0.1"


def _host() -> Tuple[str, int]:
    """Equal for two processes that can meet over an abstract Unix socket."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot = file.read().strip()
    return boot, os.stat("/proc/self/ns/net").st_ino
