"""A decoding loop in low latency, with two micro-batches in flight.

    python examples/decoding.py --ranks 4                  # on the CPU
    python examples/decoding.py --ranks 4 --device cuda    # all ranks on one GPU, or one each

While one micro-batch's rows travel, the experts work on the other's. Routes are made without waiting
for the host, shapes stay fixed ([E_l, R*max_tokens, H] with counts), as a captured graph needs them.
Every step is compared with the same step without an exchange; the program ends with 1 if a bit
differs.
"""

import argparse
import secrets
import sys

import torch
import torch.multiprocessing as mp

import ferry_ep

HIDDEN, VOCABULARY, EXPERTS, TOP_K, TOKENS, STEPS = 256, 512, 16, 4, 8, 6


class Weights:
    """The same on every rank: embedding, router, and each expert's scale per channel."""

    def __init__(self, device):
        generator = torch.Generator().manual_seed(1)

        def make(*shape):
            return torch.randn(*shape, generator=generator).to(torch.bfloat16).to(device)

        self.embedding = make(VOCABULARY, HIDDEN)
        self.router = make(HIDDEN, EXPERTS)
        self.scale = make(EXPERTS, HIDDEN)

    def choose(self, hidden):
        weights, topk_idx = (hidden @ self.router).float().softmax(-1).topk(TOP_K)
        return weights.contiguous(), topk_idx

    def next_token(self, hidden):
        return (hidden @ self.embedding.T).argmax(-1)


class MicroBatch:
    """TOKENS sequences of this rank, one step at a time."""

    def __init__(self, weights, tokens):
        self.weights, self.tokens = weights, tokens

    def send(self, exchange):
        self.hidden = self.weights.embedding[self.tokens]
        self.topk_weights, self.topk_idx = self.weights.choose(self.hidden)
        self.route = exchange.route(self.topk_idx, sizing="worst_case")
        self.sent = exchange.begin_dispatch(self.route, self.hidden)

    def run_experts(self, exchange, local):
        rows = self.sent.finish().tokens  # [E_l, R*max_tokens, H]; rows beyond the counts are unused
        self.y = rows * self.weights.scale[local][:, None]
        self.returned = exchange.begin_combine(self.route, self.y, topk_weights=self.topk_weights)

    def receive(self):
        out = self.returned.finish()
        is_equal = torch.equal(out, self.without_exchange())
        self.tokens = self.weights.next_token(out)
        return is_equal

    def without_exchange(self):
        total = torch.zeros(self.hidden.shape, device=self.hidden.device)
        for k in range(TOP_K):
            rows = self.hidden * self.weights.scale[self.topk_idx[:, k]]
            total += self.topk_weights[:, k : k + 1] * rows.float()
        return total.to(torch.bfloat16)


def decode(rank, ranks, device_name, address):
    device = torch.device("cpu")
    if device_name == "cuda":
        device = torch.device("cuda", rank % torch.cuda.device_count())
        torch.cuda.set_device(device)
    torch.set_num_threads(1)

    group = ferry_ep.Group.open(rank, ranks, address)
    weights = Weights(device)
    local = slice(rank * EXPERTS // ranks, (rank + 1) * EXPERTS // ranks)
    first = (torch.arange(2 * TOKENS, device=device) + rank) % VOCABULARY
    batches = [MicroBatch(weights, first[:TOKENS]), MicroBatch(weights, first[TOKENS:])]
    is_equal = True
    with ferry_ep.Exchange(group, num_experts=EXPERTS, top_k=TOP_K, hidden=HIDDEN,
                           max_tokens=TOKENS, mode="low_latency", layout="padded",
                           device=device) as exchange:
        for step in range(STEPS):
            for batch in batches:
                batch.send(exchange)
            for batch in batches:
                batch.run_experts(exchange, local)
            is_equal &= all([batch.receive() for batch in batches])
            if rank == 0:
                ids = " ".join(f"{token:3d}" for token in batches[0].tokens.tolist())
                print(f"step {step}: rank 0's first micro-batch continues with {ids}", flush=True)
        if device.type == "cuda":
            torch.cuda.synchronize()
        exchange.check()
        group.barrier()
    if rank == 0:
        print("every step is bit for bit that without an exchange" if is_equal else "steps DIFFER",
              flush=True)
    if not is_equal:
        sys.exit(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=4, help="processes; 16 is divisible by it")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    arguments = parser.parse_args()
    if EXPERTS % arguments.ranks:
        parser.error(f"--ranks is {arguments.ranks}, expected a divisor of {EXPERTS}")
    address = f"unix:decoding-{secrets.token_hex(8)}"
    try:
        mp.spawn(decode, (arguments.ranks, arguments.device, address), nprocs=arguments.ranks)
    except mp.ProcessExitedException as error:
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
