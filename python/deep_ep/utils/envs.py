"""How the ranks of DeepEP's test scripts start."""

from __future__ import annotations

import os
from typing import Any, Tuple

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
    if not is_own_gpu:
        _let_gloo_gather_stacked()
    torch.set_default_dtype(torch.bfloat16)
    if num_gpus > 0:
        torch.cuda.set_device(local_rank % num_gpus)
        torch.set_default_device("cuda")
    torch.manual_seed(seed + dist.get_rank())
    group = dist.new_group(list(range(num_nodes * num_local_ranks)))
    return dist.get_rank(), dist.get_world_size(), group


def _let_gloo_gather_stacked() -> None:
    """NCCL gathers [T, K] of R ranks into [R, T, K] as well as into [R * T, K]; gloo takes the latter."""
    gather = dist.all_gather_into_tensor

    def gather_into_tensor(
        output_tensor: torch.Tensor, input_tensor: torch.Tensor, *further: Any, **named: Any
    ) -> Any:
        if output_tensor.dim() == input_tensor.dim() + 1:
            output_tensor = output_tensor.flatten(0, 1)
        return gather(output_tensor, input_tensor, *further, **named)

    dist.all_gather_into_tensor = gather_into_tensor
