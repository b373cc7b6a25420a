"""deep_ep on CUDA tensors: the same checks, by four ranks and by eight that share one GPU."""

import os
import subprocess
import sys
import unittest

from gpu_test import HERE, Mps, has_gpu

MODULES = ("normal", "handles", "low_latency", "clients")


@unittest.skipUnless(has_gpu(), "no PyTorch that sees a GPU")
class Gpu(unittest.TestCase):
    def test_the_checks_pass_on_cuda_tensors(self):
        for num_ranks in (4, 8):
            with self.subTest(num_ranks=num_ranks), Mps() as environment:
                done = subprocess.run(
                    [sys.executable, "-m", "unittest", *(f"deep_ep_{name}_test" for name in MODULES)],
                    env={**environment, "DEEP_EP_TEST_DEVICE": "cuda",
                         "DEEP_EP_TEST_RANKS": str(num_ranks),
                         "PYTHONPATH": os.pathsep.join((os.environ.get("PYTHONPATH", ""), str(HERE)))},
                    cwd=HERE, capture_output=True, text=True, check=False, timeout=280)
                self.assertEqual(done.returncode, 0, done.stderr[-4000:])


if __name__ == "__main__":
    unittest.main()
