"""Trains a small mixture of experts over several ranks, and the same model in one process beside it.

    python examples/moe_training.py --ranks 4                  # on the CPU
    python examples/moe_training.py --ranks 4 --device cuda    # all ranks on one GPU, or one each

Every rank holds the router and its share of the experts, and its own tokens. Losses and gradients
must equal those of the one-process model; the program ends with 1 where they do not.
"""

import argparse
import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import ferry_ep
from ferry_ep import autograd

HIDDEN, WIDE, EXPERTS, TOP_K, TOKENS, STEPS = 64, 128, 16, 2, 96, 8


class Model(torch.nn.Module):
    """A router over all experts and the two matrices of each expert that lives here."""

    def __init__(self, experts):
        super().__init__()
        torch.manual_seed(1)  # the same weights on every rank, then the rank's share of them
        self.router = torch.nn.Parameter(torch.randn(HIDDEN, EXPERTS) / HIDDEN**0.5)
        up, down = torch.randn(EXPERTS, HIDDEN, WIDE), torch.randn(EXPERTS, WIDE, HIDDEN)
        self.up = torch.nn.Parameter(up[experts] / HIDDEN**0.5)
        self.down = torch.nn.Parameter(down[experts] / WIDE**0.5)

    def choose(self, x):
        weights, topk_idx = (x @ self.router).softmax(-1).topk(TOP_K)
        return weights / weights.sum(-1, keepdim=True), topk_idx

    def run_expert(self, expert, rows):
        return torch.relu(rows @ self.up[expert]) @ self.down[expert]


def forward_over_ranks(model, exchange, x):
    weights, topk_idx = model.choose(x)
    route = exchange.route(topk_idx)
    rows, _, _ = autograd.dispatch(exchange, route, x)
    by_expert = rows.split(route.expert_counts)  # contiguous: no permutation
    y = torch.cat([model.run_expert(e, part) for e, part in enumerate(by_expert)])
    return x + autograd.combine(exchange, route, y, weights)


def forward_in_one_process(model, x):
    weights, topk_idx = model.choose(x)
    out = torch.zeros_like(x)
    for e in range(EXPERTS):
        token, k = (topk_idx == e).nonzero(as_tuple=True)
        out = out.index_add(0, token, weights[token, k, None] * model.run_expert(e, x[token]))
    return x + out


def batch(step, ranks, device):
    generator = torch.Generator().manual_seed(100 + step)
    x = torch.randn(ranks * TOKENS, HIDDEN, generator=generator)
    return x.to(device), x.roll(1, dims=1).to(device)


def add_over_ranks(tensor):
    """The sum over all ranks, through the process group's CPU backend."""
    total = tensor.detach().cpu()
    dist.all_reduce(total)
    return total.to(tensor.device)


def max_over_ranks(value):
    largest = torch.tensor([value])
    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
    return largest.item()


def train(rank, ranks, device_name, store):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    device = torch.device("cpu")
    if device_name == "cuda":
        device = torch.device("cuda", rank % torch.cuda.device_count())
        torch.cuda.set_device(device)
    torch.set_num_threads(1)

    group = ferry_ep.Group.from_process_group()
    own = slice(rank * EXPERTS // ranks, (rank + 1) * EXPERTS // ranks)
    model, whole = Model(own).to(device), Model(slice(None)).to(device)
    optimisers = [torch.optim.AdamW(m.parameters(), lr=3e-3) for m in (model, whole)]
    is_equal = True
    with ferry_ep.Exchange(group, num_experts=EXPERTS, top_k=TOP_K, hidden=HIDDEN,
                           max_tokens=TOKENS, dtype="fp32", layout="by_expert",
                           device=device) as exchange:
        for step in range(STEPS):
            x, target = batch(step, ranks, device)
            mine = slice(rank * TOKENS, (rank + 1) * TOKENS)

            # The share of the mean over all tokens; the router's gradients add over the ranks.
            loss = (forward_over_ranks(model, exchange, x[mine]) - target[mine]).square().sum() / x.numel()
            loss.backward()
            model.router.grad = add_over_ranks(model.router.grad)
            loss_over_ranks = add_over_ranks(loss).item()

            loss_in_one = (forward_in_one_process(whole, x) - target).square().mean()
            loss_in_one.backward()

            pairs = [(model.router.grad, whole.router.grad), (model.up.grad, whole.up.grad[own]),
                     (model.down.grad, whole.down.grad[own])]
            difference = max(((a - b).abs().max() / b.abs().max()).item() for a, b in pairs)
            worst = max_over_ranks(difference)
            is_equal &= abs(loss_over_ranks - loss_in_one.item()) < 1e-5 and worst < 1e-4
            if rank == 0:
                print(f"step {step}: loss over {ranks} ranks {loss_over_ranks:.6f}, in one process "
                      f"{loss_in_one.item():.6f}, gradients differ by at most {worst:.1e}", flush=True)
            for optimiser in optimisers:
                optimiser.step()
                optimiser.zero_grad()
    group.barrier()
    if rank == 0:
        print("losses and gradients are equal" if is_equal else "losses or gradients DIFFER", flush=True)
    if not is_equal:
        sys.exit(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=4, help="processes; 16 is divisible by it")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    arguments = parser.parse_args()
    if EXPERTS % arguments.ranks:
        parser.error(f"--ranks is {arguments.ranks}, expected a divisor of {EXPERTS}")
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        try:
            mp.spawn(train, (arguments.ranks, arguments.device, store), nprocs=arguments.ranks)
        except mp.ProcessExitedException as error:
            sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
