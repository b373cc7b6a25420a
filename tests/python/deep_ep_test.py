"""All tests of deep_ep that need ranks, over the same processes: starting them takes longest."""

import unittest

MODULES = ("normal", "handles", "low_latency", "clients", "buffer")


def load_tests(loader, _tests, _pattern):
    return unittest.TestSuite(loader.loadTestsFromName(f"deep_ep_{name}_test") for name in MODULES)
