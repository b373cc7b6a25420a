"""What programs see of deep_ep without a rank: modules, Config, sizes, tables, events."""

import importlib.metadata
import subprocess
import sys
import textwrap
import unittest

import torch

import deep_ep
import ferry_ep
from deep_ep import Buffer, Config, EventHandle, EventOverlap, _ownership
from deep_ep_batches import refuses

RANKS_IN_TABLES = (2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 144, 160)


def run_python(code):
    """Standard output of a fresh interpreter."""
    return subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=60,
                          capture_output=True, text=True).stdout.strip()


class Modules(unittest.TestCase):
    def test_every_path_gives_the_same_objects_whichever_is_imported_first(self):
        said = run_python("""
            from deep_ep_cpp import EventHandle
            import deep_ep, deep_ep_cpp, deep_ep._C, deep_ep.buffers.legacy, deep_ep.utils.event
            from deep_ep.utils import EventHandle as handle, EventOverlap as overlap
            from deep_ep.buffer import Buffer
            assert EventHandle is handle is deep_ep.EventHandle is deep_ep._C.EventHandle
            assert overlap is deep_ep.EventOverlap is deep_ep.utils.event.EventOverlap
            assert Buffer is deep_ep.Buffer is deep_ep.buffers.legacy.Buffer is deep_ep_cpp.Buffer
            assert deep_ep_cpp.Config is deep_ep.Config is deep_ep._C.Config
            print(deep_ep_cpp.topk_idx_t, deep_ep.topk_idx_t)
        """)
        self.assertEqual(said, "torch.int64 torch.int64")

    def test_the_version_says_whose_it_is(self):
        self.assertEqual(deep_ep.__version__, f"1.2.1+ferry.{ferry_ep.__version__}")

    def test_switches_of_other_forks_stay_absent(self):
        for name in ("HybridEPBuffer", "ElasticBuffer", "EPHandle"):
            self.assertFalse(hasattr(deep_ep, name), name)
        self.assertFalse(hasattr(Buffer, "get_low_latency_rdma_size_hint_m2n"))
        with self.assertRaises(ImportError):
            importlib.import_module("deep_ep.hybrid_ep_buffer")

    def test_the_import_makes_no_cuda_context_and_a_child_can_use_it(self):
        said = run_python("""
            import os, torch, deep_ep
            assert not torch.cuda.is_initialized()
            pid = os.fork()
            if pid == 0:
                deep_ep.EventOverlap(deep_ep.EventHandle()).current_stream_wait()
                os._exit(0)
            print(os.waitpid(pid, 0)[1])
        """)
        self.assertEqual(said, "0")

    def test_construction_can_be_wrapped(self):
        seen, original = [], Buffer.__init__

        def wrapped(self, *arguments, **named):
            seen.append((arguments, named))
            original(self, *arguments, **named)

        Buffer.__init__ = wrapped
        try:
            Buffer(None, 0, rank=0, group_size=1)
        finally:
            Buffer.__init__ = original
        self.assertEqual(seen, [((None, 0), {"rank": 0, "group_size": 1})])


class FakeDistribution:
    version = "9.9"

    def __init__(self, name, record="", top_level=""):
        self.metadata = {"Name": name} if name else None
        self._texts = {"RECORD": record, "top_level.txt": top_level}

    def read_text(self, name):
        return self._texts[name]


class Ownership(unittest.TestCase):
    def test_another_distribution_with_deep_ep_is_found_by_name_record_or_top_level(self):
        own = FakeDistribution("ferry_ep", "deep_ep/__init__.py,,\n")
        others = [
            FakeDistribution("deep_ep"),
            FakeDistribution("some-wrapper", "a.py,,\ndeep_ep/__init__.py,sha,1\n"),
            FakeDistribution("old-egg", None, "other\ndeep_ep\n"),
        ]
        self.assertIsNone(_ownership.find_other_owner(
            [own, FakeDistribution("my_deep_ep_notes"), FakeDistribution(None)]))
        for other in others:
            found = _ownership.find_other_owner([own, other])
            self.assertEqual(found, f"{other.metadata['Name']} 9.9")

    def test_the_import_fails_with_one_sentence(self):
        original = importlib.metadata.distributions
        importlib.metadata.distributions = lambda: [FakeDistribution("deep_ep")]
        try:
            with self.assertRaises(ImportError) as caught:
                _ownership.refuse_other_owner()
        finally:
            importlib.metadata.distributions = original
        self.assertEqual(
            str(caught.exception),
            "the module 'deep_ep' of FerryEP is installed beside the one of 'deep_ep 9.9', and which "
            "one is imported depends on the path; try: pip uninstall deep_ep")


class Sizes(unittest.TestCase):
    def test_configs_are_made_by_position_and_by_name(self):
        named = Config(num_sms=24, num_max_nvl_chunked_send_tokens=8,
                       num_max_nvl_chunked_recv_tokens=256, num_max_rdma_chunked_send_tokens=6,
                       num_max_rdma_chunked_recv_tokens=128)
        placed = Config(24, 8, 256, 6, 128)
        self.assertEqual(named.get_nvl_buffer_size_hint(4096, 8),
                         placed.get_nvl_buffer_size_hint(4096, 8))
        for wrong in ((-2,), (20, 0), (20, 256, 256), (20, 6, 256, 128, 128), (20, 6, 256, 0)):
            refuses(AssertionError, "Config", Config, *wrong)

    def test_hints_are_positive_multiples_of_128_within_an_int(self):
        for num_ranks in RANKS_IN_TABLES:
            for hidden_bytes in (4096, 14336):
                for config in (Buffer.get_dispatch_config(num_ranks),
                               Buffer.get_combine_config(num_ranks)):
                    nvl = config.get_nvl_buffer_size_hint(hidden_bytes, num_ranks)
                    rdma = config.get_rdma_buffer_size_hint(hidden_bytes, num_ranks)
                    self.assertTrue(0 < nvl < 2**31 and nvl % 128 == 0, (num_ranks, nvl))
                    self.assertTrue(0 <= rdma < 2**31 and rdma % 128 == 0, (num_ranks, rdma))
                    self.assertEqual(rdma == 0, num_ranks <= 8)

    def test_hints_are_those_of_deep_ep(self):
        # 10 channels, 8 peers, 5 counters each; 256 rows of 14336 + 8 + 128 * 12 + 512 bytes each.
        hint = Buffer.get_dispatch_config(8).get_nvl_buffer_size_hint(14336, 8)
        self.assertEqual(hint, -(-(10 * 8 * 5 * 4 + 10 * 8 * 256 * 16392) // 128) * 128)
        self.assertEqual(Buffer.get_low_latency_rdma_size_hint(128, 7168, 8, 288), 2146961792)
        self.assertEqual(
            Buffer.get_low_latency_rdma_size_hint(num_max_dispatch_tokens_per_rank=128, hidden=7168,
                                                  num_ranks=8, num_experts=288), 2146961792)

    def test_unknown_numbers_of_ranks_and_odd_sms_are_refused(self):
        for table in (Buffer.get_dispatch_config, Buffer.get_combine_config):
            refuses(AssertionError, "Unsupported number of EP ranks: 12", table, 12)
            refuses(RuntimeError, "Unsupported number of EP ranks: 3", table, 3)
        refuses(AssertionError, "even", Buffer.set_num_sms, 5)

    def test_set_num_sms_changes_the_hints_from_the_class_and_from_an_instance(self):
        before = Buffer.get_dispatch_config(8).get_nvl_buffer_size_hint(4096, 8)
        buffer = Buffer(None, rank=0, group_size=1)
        try:
            buffer.set_num_sms(40)
            self.assertEqual(Buffer.num_sms, 40)
            self.assertGreater(Buffer.get_dispatch_config(8).get_nvl_buffer_size_hint(4096, 8), before)
        finally:
            Buffer.set_num_sms(20)


class Events(unittest.TestCase):
    def test_an_empty_overlap_cannot_be_waited_for_and_a_full_one_can(self):
        for empty in (EventOverlap(), EventOverlap(None)):
            self.assertIsNone(empty.event)
            refuses(AssertionError, "no event", empty.current_stream_wait)
            with empty:
                pass
        full = EventOverlap(EventHandle())
        full.current_stream_wait()
        with full(release_handle=True):
            pass
        self.assertIsNone(full.event)

    def test_a_placeholder_is_filled_later_and_runs_its_hook_once(self):
        placeholder, calls = EventOverlap(None), []
        placeholder.event = Buffer.capture().event
        placeholder.hook_after_wait = lambda: calls.append(1)
        placeholder.current_stream_wait()
        placeholder.current_stream_wait()
        self.assertEqual(calls, [1])

    def test_flags_work_in_every_combination_that_is_legal(self):
        buffer = Buffer(None, rank=0, group_size=1)
        topk = torch.tensor([[0, 1], [1, -1]])
        captures = [buffer.capture, Buffer.capture]
        for event in [None, EventOverlap(None), *(capture() for capture in captures)]:
            has_event = event is not None and event.event is not None
            for is_async in (False, True):
                for on_comm in (False, True):
                    call = dict(previous_event=event, async_finish=is_async,
                                allocate_on_comm_stream=on_comm)
                    if on_comm and not (has_event and is_async):
                        refuses(AssertionError, "allocate_on_comm_stream",
                                buffer.get_dispatch_layout, topk, 2, **call)
                        continue
                    after = buffer.get_dispatch_layout(topk, 2, **call)[4]
                    self.assertEqual(after.event is not None, is_async)


class Ranges(unittest.TestCase):
    def test_the_raw_buffer_is_writable_and_sliced_by_bytes(self):
        buffer = Buffer(None, 1024, 2048, low_latency_mode=True, rank=0, group_size=1)
        raw = buffer.get_local_buffer_tensor(torch.int8, use_rdma_buffer=True)
        self.assertEqual(raw.numel(), 2048)
        raw.zero_()
        part = buffer.get_local_buffer_tensor(torch.float32, torch.Size((4, 8)), offset=64)
        part.fill_(3)
        whole = buffer.get_local_buffer_tensor(torch.float32)
        self.assertEqual(whole.numel(), 256)
        self.assertEqual([float(whole[i]) for i in (15, 16, 47, 48)], [0, 3, 3, 0])
        refuses(AssertionError, "multiple", buffer.get_local_buffer_tensor, torch.float32, offset=2)

    def test_byte_counts_are_checked_as_deep_ep_checks_them(self):
        for named in ({"num_nvl_bytes": 100}, {"num_rdma_bytes": 130}, {"num_nvl_bytes": -128}):
            refuses(AssertionError, "multiple of 128", Buffer, None, rank=0, group_size=1, **named)
        refuses(AssertionError, "at most", Buffer, None, 0, 1 << 31, rank=0, group_size=1)
        Buffer(None, 0, 1 << 31, low_latency_mode=True, rank=0, group_size=1)
        Buffer(None, int(2e9), 0, num_qps_per_rank=32.0, rank=0, group_size=1)
        refuses(ValueError, "needs a process group", Buffer)


if __name__ == "__main__":
    unittest.main()
