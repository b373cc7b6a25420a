"""Every operation against the oracle, ranks as threads, NumPy tensors."""

import unittest

import numpy as np

import ferry_ep
from support import Batch, run_ranks, self_exchange


class Dispatch(unittest.TestCase):
    def test_by_rank_delivers_each_token_once_in_source_order(self):
        batch = Batch()

        def body(group):
            rank = group.rank
            with batch.exchange(group) as exchange:
                route = exchange.route(batch.topk[rank])
                delivery = exchange.dispatch(route, batch.x[rank])

                np.testing.assert_array_equal(delivery.tokens, batch.rows_by_rank(rank))
                np.testing.assert_array_equal(delivery.topk_idx, batch.oracle.local_topk(rank))
                sources = [source for source, _ in batch.oracle.by_rank(rank)]
                counts = [sources.count(source) for source in range(group.size)]
                self.assertEqual(route.tokens_from_rank, counts)
                self.assertEqual(delivery.source_offsets.tolist(), [0, *np.cumsum(counts)])
                self.assertIsNone(delivery.row_expert)
                self.assertIsNone(delivery.scales)

        run_ranks(batch.num_ranks, body)

    def test_by_expert_delivers_contiguous_aligned_experts(self):
        batch = Batch()

        def body(group):
            rank = group.rank
            with batch.exchange(group, layout="by_expert", expert_alignment=4) as exchange:
                route = exchange.route(batch.topk[rank])
                delivery = exchange.dispatch(route, batch.x[rank],
                                             topk_weights=batch.weights[rank], gaps="zeroed")

                self.assertEqual([-(-count // 4) * 4 for count in route.expert_counts],
                                 route.aligned_expert_counts)
                self.assertEqual(delivery.expert_counts.tolist(), route.expert_counts)
                valid = delivery.row_expert >= 0
                np.testing.assert_array_equal(delivery.tokens[valid], batch.rows_by_expert(rank))
                self.assertFalse(np.any(delivery.tokens[~valid]))
                weights = [batch.weights[source][token, k]
                           for source, token, k in batch.oracle.by_expert(rank)]
                np.testing.assert_array_equal(delivery.topk_weights[valid],
                                              np.array(weights, np.float32))
                self.assertEqual(delivery.num_rows.tolist(), [route.num_recv_rows])

        run_ranks(batch.num_ranks, body)

    def test_padded_and_low_latency_deliver_counts_first_rows(self):
        batch = Batch()

        def body(group):
            rank = group.rank
            for mode in ("high_throughput", "low_latency"):
                with batch.exchange(group, layout="padded", mode=mode) as exchange:
                    route = exchange.route(batch.topk[rank], sizing="worst_case")
                    delivery = exchange.dispatch(route, batch.x[rank])

                    counts = delivery.expert_counts
                    rows = [delivery.tokens[e, : counts[e]] for e in range(len(counts))]
                    np.testing.assert_array_equal(np.concatenate(rows), batch.rows_by_expert(rank))

        run_ranks(batch.num_ranks, body)

    def test_worst_case_sizing_keeps_the_shape_and_marks_unused_rows(self):
        batch = Batch()

        def body(group):
            rank = group.rank
            with batch.exchange(group) as exchange:
                route = exchange.route(batch.topk[rank], sizing=ferry_ep.Sizing.WORST_CASE)
                delivery = exchange.dispatch(route, batch.x[rank])

                self.assertEqual(delivery.tokens.shape[0], group.size * batch.max_tokens)
                used = (delivery.topk_idx >= 0).any(1)
                self.assertEqual(used.sum(), delivery.num_rows[0])
                np.testing.assert_array_equal(delivery.tokens[used], batch.rows_by_rank(rank))
                with self.assertRaisesRegex(ferry_ep.InvalidArgumentError, "exact sizing"):
                    route.num_recv_rows

        run_ranks(batch.num_ranks, body)

    def test_scales_travel_opaque_and_quantize_makes_its_own(self):
        batch = Batch(hidden=256)

        def body(group):
            rank = group.rank
            with batch.exchange(group, dtype="bf16", scale_bytes_per_row=8) as exchange:
                route = exchange.route(batch.topk[rank])
                scales = np.arange(2 * len(batch.x[rank]), dtype=np.float32).reshape(-1, 2) + rank
                fp8 = np.full((len(scales), batch.hidden), rank, np.uint8)
                moved = exchange.dispatch(route, ferry_ep.Typed(fp8, "fp8_e4m3"), scales=scales)
                sources = [source for source, _ in batch.oracle.by_rank(rank)]
                np.testing.assert_array_equal(moved.tokens[:, 0], np.array(sources, np.uint8))
                self.assertEqual(moved.scales.shape, (len(sources), 2))

                bf16 = (batch.x[rank].view(np.uint32) >> 16).astype(np.uint16)
                made = exchange.dispatch(route, ferry_ep.Typed(bf16, "bf16"), quantize="fp8",
                                         scale_layout="column_major")
                self.assertEqual(made.tokens.dtype, np.uint8)
                self.assertEqual(made.scales.strides[0], 4)
                rows = np.abs(batch.rows_by_rank(rank)).reshape(len(sources), 2, 128).max(2)
                np.testing.assert_allclose(made.scales, rows / 448, rtol=0.01)

        run_ranks(batch.num_ranks, body)

    def test_outputs_of_the_caller_are_written_in_and_outside_the_arena(self):
        batch = Batch()

        def body(group):
            rank = group.rank
            with batch.exchange(group) as exchange:
                route = exchange.route(batch.topk[rank])
                shape = (route.num_recv_rows, batch.hidden)
                for tokens in (np.empty(shape, np.float32),
                               exchange.allocate(shape, "fp32", framework="numpy")):
                    weights = np.empty((shape[0], batch.top_k), np.float32)
                    outputs = ferry_ep.DeliveryOutputs(tokens=tokens, topk_weights=weights)
                    exchange.post(route, outputs)
                    delivery = exchange.dispatch(route, batch.x[rank],
                                                 topk_weights=batch.weights[rank])

                    np.testing.assert_array_equal(tokens, batch.rows_by_rank(rank))
                    if shape[0]:
                        self.assertEqual(delivery.tokens.ctypes.data, tokens.ctypes.data)
                        self.assertEqual(delivery.topk_weights.ctypes.data, weights.ctypes.data)

        run_ranks(batch.num_ranks, body)


class Combine(unittest.TestCase):
    def test_sums_the_rows_of_each_token(self):
        batch = Batch()

        def body(group):
            rank = group.rank
            with batch.exchange(group) as exchange:
                route = exchange.route(batch.topk[rank])
                delivery = exchange.dispatch(route, batch.x[rank])
                bias = np.ones_like(batch.x[rank])
                out = exchange.combine(route, delivery.tokens, bias=bias)

                expected = bias  # then one rounded addition per row, as the library promises
                for i in range(group.size):
                    has_row = batch.oracle.num_destinations(rank)[:, None] > i
                    expected = np.where(has_row, expected + batch.x[rank], expected)
                np.testing.assert_array_equal(out, expected)

        run_ranks(batch.num_ranks, body)

    def test_weighs_rows_per_expert_and_scales_them_back(self):
        batch = Batch()

        def body(group):
            rank = group.rank
            x, weights = batch.x[rank], batch.weights[rank]
            chosen = np.where(batch.topk[rank] >= 0, weights, 0)
            with batch.exchange(group, layout="by_expert") as exchange:
                route = exchange.route(batch.topk[rank])
                delivery = exchange.dispatch(route, x)
                out = exchange.combine(route, delivery.tokens, topk_weights=weights)
                np.testing.assert_allclose(out, x * chosen.sum(1)[:, None], rtol=1e-5, atol=1e-6)

                scaled = exchange.dispatch(route, x, topk_weights=weights, scale_by_weights=True)
                np.testing.assert_allclose(exchange.combine(route, scaled.tokens), out, rtol=1e-5,
                                           atol=1e-6)

        run_ranks(batch.num_ranks, body)

    def test_weights_travel_back(self):
        batch = Batch()

        def body(group):
            rank = group.rank
            weights = batch.weights[rank]
            chosen = np.where(batch.topk[rank] >= 0, weights, 0)
            with batch.exchange(group) as exchange:
                route = exchange.route(batch.topk[rank])
                delivery = exchange.dispatch(route, batch.x[rank], topk_weights=weights)
                combined = np.empty_like(weights)
                exchange.combine(route, delivery.tokens, row_weights=delivery.topk_weights,
                                 combined_weights=combined)
                np.testing.assert_array_equal(combined, chosen)
                np.testing.assert_array_equal(
                    exchange.combine_weights(route, delivery.topk_weights), chosen)

        run_ranks(batch.num_ranks, body)

    def test_pull_push_and_arena_give_the_same_bits(self):
        batch = Batch()

        def body(group):
            rank = group.rank
            with batch.exchange(group) as exchange:
                route = exchange.route(batch.topk[rank])
                tokens = exchange.dispatch(route, batch.x[rank]).tokens
                y = exchange.allocate(tokens.shape, "fp32", framework="numpy")
                y[:] = tokens
                pulled = exchange.combine(route, y, form="pull")
                pushed = exchange.combine(route, np.array(tokens), form="push")
                np.testing.assert_array_equal(pulled, pushed)

        run_ranks(batch.num_ranks, body)


class Sequence(unittest.TestCase):
    def test_begin_and_finish_in_any_order(self):
        batch = Batch()

        def body(group):
            rank = group.rank
            with batch.exchange(group) as exchange:
                route = exchange.begin_route(batch.topk[rank]).finish()
                first = exchange.begin_dispatch(route, batch.x[rank])
                second = exchange.begin_dispatch(route, 2 * batch.x[rank])
                doubled, single = second.finish(), first.finish()

                np.testing.assert_array_equal(doubled.tokens, 2 * np.asarray(single.tokens))
                combine = exchange.begin_combine(route, np.array(single.tokens))
                out = combine.finish()
                np.testing.assert_array_equal(out, exchange.combine(route, single.tokens))
                with self.assertRaisesRegex(ferry_ep.InvalidArgumentError, "finished twice"):
                    combine.finish()

        run_ranks(batch.num_ranks, body)

    def test_a_route_serves_again_after_later_routes_and_owner_maps(self):
        batch = Batch()
        owner = [rank for _ in range(2) for rank in range(batch.num_ranks)]

        def body(group):
            rank = group.rank
            with batch.exchange(group) as exchange:
                route = exchange.route(batch.topk[rank])
                exchange.set_owner_map(owner)
                self.assertEqual(exchange.config.expert_owner, tuple(owner))
                moved = exchange.route(batch.topk[rank])
                old = np.array(exchange.dispatch(route, batch.x[rank]).tokens)
                new = exchange.dispatch(moved, batch.x[rank])

                np.testing.assert_array_equal(old, batch.rows_by_rank(rank))
                np.testing.assert_array_equal(
                    new.topk_idx, type(batch.oracle)(batch.topk, 8, owner).local_topk(rank))

        run_ranks(batch.num_ranks, body)

    def test_counters_config_and_sizes_agree_with_what_was_done(self):
        batch = Batch()

        def body(group):
            rank = group.rank
            with batch.exchange(group) as exchange:
                route = exchange.route(batch.topk[rank])
                delivery = exchange.dispatch(route, batch.x[rank])
                exchange.combine(route, delivery.tokens)
                exchange.check()

                counters = exchange.counters()
                self.assertEqual((counters.dispatches, counters.combines), (1, 1))
                self.assertEqual(counters.dispatch_logical_bytes,
                                 route.num_recv_rows * batch.hidden * 4)
                self.assertEqual(len(counters.wait_ns_by_peer), group.size)
                self.assertEqual(route.counters().dispatches, 1)
                self.assertEqual(exchange.num_local_experts, 2)
                need = ferry_ep.Exchange.bytes_needed(exchange.config, group.size)
                self.assertGreater(need.delivery_bytes, group.size * batch.max_tokens * 256)

        run_ranks(batch.num_ranks, body)

    def test_replicas_are_chosen_by_token_and_column(self):
        logical = np.array([[0, 1], [1, -1], [0, 0]], np.int32)

        physical = ferry_ep.map_replicas(logical, [[4, 5], [7]])

        self.assertEqual(physical.tolist(), [[4, 7], [7, -1], [4, 5]])


class BadInput(unittest.TestCase):
    def test_an_id_out_of_range_is_refused_on_all_ranks_and_the_group_lives(self):
        batch = Batch()
        messages = []

        def body(group):
            rank = group.rank
            with batch.exchange(group) as exchange:
                bad = batch.topk[rank].copy()
                if rank == 1:
                    bad[2, 1] = 8
                with self.assertRaises(ferry_ep.InvalidArgumentError) as caught:
                    exchange.route(bad)
                messages.append(str(caught.exception))
                self.assertEqual(caught.exception.code, ferry_ep.ErrorCode.INVALID_ARGUMENT)
                route = exchange.route(batch.topk[rank])
                np.testing.assert_array_equal(exchange.dispatch(route, batch.x[rank]).tokens,
                                              batch.rows_by_rank(rank))

        run_ranks(batch.num_ranks, body)
        self.assertEqual(len(set(messages)), 1, messages)
        self.assertIn("rank 1", messages[0])

    def test_a_bad_tensor_is_named(self):
        with self_exchange() as exchange:
            route = exchange.route(np.zeros((3, 1), np.int32).repeat(2, 1) + [[0, 1]])
            cases = [
                (np.zeros((3, 16), np.float64), r"x has the dtype float64"),
                (np.zeros((4, 16), np.float32), r"x is \[4, 16\] fp32, expected \[3, any\]"),
                (np.zeros((3, 32), np.float32)[:, ::2], "x is .* stride of 2 elements"),
                ("text", "x is a str, expected a tensor"),
            ]
            for x, message in cases:
                with self.assertRaisesRegex(ferry_ep.InvalidArgumentError, message):
                    exchange.dispatch(route, x)
            out = np.zeros((3, 16), np.float32)
            out.flags.writeable = False
            with self.assertRaisesRegex(ferry_ep.InvalidArgumentError, "out is read-only"):
                exchange.combine(route, out, out)

    def test_a_wrong_name_lists_the_right_ones(self):
        with self.assertRaisesRegex(ferry_ep.InvalidArgumentError,
                                    "layout is 'by_node', expected one of by_rank, by_expert, padded"):
            self_exchange(layout="by_node")
        with self.assertRaisesRegex(TypeError, "num_expert"):
            self_exchange(num_expert=3)


if __name__ == "__main__":
    unittest.main()
