"""Normal dispatch and combine of deep_ep against the oracle: order, ids, weights, counts, payloads."""

import torch

from deep_ep_batches import Batch, assert_same, random_rows, random_topk, refuses, tokens_of
from deep_ep_oracle import Oracle
from deep_ep_ranks import RankTest


def make_buffer(ranks, **further):
    import deep_ep

    return deep_ep.Buffer(ranks.group, 1 << 20, 0, **further)


def check_received(ranks, batch, result, alignment=1, num_items=6):
    """Everything that dispatch gives, and the combine back."""
    recv_x, recv_idx, recv_weights, counts, handle, event = result
    inputs = ranks.gather((batch.x, batch.topk, batch.weights))
    oracle = Oracle([topk for _, topk, _ in inputs], batch.num_experts)
    ids, weights = oracle.received_topk(ranks.rank, [w for *_, w in inputs])
    rows = oracle.received(ranks.rank, [x for x, *_ in inputs])
    assert_same(recv_x, rows, "recv_x")
    assert_same(recv_idx, ids.to(batch.topk.dtype), "recv_topk_idx")
    assert_same(recv_weights, weights, "recv_topk_weights")
    assert all(type(count) is int for count in counts), counts
    assert counts == [-(-c // alignment) * alignment for c in oracle.counts(ranks.rank)], counts
    assert type(handle) is tuple and len(handle) == num_items
    assert all(isinstance(item, torch.Tensor) and item.device == ranks.device for item in handle)
    assert handle[3 if num_items == 6 else 7].shape[0] == rows.size(0)
    assert all(t.is_contiguous() for t in (recv_x, recv_idx, recv_weights))
    assert event.event is None
    return oracle


def check_grid(ranks):
    buffer = make_buffer(ranks)
    for base in (0, 1, 7, 64):
        for num_topk, num_local in ((1, 1), (2, 4), (4, 32), (40, 64)):
            batch = Batch(ranks, tokens_of(ranks.rank, base), num_topk=num_topk, num_local=num_local)
            result = batch.dispatch(buffer)
            oracle = check_received(ranks, batch, result)
            out, weights, _ = buffer.combine(result[0], result[4], topk_weights=result[2])
            y_of = ranks.gather(result[0])
            assert_same(out, oracle.combined(ranks.rank, y_of), "combined_x")
            own = torch.where(batch.topk >= 0, batch.weights, torch.zeros_like(batch.weights))
            assert_same(weights, own.cpu(), "combined_topk_weights")


def check_pairs(ranks):
    """Process groups of two, each with batches and buffers of its own at the same time."""
    pair = ranks.pair()
    for num_local in (1, 8):
        buffer = make_buffer(pair)
        batch = Batch(pair, 5 + 9 * ranks.rank, num_topk=2, num_local=num_local)
        result = batch.dispatch(buffer)
        oracle = check_received(pair, batch, result)
        out = buffer.combine(result[0], result[4])[0]
        assert_same(out, oracle.combined(pair.rank, pair.gather(result[0])))


def check_layout(ranks):
    buffer = make_buffer(ranks)
    batch = Batch(ranks, 20)
    arguments, event = batch.layout(buffer)
    oracle = Oracle([batch.topk.cpu()] * ranks.num_ranks, batch.num_experts)
    member = torch.zeros((20, ranks.num_ranks), dtype=torch.bool)
    for token in range(20):
        member[token, oracle.owners(0, token)] = True
    assert_same(arguments["is_token_in_rank"], member)
    assert_same(arguments["num_tokens_per_rank"], member.sum(0, dtype=torch.int32))
    per_expert = [int((batch.topk == e).sum()) for e in range(batch.num_experts)]
    assert_same(arguments["num_tokens_per_expert"], torch.tensor(per_expert, dtype=torch.int32))
    assert (arguments["num_tokens_per_rdma_rank"] is None) == (ranks.num_ranks <= 8)
    assert event.event is None


def check_routings(ranks):
    """All tokens to one rank, int32 ids, duplicates on a pair of ranks, and no token at all."""
    buffer = make_buffer(ranks)
    one_rank = torch.zeros((9, 2), dtype=torch.int64)
    one_rank[:, 1] = 1
    twice = random_topk(6, 2, 4 * ranks.num_ranks).repeat_interleave(2, dim=1)
    for topk in (one_rank, one_rank.int(), twice, torch.full((5, 2), -1, dtype=torch.int64)):
        batch = Batch(ranks, topk.size(0), topk=topk)
        check_received(ranks, batch, batch.dispatch(buffer))
    batch = Batch(ranks, 8)
    check_received(ranks, batch, batch.dispatch(buffer, expert_alignment=128), alignment=128)


def check_worst_tokens(ranks):
    buffer = make_buffer(ranks)
    batch = Batch(ranks, 10 + ranks.rank)
    exact = batch.dispatch(buffer)
    num_rows = exact[0].size(0)
    for num_worst in (16 * ranks.num_ranks, 200 * ranks.num_ranks, 13 * ranks.num_ranks):
        x, idx, weights, counts, handle, _ = batch.dispatch(buffer, num_worst_tokens=num_worst)
        assert x.size(0) == idx.size(0) == weights.size(0) == num_worst and counts == []
        assert_same(x[:num_rows], exact[0].cpu())
        assert_same(idx[:num_rows], exact[1].cpu())
        assert_same(weights[:num_rows], exact[2].cpu())
        assert bool((idx[num_rows:] == -1).all())
        out, _, _ = buffer.combine(x, handle)
        assert_same(out, buffer.combine(exact[0], exact[4])[0].cpu())


def check_without_topk(ranks):
    buffer = make_buffer(ranks)
    batch = Batch(ranks, 12)
    arguments, _ = batch.layout(buffer)
    with_topk = batch.dispatch(buffer)
    x, idx, weights, counts, handle, _ = buffer.dispatch(batch.x, **arguments)
    assert idx is None and weights is None and counts == with_topk[3]
    assert_same(x, with_topk[0].cpu())
    again = buffer.dispatch(batch.x * 2, handle=handle, num_tokens_per_rank=None, topk_idx=None)
    assert again[1:5] == (None, None, None, None) and again[5].event is None
    assert_same(again[0], (with_topk[0] * 2).cpu())


def check_internode_handle(ranks):
    buffer = make_buffer(ranks)
    batch = Batch(ranks, 11)
    result = buffer.internode_dispatch(batch.x, **batch.arguments(buffer))
    oracle = check_received(ranks, batch, result, num_items=10)
    out, weights, _ = buffer.internode_combine(result[0], result[4], topk_weights=result[2])
    assert_same(out, oracle.combined(ranks.rank, ranks.gather(result[0])))
    again = buffer.internode_dispatch(batch.x, handle=result[4])
    assert_same(again[0], result[0].cpu())
    ends = torch.tensor([len(oracle.rows(r)) for r in range(ranks.num_ranks)])[ranks.rank]
    assert int(result[4][6][-1]) == int(ends)


def check_payloads(ranks):
    """Every byte is moved as it is, NaN patterns too; scales of any width and strides."""
    buffer = make_buffer(ranks)
    batch = Batch(ranks, 16, hidden=1024)
    noise = torch.randint(0, 2**31 - 1, (16, 300), dtype=torch.int32).to(ranks.device)
    fp8 = getattr(torch, "float8_e4m3fn", torch.uint8)
    payloads = [
        (batch.x, noise[:, :8].contiguous().view(torch.float32)),
        (batch.x, noise[:, :2].t().contiguous().t()),  # column-major words
        (batch.x, noise[:, :1].contiguous().view(torch.float32)),
        (batch.x, noise[:, :23].contiguous().view(torch.float32)),
        (batch.x, noise[:, 3:9]),
        (noise[:, :256].contiguous().view(torch.uint8).view(fp8), noise[:, :8].view(torch.float32)),
        noise[:, :8].contiguous().view(torch.bfloat16),  # rows of 32 bytes
        noise[:, :256].contiguous().view(torch.bfloat16),
    ]
    oracle = Oracle(ranks.gather(batch.topk), batch.num_experts)
    for payload in payloads:
        received = buffer.dispatch(payload, **batch.arguments(buffer))[0]
        pairs = list(zip(received, payload)) if isinstance(payload, tuple) else [(received, payload)]
        assert isinstance(received, tuple) == isinstance(payload, tuple)
        for got, sent in pairs:
            sources = [one.view(sent.dtype) for one in ranks.gather(_as_words(sent))]
            assert_same(got, oracle.received(ranks.rank, sources))
            assert got.stride(-1) == 1
    refuses(AssertionError, "contiguous", buffer.dispatch, batch.x[:, ::2], **batch.arguments(buffer))
    refuses(AssertionError, "multiple of 16", buffer.dispatch, batch.x[:, :4].contiguous(),
            **batch.arguments(buffer))


def _as_words(tensor):
    tensor = tensor.contiguous()
    return tensor.view(torch.uint8) if tensor.element_size() == 1 else tensor.view(
        torch.int32 if tensor.element_size() == 4 else torch.int16)


def check_bias(ranks):
    buffer = make_buffer(ranks)
    batch = Batch(ranks, 9)
    x, _, _, _, handle, _ = batch.dispatch(buffer)
    oracle = Oracle(ranks.gather(batch.topk), batch.num_experts)
    y_of = ranks.gather(x)
    first, second = random_rows(9, 64).to(ranks.device), random_rows(9, 64).to(ranks.device)
    for bias in (first, (first, second)):
        out, weights, _ = buffer.combine(x, handle, bias=bias)
        given = [b.cpu() for b in (bias if isinstance(bias, tuple) else (bias,))]
        assert_same(out, oracle.combined(ranks.rank, y_of, given))
        assert weights is None
    refuses(AssertionError, "exactly two", buffer.combine, x, handle, bias=(first,))


def check_sums_of_unmasked_weights(ranks):
    """Weights are summed, not chosen: a column that every rank fills comes back R times."""
    buffer = make_buffer(ranks)
    batch = Batch(ranks, 7)
    x, _, weights, _, handle, _ = batch.dispatch(buffer)
    _, sums, _ = buffer.combine(x, handle, topk_weights=torch.ones_like(weights))
    num_owners = handle[4].sum(dim=1, keepdim=True).float().expand(-1, weights.size(1))
    assert_same(sums, num_owners.contiguous().cpu())


def check_growth(ranks):
    """T far above what the first call had, on one rank only; then wider rows and more experts."""
    buffer = make_buffer(ranks)
    for hidden, num_local, base in ((64, 2, 3), (64, 2, 700), (512, 2, 5), (64, 64, 5)):
        num_tokens = base if ranks.rank == 2 % ranks.num_ranks else 2
        batch = Batch(ranks, num_tokens, hidden=hidden, num_local=num_local)
        result = batch.dispatch(buffer)
        check_received(ranks, batch, result)


def check_refusals(ranks):
    import deep_ep

    buffer = make_buffer(ranks)
    batch = Batch(ranks, 5)
    arguments = batch.arguments(buffer)
    wrong = arguments["topk_idx"].clone()
    if ranks.rank == 0:
        wrong[2, 1] = batch.num_experts
    refuses(AssertionError, "out of range", buffer.dispatch, batch.x, **{**arguments, "topk_idx": wrong})
    result = batch.dispatch(buffer)  # the group lives
    check_received(ranks, batch, result)
    handle = result[4]
    refuses(AssertionError, "together", buffer.dispatch, batch.x,
            **{**arguments, "topk_weights": None})
    refuses(AssertionError, "num_tokens_per_expert is needed", buffer.dispatch, batch.x,
            **{**arguments, "num_tokens_per_expert": None})
    refuses(AssertionError, "handle", buffer.dispatch, batch.x, handle=handle, topk_idx=batch.topk,
            topk_weights=batch.weights)
    refuses(AssertionError, "expected the tuple", buffer.combine, result[0], handle[:4])
    refuses(AssertionError, "rows", buffer.combine, torch.cat((result[0], result[0][:1]))
            if result[0].size(0) else batch.x[:1], handle)
    refuses(AssertionError, "num_worst_tokens", buffer.dispatch, batch.x,
            **{**arguments, "topk_idx": None, "topk_weights": None}, num_worst_tokens=99)
    for name in ("overlap", "src_signals", "use_nvfp4", "x_global_scale", "global_expert_id_offset"):
        refuses(TypeError, name, buffer.dispatch, batch.x, **{name: None})
        refuses(TypeError, name, buffer.low_latency_dispatch, batch.x, batch.topk, 8, 8, **{name: None})
    refuses(TypeError, "num_nvl_peers", deep_ep.Buffer, ranks.group, num_nvl_peers=2)


class Normal(RankTest):
    def test_rows_ids_weights_and_counts_are_the_oracles_on_a_grid(self):
        self.check(check_grid)

    def test_groups_of_two_work_beside_each_other(self):
        self.check(check_pairs)

    def test_layout_counts_tokens_once_per_rank_and_every_selection(self):
        self.check(check_layout)

    def test_one_rank_takes_all_and_duplicates_and_empty_batches_are_served(self):
        self.check(check_routings)

    def test_num_worst_tokens_gives_that_many_rows(self):
        self.check(check_worst_tokens)

    def test_rows_move_without_topk_and_along_a_handle(self):
        self.check(check_without_topk)

    def test_internode_handles_have_ten_tensors(self):
        self.check(check_internode_handle)

    def test_every_byte_of_rows_and_scales_arrives(self):
        self.check(check_payloads)

    def test_biases_are_added_first(self):
        self.check(check_bias)

    def test_weights_are_summed_column_by_column(self):
        self.check(check_sums_of_unmasked_weights)

    def test_the_buffer_grows_with_its_batches(self):
        self.check(check_growth)

    def test_wrong_calls_are_refused_with_the_reason(self):
        self.check(check_refusals)
