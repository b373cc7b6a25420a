"""Who keeps what alive, and how things end: exits, forks, threads, the collector, many calls."""

import gc
import resource
import subprocess
import sys
import textwrap
import threading
import unittest
import weakref

import numpy as np

import ferry_ep
from support import Batch, run_ranks, self_exchange

TOPK = np.array([[0, 1], [2, 3]], np.int32)
X = np.arange(32, dtype=np.float32).reshape(2, 16)

START = textwrap.dedent("""
    import gc, os, sys
    import numpy as np
    import ferry_ep
    topk = np.array([[0, 1], [2, 3]], np.int32)
    x = np.ones((2, 16), np.float32)
    group = ferry_ep.Group.self()
    exchange = ferry_ep.Exchange(group, num_experts=4, top_k=2, hidden=16, max_tokens=8, dtype="fp32")
    route = exchange.route(topk)
    delivery = exchange.dispatch(route, x)
    tokens = delivery.tokens
""")


def run(program):
    return subprocess.run([sys.executable, "-c", START + textwrap.dedent(program)],
                          capture_output=True, text=True, check=False, timeout=60)


class Ends(unittest.TestCase):
    def test_the_interpreter_exits_with_live_objects(self):
        for program in ("",
                        "pending = exchange.begin_dispatch(route, x)",
                        "keep = [exchange.allocate((4, 4), 'fp32', framework='numpy')]; del exchange",
                        "import torch; keep = exchange.dispatch(route, torch.ones(2, 16)).tokens",
                        "import threading; threading.local().x = exchange; sys.exit(0)",
                        "a = [exchange]; a.append(a); del exchange"):
            with self.subTest(program=program):
                done = run(program)
                self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_an_exception_inside_with_passes_and_ends_the_exchange(self):
        with self.assertRaisesRegex(KeyError, "mine"):
            with self_exchange() as exchange:
                raise KeyError("mine")
        self.assertTrue(exchange.is_destroyed)

    def test_destroy_twice_and_use_after_it(self):
        exchange = self_exchange()
        route = exchange.route(TOPK)
        delivery = exchange.dispatch(route, X)
        pending = exchange.begin_dispatch(route, X)
        exchange.destroy()
        exchange.destroy()
        message = "an exchange is used after it was destroyed"
        for use in (lambda: exchange.route(TOPK), lambda: exchange.dispatch(route, X),
                    lambda: delivery.tokens, lambda: route.num_tokens, pending.finish,
                    exchange.counters, exchange.check, lambda: exchange.allocate((1,), "fp32")):
            with self.assertRaisesRegex(ferry_ep.InvalidArgumentError, message):
                use()
        del pending, delivery, route
        gc.collect()

    def test_a_group_ends_once_and_says_so(self):
        with ferry_ep.Group.self() as group:
            pass
        group.leave()
        kept = []
        ferry_ep.Group.run_threads(1, kept.append)
        with self.assertRaisesRegex(ferry_ep.InvalidArgumentError, "a group is used after its end"):
            kept[0].barrier()

    def test_a_rank_that_raises_ends_the_others_waits(self):
        ended = []

        def body(group):
            if group.rank == 0:
                raise ZeroDivisionError("rank 0")
            try:
                group.barrier()
            except ferry_ep.PeerLostError:
                ended.append(group.rank)

        with self.assertRaisesRegex(ZeroDivisionError, "rank 0"):
            ferry_ep.Group.run_threads(3, body)
        self.assertEqual(sorted(ended), [1, 2])


class Forks(unittest.TestCase):
    def test_a_forked_child_is_refused_and_harms_nothing(self):
        done = run("""
            sys.stdout.flush()
            child = os.fork()
            if child == 0:
                for use in (lambda: exchange.route(topk), lambda: group.barrier(),
                            ferry_ep.Group.self, lambda: delivery.tokens):
                    try:
                        use()
                        print("not refused")
                    except ferry_ep.InvalidArgumentError as error:
                        print("spawn" in str(error), f"forked from process {os.getppid()}" in str(error))
                del exchange, route, delivery, tokens
                gc.collect()
                sys.exit(0)
            assert os.waitpid(child, 0)[1] == 0
            assert (exchange.combine(route, exchange.dispatch(route, x).tokens) == 1).all()
        """)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout, "True True\n" * 4)

    def test_a_child_forked_after_the_import_alone_may_use_it(self):
        program = ("import os, ferry_ep\nif os.fork() == 0:\n    print(ferry_ep.Group.self().size)\n"
                   "else:\n    os.wait()")
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                              check=False, timeout=60)
        self.assertEqual((done.stdout, done.stderr), ("1\n", ""))


class Memory(unittest.TestCase):
    def test_a_tensor_keeps_the_memory_of_a_destroyed_exchange(self):
        exchange = self_exchange()
        tokens = exchange.dispatch(exchange.route(TOPK), X).tokens
        arena = weakref.ref(exchange._core.arena)
        exchange.destroy()
        np.testing.assert_array_equal(tokens, X)
        part = tokens[1:]
        del tokens
        self.assertIsNotNone(arena())
        del part
        self.assertIsNone(arena())

    def test_a_ring_of_three_refuses_a_delivery_whose_memory_was_used_again(self):
        with self_exchange() as exchange:
            route = exchange.route(TOPK)
            deliveries = [exchange.dispatch(route, X) for _ in range(4)]
            with self.assertRaisesRegex(ferry_ep.InvalidArgumentError, "after its memory was reused"):
                deliveries[0].tokens
            kept = deliveries[1].tokens
            for _ in range(5):  # room was made by those that are dropped at once
                deliveries[2].release()
                exchange.dispatch(route, 2 * X)
            np.testing.assert_array_equal(kept, X)
            with self.assertRaisesRegex(ferry_ep.InvalidArgumentError, "after release"):
                deliveries[2].tokens

    def test_inputs_live_until_finish_and_no_longer(self):
        with self_exchange() as exchange:
            route = exchange.route(TOPK)
            x = X.copy()
            alive = weakref.ref(x)
            pending = exchange.begin_dispatch(route, x)
            del x
            gc.collect()
            self.assertIsNotNone(alive())
            pending.finish()
            self.assertIsNone(alive())

    def test_a_dropped_pending_operation_is_finished_by_the_next(self):
        batch = Batch()

        def body(group):
            rank = group.rank
            with batch.exchange(group) as exchange:
                route = exchange.route(batch.topk[rank])
                x = batch.x[rank].copy()
                alive = weakref.ref(x)
                exchange.begin_dispatch(route, x)  # dropped here
                del x
                gc.collect()
                self.assertIsNotNone(alive())
                delivery = exchange.dispatch(route, 2 * batch.x[rank])
                np.testing.assert_array_equal(delivery.tokens, 2 * batch.rows_by_rank(rank))
                self.assertIsNone(alive())

        run_ranks(batch.num_ranks, body)

    def test_arena_tensors_are_given_back_with_their_last_view(self):
        with self_exchange(arena_bytes=1 << 20) as exchange:
            before = exchange.counters().arena_bytes
            tensor = exchange.allocate((4, 4096), "bf16", framework="torch")
            view = tensor[1:]
            del tensor
            self.assertGreater(exchange.counters().arena_bytes, before)
            del view
            self.assertEqual(exchange.counters().arena_bytes, before)
            address = exchange.allocate_bytes(4096)
            self.assertEqual(address % 256, 0)
            exchange.deallocate(address)
            exchange.deallocate(0)

    def test_memory_does_not_grow_over_10000_calls(self):
        with self_exchange(layout="by_expert") as exchange:
            weights = np.ones((2, 2), np.float32)

            def step(n):
                for _ in range(n):
                    route = exchange.route(TOPK)
                    delivery = exchange.dispatch(route, X, topk_weights=weights)
                    exchange.combine(route, delivery.tokens, topk_weights=weights)

            def resident():
                with open("/proc/self/statm", encoding="ascii") as file:
                    return int(file.read().split()[1]) * resource.getpagesize()

            step(500)
            gc.collect()
            num_objects, before = len(gc.get_objects()), resident()
            step(10000)
            self.assertLess(resident() - before, 2 << 20)
            self.assertLess(len(gc.get_objects()) - num_objects, 50)


class Threads(unittest.TestCase):
    def test_a_call_that_waits_for_a_peer_releases_the_gil(self):
        def body(group):
            if group.rank == 1:
                for _ in range(200):  # rank 0 waits meanwhile; with its GIL this would never run
                    sum(range(1000))
            group.barrier()

        run_ranks(2, body)

    def test_many_threads_on_one_exchange_take_turns(self):
        with self_exchange() as exchange:
            route = exchange.route(TOPK)
            wrong = []

            def work(value):
                for _ in range(50):
                    x = np.full((2, 16), value, np.float32)
                    out = exchange.combine(route, x)
                    if not (out == value).all():
                        wrong.append(value)

            exchange.dispatch(route, X)
            threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(wrong, [])

    def test_handles_collected_on_another_thread_do_not_wait_for_a_blocked_call(self):
        # A thread that frees must not wait for a call that waits for that thread's rank.
        batch = Batch(num_ranks=2, num_experts=4)
        routes = {}
        meet = threading.Barrier(2)

        def body(group):
            rank = group.rank
            with batch.exchange(group) as exchange:
                routes[rank] = exchange.route(batch.topk[rank])
                meet.wait(20)
                if rank == 1:
                    routes.pop(0)  # rank 0's, while rank 0 may be inside its call
                exchange.route(batch.topk[rank])
                meet.wait(20)
                routes.pop(rank, None)

        run_ranks(2, body)


if __name__ == "__main__":
    unittest.main()
