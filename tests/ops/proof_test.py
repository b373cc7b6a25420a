"""ferry verify, ferry image gcp and ferry k8s gke from outside, with programs that stand for the real ones."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

FERRY = os.path.abspath(sys.argv.pop(1))
IMAGE = ("image", "gcp", "--instance", "a4-0", "--zone", "us-central1-b", "--group", "g1")


class Proof(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.calls = self.folder / "calls"

    def program(self, name, body):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'#!/bin/sh\necho "${{0##*/}} $*" >> {self.calls}\n{body}\n')
        path.chmod(0o755)

    def ferry(self, *arguments):
        environment = {**os.environ, "PATH": f"{self.folder}/bin:/usr/bin:/bin"}
        return subprocess.run([FERRY, *arguments], env=environment, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=120, check=False)

    def recorded(self):
        return self.calls.read_text().splitlines() if self.calls.exists() else []

    def verify(self):
        answer = self.ferry("verify", "--prefix", str(self.folder), "--json")
        findings = json.loads(answer.stdout)["findings"]
        return answer.returncode, {finding["id"]: finding for finding in findings}

    def test_an_import_that_fails_fails_the_proof_and_no_test_is_tried(self):
        self.program("venv/bin/python3", "echo 'ImportError: no deep_ep' >&2; exit 1")
        code, findings = self.verify()
        self.assertEqual(code, 1)
        self.assertEqual(findings["verify.import"]["verdict"], "fail")
        self.assertIn("ImportError: no deep_ep", findings["verify.import"]["seen"])
        self.assertEqual(findings["verify.one-node"]["verdict"], "unknown")
        self.assertEqual(self.recorded(), ["python3 -c import deep_ep"])

    def test_an_nvshmem_without_ibgda_is_seen(self):
        self.program("venv/bin/python3", "exit 0")
        self.program("nvshmem/bin/nvshmem-info", "echo NVSHMEM_IBGDA_SUPPORT=OFF")
        code, findings = self.verify()
        self.assertEqual((code, findings["verify.ibgda"]["verdict"]), (1, "fail"))

    def test_the_environment_script_is_in_force(self):
        self.program("venv/bin/python3", 'test "$NVSHMEM_HOME" = "/here"')
        (self.folder / "unified-env.sh").write_text("export NVSHMEM_HOME=/here\n")
        self.assertEqual(self.verify()[1]["verify.import"]["verdict"], "ok")

    def test_lists_a_line_for_each_node(self):
        lines = self.ferry("verify", "--list", "--peer", "b", "--peer", "c", "--peer", "d").stdout.splitlines()
        self.assertEqual(len(lines), 5)
        self.assertIn("WORLD_SIZE=1 RANK=0 MASTER_ADDR=127.0.0.1", lines[0])
        self.assertIn("WORLD_SIZE=4 RANK=3", lines[4])
        self.assertIn("--num-tokens 2048 --hidden 7168 --num-experts 256 --num-topk 8", lines[4])

    def test_proves_ferryep_itself(self):
        answer = self.ferry("verify", "--stack", "ferry", "--json")
        self.assertEqual(json.loads(answer.stdout)["findings"][0]["verdict"], "ok", answer)

    def test_an_image_is_a_sequence_that_is_only_printed(self):
        self.program("bin/gcloud", "exit 0")
        answer = self.ferry(*IMAGE)
        self.assertEqual(answer.returncode, 0, answer)
        verbs = [line.split()[2:5] for line in answer.stdout.splitlines() if line.startswith("gcloud")]
        self.assertEqual([" ".join(verb) for verb in verbs],
                         ["instance-groups managed abandon-instances", "instances stop a4-0",
                          "images create a4-0-deepep", "instance-templates create a4-0-deepep-template",
                          "instance-groups managed set-instance-template", "instance-groups managed resize"])
        self.assertEqual(answer.stdout.count("nic-type=MRDMA"), 8)
        self.assertEqual(answer.stdout.count("no-address"), 8)
        self.assertEqual(self.recorded(), [])

    def test_nothing_is_stopped_or_resized_that_was_not_named(self):
        self.program("bin/gcloud", "exit 0")
        for confirmed in ((), ("--confirm", "a4-0"), ("--confirm", "g1"), ("--confirm", "a4-1")):
            answer = self.ferry(*IMAGE, "--apply", *confirmed)
            self.assertEqual(answer.returncode, 4, answer)
            self.assertEqual(self.recorded(), [])
        answer = self.ferry(*IMAGE, "--apply", "--confirm", "a4-0", "--confirm", "g1")
        self.assertEqual(answer.returncode, 0, answer)
        self.assertEqual(len(self.recorded()), 6)

    def test_an_image_stops_at_the_first_failure(self):
        self.program("bin/gcloud", 'case "$*" in *"images create"*) echo quota; exit 1 ;; esac')
        answer = self.ferry(*IMAGE, "--apply", "--confirm", "a4-0", "--confirm", "g1")
        self.assertEqual(answer.returncode, 1, answer)
        self.assertIn("quota", answer.stderr)
        self.assertEqual(len(self.recorded()), 3)

    def test_a_pod_goes_to_kubectl_only_with_apply(self):
        self.program("bin/kubectl", f"cat > {self.folder}/manifest")
        self.assertIn("kind: Pod", self.ferry("k8s", "gke").stdout)
        self.assertEqual(self.recorded(), [])
        self.assertEqual(self.ferry("k8s", "gke", "--apply").returncode, 0)
        self.assertEqual((self.folder / "manifest").read_text(), self.ferry("k8s", "gke").stdout)

    def test_machines_get_json(self):
        pod = json.loads(self.ferry("k8s", "gke", "--json").stdout)
        self.assertEqual((pod["schema"], pod["applies"]), ("ferry.k8s/1", False))
        self.assertEqual(pod["manifest"], self.ferry("k8s", "gke").stdout)
        image = json.loads(self.ferry(*IMAGE, "--json").stdout)
        self.assertEqual(image["schema"], "ferry.image/1")
        self.assertEqual(image["steps"][1]["argv"],
                         ["gcloud", "compute", "instances", "stop", "a4-0", "--zone=us-central1-b"])


if __name__ == "__main__":
    unittest.main()
