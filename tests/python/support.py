"""What the tests of the Python package share: small batches with a fixed seed, ranks as threads."""

import dataclasses

import numpy as np

import ferry_ep
from oracle import Oracle


@dataclasses.dataclass
class Batch:
    """Tokens of every rank. T differs per rank; some selections are masked."""

    num_ranks: int = 4
    num_experts: int = 8
    top_k: int = 2
    hidden: int = 64
    max_tokens: int = 16
    seed: int = 7

    def __post_init__(self):
        rng = np.random.default_rng(self.seed)
        self.topk, self.x, self.weights = [], [], []
        for rank in range(self.num_ranks):
            num_tokens = (5 * rank + 3) % (self.max_tokens + 1)
            topk = np.argsort(rng.random((num_tokens, self.num_experts)), 1)[:, : self.top_k]
            topk[rng.random(topk.shape) < 0.1] = -1
            self.topk.append(topk.astype(np.int64))
            self.x.append(rng.standard_normal((num_tokens, self.hidden)).astype(np.float32))
            self.weights.append(rng.random((num_tokens, self.top_k)).astype(np.float32))
        self.oracle = Oracle(self.topk, self.num_experts)

    def exchange(self, group, **fields):
        fields = {"num_experts": self.num_experts, "top_k": self.top_k, "hidden": self.hidden,
                  "max_tokens": self.max_tokens, "dtype": "fp32", "num_threads": 1, **fields}
        return ferry_ep.Exchange(group, **fields)

    def rows_by_rank(self, rank):
        rows = [self.x[source][token] for source, token in self.oracle.by_rank(rank)]
        return np.array(rows, np.float32).reshape(-1, self.hidden)

    def rows_by_expert(self, rank):
        rows = [self.x[source][token] for source, token, _ in self.oracle.by_expert(rank)]
        return np.array(rows, np.float32).reshape(-1, self.hidden)


def run_ranks(num_ranks, body):
    """body(group) on a thread per rank; short deadlines, so that a defect ends the test."""
    ferry_ep.Group.run_threads(num_ranks, body, arrival_timeout_ms=20000)


def self_exchange(**fields):
    """An exchange of one rank."""
    fields = {"num_experts": 4, "top_k": 2, "hidden": 16, "max_tokens": 8, "dtype": "fp32",
              "num_threads": 1, **fields}
    return ferry_ep.Exchange(ferry_ep.Group.self(), **fields)
