"""Tensors of every framework, into the library and back, on the same memory."""

import array
import ctypes
import gc
import unittest

import numpy as np
import torch
import torch.utils.dlpack

import ferry_ep
from ferry_ep._tensors import to_packed
from support import self_exchange

TOPK = np.array([[0, 1], [2, 3]], np.int32)
X = np.arange(32, dtype=np.float32).reshape(2, 16)


class OnlyDlpack:
    """What a framework that this package does not know looks like."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, **_):
        return torch.utils.dlpack.to_dlpack(self.tensor)

    def __dlpack_device__(self):
        return (1, 0)


def buffer(code, shape, values):
    return memoryview(array.array(code, values)).cast("B").cast(code, shape)


class Given(unittest.TestCase):
    def setUp(self):
        self.exchange = self_exchange()
        self.addCleanup(self.exchange.destroy)

    def test_every_kind_of_tensor_moves_the_same_rows(self):
        kinds = {
            "torch": (torch.from_numpy(TOPK), torch.from_numpy(X)),
            "numpy": (TOPK, X),
            "dlpack": (OnlyDlpack(torch.from_numpy(TOPK)), OnlyDlpack(torch.from_numpy(X))),
            "buffer": (buffer("i", [2, 2], [0, 1, 2, 3]), buffer("f", [2, 16], range(32))),
            "ctypes": (buffer("i", [2, 2], [0, 1, 2, 3]), (ctypes.c_float * 16 * 2)(*[
                (ctypes.c_float * 16)(*row) for row in X.tolist()])),
        }
        for name, (topk, x) in kinds.items():
            with self.subTest(kind=name):
                tokens = self.exchange.dispatch(self.exchange.route(topk), x).tokens
                np.testing.assert_array_equal(np.asarray(tokens), X)
                is_known = name in ("torch", "numpy")
                self.assertEqual(isinstance(tokens, ferry_ep.Tensor), not is_known)

    def test_rows_may_be_strided(self):
        wide = np.arange(96, dtype=np.float32).reshape(2, 48)
        route = self.exchange.route(np.array([[0, 9, 1], [2, 9, 3]], np.int64)[:, ::2].copy())
        for x in (wide[:, 8:24], torch.from_numpy(wide)[:, 8:24],
                  OnlyDlpack(torch.from_numpy(wide)[:, 8:24]), memoryview(wide[:, 8:24])):
            tokens = self.exchange.dispatch(route, x).tokens
            np.testing.assert_array_equal(np.asarray(tokens), wide[:, 8:24])

    def test_bf16_and_fp8_go_as_such_or_as_bytes_and_a_dtype(self):
        route = self.exchange.route(TOPK)
        bf16 = torch.arange(32).reshape(2, 16).to(torch.bfloat16)
        as_such = self.exchange.dispatch(route, bf16).tokens
        self.assertIs(as_such.dtype, torch.bfloat16)
        self.assertTrue(torch.equal(as_such, bf16))
        as_bits = ferry_ep.Typed(bf16.view(torch.int16).numpy(), "bf16")
        np.testing.assert_array_equal(self.exchange.dispatch(route, as_bits).tokens,
                                      bf16.view(torch.int16).numpy().view(np.uint16))
        fp8 = torch.arange(32, dtype=torch.uint8).reshape(2, 16)
        tokens = self.exchange.dispatch(route, ferry_ep.Typed(fp8, ferry_ep.DType.FP8_E4M3)).tokens
        self.assertTrue(torch.equal(tokens.view(torch.uint8), fp8))

    def test_no_tokens_are_tokens_too(self):
        for empty, topk in ((X[:0], TOPK[:0]), (torch.empty(0, 16), torch.empty(0, 2, dtype=torch.int64)),
                            (OnlyDlpack(torch.empty(0, 16)), TOPK[:0])):
            route = self.exchange.route(topk)
            delivery = self.exchange.dispatch(route, empty)
            self.assertEqual(tuple(delivery.tokens.shape), (0, 16))
            out = torch.empty(0, 16)
            self.assertIs(self.exchange.combine(route, delivery.tokens, out), out)

    def test_what_cannot_be_taken_is_named(self):
        masked = type("Masked", (), {"__cuda_array_interface__": {"mask": 1, "typestr": "<f4"}})()
        cases = [
            (torch.zeros(2, 16, dtype=torch.float64), "x has the dtype torch.float64"),
            (torch.zeros(2, 16, device="meta"), "x lies on meta, expected cpu or cuda"),
            (torch.zeros(2, 16).to_sparse(), "x has the layout torch.sparse_coo"),
            (torch.zeros(1, 1, 1, 2, 16), "x has 5 dimensions, expected 1 to 4"),
            (np.float32(1).reshape(()), "x has 0 dimensions, expected 1 to 4"),
            (X.astype(">f4"), "x has the dtype >f4"),
            (buffer("d", [2, 16], range(32)), "x is a buffer of elements 'd'"),
            (masked, "x is a masked array"),
            ([[1.0] * 16] * 2, "x is a list, expected a tensor"),
            (ferry_ep.Typed(X, "bf16"), r"x has 4-byte elements \(fp32\) and is declared as bf16 of 2"),
            (np.lib.stride_tricks.as_strided(X, (2, 16), (64, 2)), "x has a stride of 2 bytes"),
        ]
        for tensor, message in cases:
            with self.assertRaisesRegex(ferry_ep.InvalidArgumentError, message):
                to_packed("x", tensor)
        leaf = torch.zeros(2, 16, requires_grad=True)
        route = self.exchange.route(TOPK)
        delivery = self.exchange.dispatch(route, leaf)  # read: fine
        with self.assertRaisesRegex(ferry_ep.InvalidArgumentError, "out is a leaf that requires grad"):
            self.exchange.combine(route, delivery.tokens, leaf)
        with self.assertRaisesRegex(ferry_ep.InvalidArgumentError, "out is read-only"):
            self.exchange.combine(route, delivery.tokens,
                                  memoryview(bytes(128)).cast("f", [2, 16]))

    def test_a_tensor_on_another_device_is_refused_by_name(self):
        class OnCuda:
            __cuda_array_interface__ = {"shape": (2, 16), "typestr": "<f4", "data": (4096, False),
                                        "strides": None, "version": 3}

        route = self.exchange.route(TOPK)
        with self.assertRaisesRegex(ferry_ep.InvalidArgumentError,
                                    "x is .*lies on cuda:0, expected the CPU"):
            self.exchange.dispatch(route, OnCuda())


class Returned(unittest.TestCase):
    def setUp(self):
        self.exchange = self_exchange()
        self.addCleanup(self.exchange.destroy)
        route = self.exchange.route(TOPK)
        self.tensor = self.exchange.dispatch(route, OnlyDlpack(torch.from_numpy(X))).tokens

    def test_its_memory_is_shared_with_every_framework(self):
        as_numpy, as_torch = np.asarray(self.tensor), torch.from_dlpack(self.tensor)
        as_bytes = memoryview(self.tensor.buffer())
        as_numpy[1, 2] = 77

        self.assertEqual(as_torch[1, 2], 77)
        self.assertEqual(as_bytes.cast("B").cast("f")[18], 77)
        self.assertEqual(self.tensor.tolist()[1][2], 77)
        self.assertEqual(as_torch.data_ptr(), self.tensor.data_ptr)

    def test_a_consumer_keeps_the_memory_and_lets_it_go(self):
        from ferry_ep import _dlpack

        before = len(_dlpack._alive)
        consumer = torch.from_dlpack(self.tensor)
        untaken = self.tensor.__dlpack__()
        self.assertEqual(len(_dlpack._alive), before + 2)
        self.tensor = None
        self.exchange.destroy()
        np.testing.assert_array_equal(consumer.numpy(), X)
        del consumer, untaken
        gc.collect()
        self.assertEqual(len(_dlpack._alive), before)

    def test_arena_tensors_come_in_the_framework_that_is_asked_for(self):
        exchange = self_exchange(arena_bytes=1 << 16)
        for name, kind in (("numpy", np.ndarray), ("torch", torch.Tensor), ("ferry_ep", ferry_ep.Tensor)):
            self.assertIsInstance(exchange.allocate((3, 5), "fp32", framework=name), kind)
        tensor = exchange.allocate((3, 5), torch.bfloat16)
        self.assertEqual((tensor.shape, tensor.dtype), ((3, 5), torch.bfloat16))
        self.assertEqual(exchange.allocate((0, 5), "fp32").shape, (0, 5))
        with self.assertRaisesRegex(ferry_ep.NoResourceError, "largest free piece"):
            exchange.allocate((1 << 20,), "fp32")
        exchange.destroy()


if __name__ == "__main__":
    unittest.main()
