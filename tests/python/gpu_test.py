"""ferry_ep on CUDA tensors: four processes that share one GPU, under MPS where that can be started."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
NUM_RANKS = 4


def has_gpu():
    # Asked in another process: this one stays without a context, as MPS clients start after MPS.
    probe = "import torch; raise SystemExit(0 if torch.cuda.is_available() else 1)"
    return subprocess.run([sys.executable, "-c", probe], check=False,
                          stderr=subprocess.DEVNULL).returncode == 0


class Mps:
    """A private MPS server for the test's processes; without it ranks take time slices in turn."""

    def __enter__(self):
        self.environment = dict(os.environ)
        self.folder = tempfile.TemporaryDirectory()
        self.control = shutil.which("nvidia-cuda-mps-control")
        if self.control and "CUDA_MPS_PIPE_DIRECTORY" not in os.environ:
            self.environment["CUDA_MPS_PIPE_DIRECTORY"] = self.folder.name
            self.environment["CUDA_MPS_LOG_DIRECTORY"] = self.folder.name
            subprocess.run([self.control, "-d"], env=self.environment, check=True)
        else:
            self.control = None
        return self.environment

    def __exit__(self, *_):
        if self.control:
            subprocess.run([self.control], input="quit\n", text=True, env=self.environment,
                           check=False, timeout=30, capture_output=True)
        self.folder.cleanup()


@unittest.skipUnless(has_gpu(), "no PyTorch that sees a GPU")
class Gpu(unittest.TestCase):
    def test_four_ranks_on_one_gpu(self):
        with Mps() as environment:
            address = f"unix:python-gpu-{os.getpid()}"
            ranks = [subprocess.Popen([sys.executable, HERE / "gpu_rank.py", str(rank),
                                       str(NUM_RANKS), address], env=environment, text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                     for rank in range(NUM_RANKS)]
            outs = []
            try:
                for process in ranks:
                    outs.append((*process.communicate(timeout=200), process.returncode))
            finally:
                for process in ranks:
                    process.kill()
        for rank, (out, err, status) in enumerate(outs):
            self.assertEqual((status, "Traceback" in err), (0, False),
                             f"rank {rank} after {out.split()}:\n{err[-2500:]}")

    def test_the_examples_run_on_the_gpu(self):
        examples = HERE.parents[1] / "examples"
        with Mps() as environment:
            for name in ("moe_training", "decoding"):
                with self.subTest(example=name):
                    done = subprocess.run(
                        [sys.executable, examples / f"{name}.py", "--ranks", "4", "--device", "cuda"],
                        env=environment, capture_output=True, text=True, check=False, timeout=200)
                    print(done.stdout)
                    self.assertEqual(done.returncode, 0, done.stderr[-2500:])


if __name__ == "__main__":
    unittest.main()
