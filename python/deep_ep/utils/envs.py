"""How the ranks of DeepEP's test scripts start."""

from __future__ import annotations

import os
from typing import Tuple

import torch
import torch.distributed as dist


def init_dist(
    local_rank: int, num_local_ranks: int, seed: int = 0
) -> Tuple[int, int, dist.ProcessGroup]:
    """Joins the process group of WORLD_SIZE nodes, of which this is number RANK.

    Returns this process's rank, the number of ranks and the group. With at least as many GPUs as local
    ranks the group is NCCL's and each rank has a GPU of its own. Otherwise ranks share GPUs in turn (or
    have none), and the group is gloo's, since NCCL refuses two ranks on one GPU.
    """
    num_nodes, node = int(os.getenv("WORLD_SIZE", "1")), int(os.getenv("RANK", "0"))
    address = f"{os.getenv('MASTER_ADDR', '127.0.0.1')}:{os.getenv('MASTER_PORT', '8361')}"
    num_gpus = torch.cuda.device_count()
    is_own_gpu = num_gpus >= num_local_ranks
    dist.init_process_group(
        backend="nccl" if is_own_gpu else "gloo",
        init_method=f"tcp://{address}",
        world_size=num_nodes * num_local_ranks,
        rank=node * num_local_ranks + local_rank,
    )
    torch.set_default_dtype(torch.bfloat16)
    if num_gpus > 0:
        torch.cuda.set_device(local_rank % num_gpus)
        torch.set_default_device("cuda")
    torch.manual_seed(seed + dist.get_rank())
    group = dist.new_group(list(range(num_nodes * num_local_ranks)))
    return dist.get_rank(), dist.get_world_size(), group
