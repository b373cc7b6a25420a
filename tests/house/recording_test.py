"""The recording in examples/data/ is whole, and is the one that the README beside it describes.

Standard library only: python3 tests/house/recording_test.py
"""

import ast
import collections
import hashlib
import pathlib
import struct
import unittest

DATA = pathlib.Path(__file__).resolve().parents[2] / "examples" / "data"
NUM_TOKENS, NUM_LAYERS, TOPK, NUM_EXPERTS = 4096, 4, 8, 64
MAX_BYTES = 1_000_000
HEADER_BYTES = 128


def read_recording(raw):
    """Returns [token][layer][k], or raises ValueError that says what is not as agreed."""
    if raw[:8] != b"\x93NUMPY\x01\x00":
        raise ValueError(f"starts with {raw[:8]!r}, not with the magic of .npy 1.0")
    header_bytes = 10 + struct.unpack("<H", raw[8:10])[0]
    header = ast.literal_eval(raw[10:header_bytes].decode("latin-1"))
    shape = (NUM_TOKENS, NUM_LAYERS, TOPK)
    expected = {"descr": "<i2", "fortran_order": False, "shape": shape}
    if header != expected:
        raise ValueError(f"the header is {header}, not {expected}")
    num_ids = NUM_TOKENS * NUM_LAYERS * TOPK
    if len(raw) != header_bytes + 2 * num_ids:
        raise ValueError(f"{len(raw)} bytes long, not {header_bytes + 2 * num_ids}")
    ids = struct.unpack(f"<{num_ids}h", raw[header_bytes:])
    picks = [ids[first : first + TOPK] for first in range(0, num_ids, TOPK)]
    for idx, pick in enumerate(picks):
        where = f"token {idx // NUM_LAYERS}, layer {idx % NUM_LAYERS}: {pick}"
        if not all(0 <= expert < NUM_EXPERTS for expert in pick):
            raise ValueError(f"{where} has an expert outside 0..{NUM_EXPERTS - 1}")
        if len(set(pick)) != TOPK:
            raise ValueError(f"{where} has an expert twice")
    return [picks[first : first + NUM_LAYERS] for first in range(0, len(picks), NUM_LAYERS)]


class Recording(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.raw = (DATA / "small-moe-topk.npy").read_bytes()
        cls.readme = (DATA / "README.md").read_text(encoding="utf-8")

    def test_holds_distinct_experts_in_range_for_every_token_and_layer(self):
        self.assertEqual(len(read_recording(self.raw)), NUM_TOKENS)

    def test_is_at_most_a_megabyte(self):
        self.assertLessEqual(len(self.raw), MAX_BYTES)

    def test_is_the_file_whose_digest_the_readme_states(self):
        self.assertIn(f"`{hashlib.sha256(self.raw).hexdigest()}`", self.readme)

    def test_has_the_load_that_the_readme_states(self):
        tokens = read_recording(self.raw)
        mean = NUM_TOKENS * TOPK / NUM_EXPERTS
        for layer in range(NUM_LAYERS):
            load = collections.Counter(expert for token in tokens for expert in token[layer])
            least = min(load[expert] for expert in range(NUM_EXPERTS))
            row = (f"| {layer} | {max(load.values()) / mean:.2f} | {least / mean:.2f} "
                   f"| {len(load)}/{NUM_EXPERTS} |")
            self.assertIn(row, self.readme)


class ReadRecording(unittest.TestCase):
    """The reader above can fail: one spoiled byte or a missing one is told."""

    def setUp(self):
        self.raw = bytearray((DATA / "small-moe-topk.npy").read_bytes())

    def assert_rejects(self, message):
        with self.assertRaisesRegex(ValueError, message):
            read_recording(bytes(self.raw))

    def test_rejects_a_missing_byte(self):
        del self.raw[-1]
        self.assert_rejects("^262271 bytes long, not 262272$")

    def test_rejects_another_format_version(self):
        self.raw[6] = 2
        self.assert_rejects("not with the magic of .npy 1.0$")

    def test_rejects_an_expert_out_of_range(self):
        self.raw[HEADER_BYTES : HEADER_BYTES + 2] = struct.pack("<h", NUM_EXPERTS)
        self.assert_rejects(r"^token 0, layer 0: \(64, .* has an expert outside 0\.\.63$")

    def test_rejects_an_expert_twice_in_a_token(self):
        self.raw[-2:] = self.raw[-4:-2]
        self.assert_rejects("^token 4095, layer 3: .* has an expert twice$")


if __name__ == "__main__":
    unittest.main()
