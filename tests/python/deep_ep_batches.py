"""Random batches for the tests of deep_ep: integers that bf16 holds exactly, T different per rank."""

import torch


def random_rows(num_tokens, hidden, dtype=torch.bfloat16, limit=100):
    return torch.randint(-limit, limit + 1, (num_tokens, hidden)).to(dtype)


def random_topk(num_tokens, num_topk, num_experts, num_masked=0):
    """Distinct experts per token; some selections -1."""
    ids = torch.stack([torch.randperm(num_experts)[:num_topk] for _ in range(num_tokens)] or
                      [torch.empty(num_topk, dtype=torch.int64)])[:num_tokens]
    for _ in range(num_masked if num_tokens else 0):
        ids[torch.randint(num_tokens, (1,)), torch.randint(num_topk, (1,))] = -1
    return ids


class Batch:
    """One rank's batch on the device of its checks."""

    def __init__(self, ranks, num_tokens, hidden=64, num_topk=4, num_local=4, topk=None):
        self.num_experts = num_local * ranks.num_ranks
        if topk is None:
            topk = random_topk(num_tokens, num_topk, self.num_experts, num_masked=3)
        self.x = random_rows(num_tokens, hidden).to(ranks.device)
        self.topk = topk.to(ranks.device)
        self.weights = torch.rand(topk.shape, dtype=torch.float32).to(ranks.device)

    def layout(self, buffer, **flags):
        """dispatch's arguments that come from the layout, and the layout's event."""
        per_rank, per_node, per_expert, member, event = buffer.get_dispatch_layout(
            self.topk, self.num_experts, **flags
        )
        return {
            "num_tokens_per_rank": per_rank,
            "num_tokens_per_rdma_rank": per_node,
            "is_token_in_rank": member,
            "num_tokens_per_expert": per_expert,
        }, event

    def arguments(self, buffer):
        return {**self.layout(buffer)[0], "topk_idx": self.topk, "topk_weights": self.weights}

    def dispatch(self, buffer, **further):
        return buffer.dispatch(self.x, **self.arguments(buffer), **further)


def tokens_of(rank, base):
    """A different T on every rank, zero on one of them."""
    return (base * (rank + 1) * 7 // 4) % (base + 1) if rank != 1 else 0


def assert_same(got, expected, what=""):
    """The same shape, dtype and bits."""
    got = got.cpu()
    assert got.dtype == expected.dtype, f"{what}: {got.dtype}, expected {expected.dtype}"
    assert got.shape == expected.shape, f"{what}: {list(got.shape)}, expected {list(expected.shape)}"
    a, b = (one.contiguous().flatten().view(torch.uint8) if one.numel() else one.flatten()
            for one in (got, expected.contiguous()))
    assert torch.equal(a, b), f"{what}: values differ\n{got}\nexpected\n{expected}"


def refuses(kind, words, function, *arguments, **named):
    """The call raises ``kind`` with ``words`` in its text."""
    try:
        function(*arguments, **named)
    except kind as error:
        assert words in str(error), f"{error!r} does not say {words!r}"
    else:
        raise AssertionError(f"nothing was raised, expected {kind.__name__} with {words!r}")
