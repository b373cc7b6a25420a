"""Gradients through dispatch and combine: what autograd gives for the same model in one process."""

import unittest

import torch

from ferry_ep import autograd
from support import Batch, run_ranks


def reference(batch, rank, x, weights, matrices, weighted):
    """One rank's output in one process: token t through its experts' matrices."""
    out = torch.zeros_like(x)
    for k in range(batch.top_k):
        ids = torch.from_numpy(batch.topk[rank][:, k])
        chosen = matrices[ids.clamp(min=0)]
        rows = torch.einsum("th,thg->tg", x, chosen)
        scale = weights[:, k : k + 1] if weighted else 1.0
        out = out + torch.where((ids >= 0)[:, None], scale * rows, torch.zeros(()))
    return out


class Gradients(unittest.TestCase):
    def run_weighted(self, layout, sizing, weighted=True, weights_travel=False):
        batch = Batch(hidden=16)
        torch.manual_seed(3)
        matrices = torch.randn(batch.num_experts, 16, 16) / 4
        targets = [torch.randn(len(x), 16) for x in batch.x]
        expected = []
        shared = matrices.clone().requires_grad_()
        for rank in range(batch.num_ranks):
            x = torch.from_numpy(batch.x[rank]).clone().requires_grad_()
            w = torch.from_numpy(batch.weights[rank]).clone().requires_grad_()
            out = reference(batch, rank, x, w, shared, weighted)
            (out * targets[rank]).sum().backward()
            expected.append((out.detach(), x.grad, w.grad))

        def body(group):
            rank = group.rank
            first = rank * 2
            own = matrices[first : first + 2].clone().requires_grad_()
            x = torch.from_numpy(batch.x[rank]).clone().requires_grad_()
            w = torch.from_numpy(batch.weights[rank]).clone().requires_grad_()
            with batch.exchange(group, layout=layout) as exchange:
                route = exchange.route(torch.from_numpy(batch.topk[rank]), sizing=sizing)
                sent = w if weights_travel else None
                rows, row_weights, delivery = autograd.dispatch(exchange, route, x, sent)
                experts = delivery.row_expert.long().clamp(min=0)
                y = torch.einsum("...h,...hg->...g", rows, own[experts])
                if weights_travel:
                    y = y * row_weights.unsqueeze(-1)
                out = autograd.combine(exchange, route, y,
                                       w if weighted and not weights_travel else None)
                (out * targets[rank]).sum().backward()

                close = {"rtol": 1e-4, "atol": 1e-5}
                torch.testing.assert_close(out.detach(), expected[rank][0], **close)
                torch.testing.assert_close(x.grad, expected[rank][1], **close)
                if weighted:
                    torch.testing.assert_close(w.grad, expected[rank][2], **close)
                torch.testing.assert_close(own.grad, shared.grad[first : first + 2], **close)

        run_ranks(batch.num_ranks, body)

    def test_weighted_combine_by_expert(self):
        self.run_weighted("by_expert", "exact")

    def test_weighted_combine_padded(self):
        self.run_weighted("padded", "exact")

    def test_weighted_combine_worst_case(self):
        self.run_weighted("by_expert", "worst_case")

    def test_unweighted_combine(self):
        self.run_weighted("by_expert", "exact", weighted=False)

    def test_weights_that_travel_with_the_rows(self):
        self.run_weighted("by_expert", "exact", weights_travel=True)

    def test_by_rank_weights_have_a_column_per_k(self):
        batch = Batch(hidden=16)

        def body(group):
            rank = group.rank
            x = torch.from_numpy(batch.x[rank]).clone().requires_grad_()
            w = torch.from_numpy(batch.weights[rank]).clone().requires_grad_()
            with batch.exchange(group) as exchange:
                route = exchange.route(torch.from_numpy(batch.topk[rank]))
                rows, row_weights, _ = autograd.dispatch(exchange, route, x, w)
                out = autograd.combine(exchange, route, rows * row_weights.sum(-1, keepdim=True))
                out.sum().backward()
                used = torch.from_numpy(batch.topk[rank] >= 0)
                torch.testing.assert_close(x.grad, (w * used).sum(1, keepdim=True).expand_as(x))
                torch.testing.assert_close(w.grad, used * x.detach().sum(1, keepdim=True))

        run_ranks(batch.num_ranks, body)

    def test_the_same_inputs_give_the_same_bits(self):
        batch = Batch()
        outs = {0: [], 1: []}

        def body(group):
            rank = group.rank
            with batch.exchange(group, layout="by_expert") as exchange:
                for threads in range(2):
                    x = torch.from_numpy(batch.x[rank]).clone().requires_grad_()
                    route = exchange.route(torch.from_numpy(batch.topk[rank]))
                    rows, _, _ = autograd.dispatch(exchange, route, x)
                    out = autograd.combine(exchange, route, rows.tanh())
                    out.square().sum().backward()
                    outs[threads].append((rank, out.detach(), x.grad))

        torch.use_deterministic_algorithms(True)
        try:
            run_ranks(batch.num_ranks, body)
        finally:
            torch.use_deterministic_algorithms(False)
        for first, second in zip(*(sorted(outs[i], key=lambda row: row[0]) for i in range(2))):
            self.assertTrue(torch.equal(first[1], second[1]) and torch.equal(first[2], second[2]))


if __name__ == "__main__":
    unittest.main()
