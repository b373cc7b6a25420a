"""Dispatch and combine in NumPy, written for obviousness: ranks are list entries."""

import numpy as np


class Oracle:
    """topk[r]: [T_r, K] ids of rank r's tokens; experts lie in blocks unless `owner` says otherwise."""

    def __init__(self, topk, num_experts, owner=None):
        self.topk = topk
        self.num_ranks = len(topk)
        per_rank = num_experts // self.num_ranks
        self.owner = owner or [e // per_rank for e in range(num_experts)]

    def local_experts(self, rank):
        return [e for e, owner in enumerate(self.owner) if owner == rank]

    def by_rank(self, rank):
        """(source rank, source token) of each row that `rank` receives, in order."""
        return [(source, token)
                for source, topk in enumerate(self.topk)
                for token, ids in enumerate(topk)
                if any(e >= 0 and self.owner[e] == rank for e in ids)]

    def by_expert(self, rank):
        """(source rank, source token, k) of each row, experts one after the other, no alignment."""
        return [(source, token, k)
                for expert in self.local_experts(rank)
                for source, topk in enumerate(self.topk)
                for token, ids in enumerate(topk)
                for k, e in enumerate(ids) if e == expert]

    def local_topk(self, rank):
        """The ids of by_rank rows as local ids, -1 where the expert lives elsewhere."""
        local = {e: i for i, e in enumerate(self.local_experts(rank))}
        return np.array([[local.get(e, -1) for e in self.topk[source][token]]
                         for source, token in self.by_rank(rank)],
                        self.topk[0].dtype).reshape(-1, self.topk[0].shape[1])

    def num_destinations(self, rank):
        return np.array([len({self.owner[e] for e in ids if e >= 0}) for ids in self.topk[rank]])
