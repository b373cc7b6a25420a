"""Dispatch and combine as deep_ep defines them, written for obviousness: lists of rows."""

import torch


class Oracle:
    """What every rank receives and sums, from the inputs of all ranks (tensors on the CPU).

    A token goes once to every rank that has one of its experts; rows are sorted by source rank, then by
    token.
    """

    def __init__(self, topk_of, num_experts):
        self.topk_of = topk_of
        self.num_ranks = len(topk_of)
        self.num_local = num_experts // self.num_ranks

    def owners(self, source, token):
        ids = self.topk_of[source][token].tolist()
        return sorted({expert // self.num_local for expert in ids if expert >= 0})

    def rows(self, rank):
        """(source, token) of each row of a rank."""
        return [
            (source, token)
            for source in range(self.num_ranks)
            for token in range(len(self.topk_of[source]))
            if rank in self.owners(source, token)
        ]

    def received(self, rank, values_of):
        """values_of[source][token], row by row."""
        rows = [values_of[source][token] for source, token in self.rows(rank)]
        return torch.stack(rows) if rows else values_of[0][:0]

    def received_topk(self, rank, weights_of):
        ids = self.received(rank, self.topk_of) - rank * self.num_local
        weights = self.received(rank, weights_of)
        is_local = (ids >= 0) & (ids < self.num_local)
        return ids.where(is_local, torch.full_like(ids, -1)), weights * is_local

    def counts(self, rank):
        """Selections of each expert of a rank."""
        ids = torch.cat([topk.flatten() for topk in self.topk_of])
        first = rank * self.num_local
        return [int((ids == first + local).sum()) for local in range(self.num_local)]

    def combined(self, source, y_of, bias=()):
        """fp32 sums by ascending rank, biases first, rounded once to y's dtype."""
        place_of = [{row: i for i, row in enumerate(self.rows(r))} for r in range(self.num_ranks)]
        sums = []
        for token in range(len(self.topk_of[source])):
            total = torch.zeros(y_of[0].size(1), dtype=torch.float32)
            for one in bias:
                total = total + one[token].float()
            for rank in self.owners(source, token):
                total = total + y_of[rank][place_of[rank][source, token]].float()
            sums.append(total.to(y_of[0].dtype))
        return torch.stack(sums) if sums else y_of[0].new_empty((0, y_of[0].size(1)))

    def expert_rows(self, rank, local):
        """(source, token, k) of each low-latency row of an expert."""
        expert = rank * self.num_local + local
        return [
            (source, token, k)
            for source, topk in enumerate(self.topk_of)
            for token, ids in enumerate(topk.tolist())
            for k, one in enumerate(ids)
            if one == expert
        ]
