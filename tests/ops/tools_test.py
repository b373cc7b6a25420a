"""`ferry topo`, `env`, `plan` and `nics` from outside.

    tools_test.py FERRY FOLDER
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import unittest
import xml.dom.minidom

import machines

FERRY = pathlib.Path(sys.argv.pop(1)).resolve()
FOLDER = pathlib.Path(sys.argv.pop(1)).resolve()


def run(*arguments, code=0):
    done = subprocess.run([FERRY, *map(str, arguments)], capture_output=True, text=True, timeout=60)
    assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
    return done.stdout if code < 2 else done.stderr


def shell(script, **variables):
    done = subprocess.run(["sh", "-c", script], env={"PATH": "/usr/bin:/bin", **variables}, text=True,
                          capture_output=True, check=True, timeout=20)
    return done.stdout


class ToolsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        shutil.rmtree(FOLDER, ignore_errors=True)
        cls.trees = {name: machines.make(name, FOLDER / name, FOLDER / ".libraries")
                     for name in ("gcp-b200", "gke-cos-pod", "h200-infiniband", "laptop", "azure-vm")}

    def root(self, name):
        return "--root", str(self.trees[name].folder)

    # ---- topo

    def test_topo_maps_gpu_j_to_nic_j(self):
        self.assertEqual(machines.MAPPING + "\n", run("topo", *self.root("gcp-b200"), "--format", "mapping"))
        table = run("topo", *self.root("gcp-b200"))
        self.assertIn("DEEP_EP_DEVICE_TO_HCA_MAPPING=" + machines.MAPPING, table)
        self.assertIn("would use 4 of 8 NICs", table)

    def test_topo_stays_one_to_one_when_names_within_a_switch_are_swapped(self):
        # FC07: the numbers of two NICs of a switch are exchanged; each GPU keeps the device it had.
        def swap(tree):
            folder = "/sys/class/infiniband"
            tree.rename(f"{folder}/mlx5_0", f"{folder}/aside")
            tree.rename(f"{folder}/mlx5_1", f"{folder}/mlx5_0")
            tree.rename(f"{folder}/aside", f"{folder}/mlx5_1")
        tree = self.trees["gcp-b200"]
        with tree.changed(swap):
            mapping = run("topo", "--root", tree.folder, "--format", "mapping")
        self.assertTrue(mapping.startswith("0:mlx5_1:1,1:mlx5_0:1,2:mlx5_2:1"), mapping)

    def test_topo_leaves_slower_ports_out_with_the_reason(self):
        found = json.loads(run("topo", *self.root("h200-infiniband"), "--json"))
        self.assertEqual([{"name": "mlx5_8", "reason": "100 Gb/s Ethernet, those chosen are 400 Gb/s InfiniBand"}],
                         found["left_out"])
        self.assertEqual("NV18", found["gpus"][0]["links"][1])

    def test_topo_leaves_a_port_that_is_down_out(self):
        tree = self.trees["gcp-b200"]
        with tree.changed(lambda t: t.write("/sys/class/infiniband/mlx5_3/ports/1/state", "1: DOWN")):
            found = json.loads(run("topo", "--root", tree.folder, "--json"))
        self.assertEqual([{"name": "mlx5_3", "reason": "port 1 is DOWN"}], found["left_out"])
        self.assertEqual(7, found["nics_used"])

    def test_topo_goes_by_numa_nodes_in_a_virtual_machine(self):
        found = json.loads(run("topo", *self.root("azure-vm"), "--json"))
        self.assertEqual([f"mlx5_ib{i}:1" for i in range(8)], [gpu["nic"] for gpu in found["gpus"]])
        self.assertEqual({"NODE"}, {gpu["distance"] for gpu in found["gpus"]})

    def test_topo_reads_the_topology_file_that_it_writes(self):
        file = FOLDER / "topology.xml"
        file.write_text(run("topo", *self.root("gcp-b200"), "--format", "xml"))
        again = run("topo", *self.root("laptop"), "--topology", file, "--format", "mapping")
        self.assertEqual(machines.MAPPING + "\n", again)
        links = run("topo", *self.root("laptop"), "--topology", file, "--links")
        self.assertEqual(links, run("topo", *self.root("gcp-b200"), "--links"))

    def test_topo_takes_switches_of_a_virtual_machine_from_a_topology_file(self):
        # NIC i sits beside GPU 7 - i of its NUMA node, which only the file knows.
        cpus = ""
        for numa in (0, 1):
            inner = ""
            for i in range(4 * numa, 4 * numa + 4):
                nic = 3 - i if numa == 0 else 11 - i
                inner += (f'<pci busid="ffff:{i + 1:02x}:01.0" class="0x060400">'
                          f'<pci busid="{i + 1:04x}:00:00.0" class="0x030200"/>'
                          f'<pci busid="{0x101 + nic:04x}:00:00.0" class="0x020700"/></pci>')
            cpus += f'<cpu numaid="{numa}">{inner}</cpu>'
        file = FOLDER / "ndv5.xml"
        file.write_text(f'<system version="1">{cpus}</system>')
        found = json.loads(run("topo", *self.root("azure-vm"), "--topology", file, "--json"))
        self.assertEqual([f"mlx5_ib{i}:1" for i in (3, 2, 1, 0, 7, 6, 5, 4)], [g["nic"] for g in found["gpus"]])
        self.assertEqual({"PIX"}, {gpu["distance"] for gpu in found["gpus"]})

    def test_topo_refuses_what_is_no_topology(self):
        bad = FOLDER / "bad.xml"
        for text, says in (("<system", "is not XML"), ("<a/>", "no <system>"),
                           ('<system><cpu><pci/></cpu></system>', "has the busid ''"),
                           ("<system><cpu>" + '<pci busid="0000:00:00.0">' * 40 + "</pci>" * 40 + "</cpu></system>",
                            "at most 32 deep")):
            bad.write_text(text)
            self.assertIn(says, run("topo", *self.root("laptop"), "--topology", bad, code=2))

    def test_topo_draws(self):
        picture = run("topo", *self.root("gcp-b200"), "--format", "svg")
        self.assertEqual(16, len(xml.dom.minidom.parseString(picture).getElementsByTagName("rect")) - 1)

    def test_topo_without_gpu_says_so(self):
        self.assertIn("no plan", run("topo", *self.root("laptop")))
        self.assertEqual("\n", run("topo", *self.root("laptop"), "--format", "mapping"))

    # ---- env

    def script(self, name, *more):
        file = FOLDER / f"{name}.sh"
        file.write_text(run("env", *self.root(name), *more))
        return file

    def test_env_may_be_sourced_twice_and_taken_back(self):
        tree = self.trees["gcp-b200"]
        file = self.script("gcp-b200")
        undo = FOLDER / "undo.sh"
        undo.write_text(run("env", *self.root("gcp-b200"), "--unset"))
        twice = shell(f". {file}; . {file}; env")
        self.assertIn(f"DEEP_EP_DEVICE_TO_HCA_MAPPING={machines.MAPPING}\n", twice)
        self.assertIn("LD_LIBRARY_PATH=/opt/deepep/nvshmem/lib:/old\n", shell(f". {file}; . {file}; env", LD_LIBRARY_PATH="/old"))
        self.assertNotIn("LD_PRELOAD", twice, "the file is not readable here")
        before = shell("env | sort", LD_LIBRARY_PATH="/old:/older")
        after = shell(f". {file}; . {file}; . {undo}; env | sort", LD_LIBRARY_PATH="/old:/older")
        self.assertEqual(before, after)
        self.assertTrue(tree.folder.exists())

    def test_env_gives_each_line_its_reason(self):
        lines = [line for line in self.script("gcp-b200").read_text().splitlines() if line]
        for before, line in zip(lines, lines[1:]):
            if not line.startswith("#"):
                self.assertTrue(before.startswith("# "), line)

    def test_env_sets_only_what_applies(self):
        infiniband = self.script("h200-infiniband").read_text()
        self.assertNotIn("GID_INDEX", infiniband)
        self.assertIn("0:mlx5_0:1", infiniband)
        self.assertNotIn("mlx5_8", infiniband)
        pod = self.script("gke-cos-pod").read_text()
        self.assertIn(f"NCCL_TUNER_CONFIG_PATH={machines.GIB}/configs/tuner_config_a4.txtpb", pod)
        self.assertIn("NCCL_IB_FIFO_TC=84", pod)
        self.assertNotIn("NCCL_IB_FIFO_TC", self.script("gcp-b200").read_text())
        self.assertNotIn("export", self.script("laptop").read_text())

    def test_env_checks_an_existing_script(self):
        file = self.script("gcp-b200")
        run("env", *self.root("gcp-b200"), "--check", file)
        file.write_text(file.read_text().replace("GID_INDEX=3", "GID_INDEX=0")
                        + "export NVSHMEM_IBGDA_NUM_DCT=4\n")
        found = json.loads(run("env", *self.root("gcp-b200"), "--check", file, "--json", code=1))["findings"]
        self.assertEqual({"env.script.NVSHMEM_IB_GID_INDEX": "fail", "env.script.NVSHMEM_IBGDA_NUM_DCT": "warn"},
                         {f["id"]: f["verdict"] for f in found if f["verdict"] != "ok"})

    def test_env_quotes_what_a_shell_would_read(self):
        def mean(tree):
            tree.rename("/usr/local/cuda-12.9", "/usr/local/cuda-$(touch x)'s")
            tree.link("/usr/local/cuda", "/usr/local/cuda-$(touch x)'s")
        tree = self.trees["gcp-b200"]
        with tree.changed(mean):
            file = FOLDER / "mean.sh"
            file.write_text(run("env", "--root", tree.folder))
        self.assertIn("CUDA_HOME=/usr/local/cuda-$(touch x)'s\n", shell(f"cd {FOLDER}; . {file}; env"))
        self.assertFalse((FOLDER / "x").exists())

    # ---- plan

    def plan(self, *arguments, code=0):
        done = json.loads(run("plan", *arguments, "--json", code=code))
        return {f["id"]: f for f in done["findings"]}, done["figures"]

    def test_plan_knows_the_queue_depth(self):
        # FC20: 1024 tokens need 2050; 511 fit into DeepEP's 1024, 512 do not; a user's value is kept.
        findings, _ = self.plan("--mode", "ll", "--nodes", 2, "--tokens", 1024, code=1)
        self.assertEqual("fail", findings["plan.qp-depth"]["verdict"])
        self.assertIn("NVSHMEM_QP_DEPTH=2050, or --tokens 511", findings["plan.qp-depth"]["fix"])
        for tokens, depth, verdict in ((511, None, "ok"), (512, None, "fail"), (1024, 4096, "ok")):
            more = ("--qp-depth", depth) if depth else ()
            findings, _ = self.plan("--mode", "ll", "--nodes", 2, "--tokens", tokens, *more,
                                    code=0 if verdict == "ok" else 1)
            self.assertEqual(verdict, findings["plan.qp-depth"]["verdict"])

    def test_plan_refuses_a_send_chunk_of_32_on_16_nodes(self):
        # FC23.
        shape = ("--nodes", 16, "--tokens", 1024, "--nvl-recv", 512, "--nvl-send", 20, "--rdma-send")
        self.plan(*shape, 28)
        findings, _ = self.plan(*shape, 32, code=1)
        self.assertIn("512 NVLink receive tokens / 16 nodes = 32 > largest send chunk 32", findings["plan.nvl-chunk"]["seen"])
        self.assertIn("--rdma-send 28", findings["plan.nvl-chunk"]["fix"])

    def test_plan_gives_the_low_latency_buffers_that_were_published(self):
        shape = ("--mode", "ll", "--hidden", 5120, "--experts", 448, "--qp-depth", 65536, "--tokens")
        for tokens, gib in ((2048, 35.55), (1856, 32.21), (1840, 31.94), (1536, 26.66)):
            _, figures = self.plan(*shape, tokens, code=1 if tokens > 1843 else 0)
            self.assertAlmostEqual(gib, figures["ll_buffer_bytes"] / 2**30, places=2)
        findings, _ = self.plan(*shape, 1844, code=1)
        self.assertEqual("--tokens 1843", findings["plan.ll-buffer"]["fix"])

    def test_plan_counts_redundant_experts(self):
        findings, figures = self.plan("--mode", "ll", "--tokens", 128, "--experts", 256, "--redundant-experts", 32)
        self.assertIn("288 physical experts", findings["plan.ll-buffer"]["seen"])
        self.assertEqual(36, figures["num_qps"])

    def test_plan_knows_the_grid_and_the_rows(self):
        findings, _ = self.plan("--mode", "ll", "--tokens", 128, "--experts", 288, "--device-sms", 78, "--warp-groups", 3,
                                code=1)
        self.assertIn("= 96 <= 78", findings["plan.ll-grid"]["seen"])
        self.assertEqual("--warp-groups 4", findings["plan.ll-grid"]["fix"])
        findings, _ = self.plan("--nodes", 16, "--hidden", 4096, "--tokens", 4096)
        self.assertEqual("warn", findings["plan.row-offsets"]["verdict"])
        findings, _ = self.plan("--nodes", 16, "--hidden", 4096, "--tokens", 4095)
        self.assertEqual("ok", findings["plan.row-offsets"]["verdict"])

    def test_plan_expects_as_many_copies_as_published(self):
        for nodes, distinct in ((1, 5.29), (2, 6.52), (4, 7.27), (8, 7.68)):
            _, figures = self.plan("--nodes", nodes, "--tokens", 128)
            self.assertAlmostEqual(distinct, figures["distinct_ranks"], places=2)

    def test_plan_refuses_with_the_nearest_legal_value(self):
        for arguments, check, fix in (
                (("--nodes", 3, "--gpus", 4, "--experts", 240), "plan.gpus-per-node", "--gpus 8, or DeepEP V2"),
                (("--nodes", 5, "--experts", 240), "plan.nodes", "--nodes 4"),
                (("--experts", 250), "plan.experts", "--redundant-experts 6"),
                (("--topk", 40), "plan.topk", "--topk 32"),
                (("--nodes", 2, "--hidden", 2880), "plan.hidden", "--hidden 3072"),
                (("--mode", "ll", "--tokens", 128, "--hidden", 2880), "plan.ll-hidden", "--hidden 3072"),
                (("--gpus", 6, "--experts", 240), "plan.ranks", "--gpus 4")):
            findings, _ = self.plan(*arguments, code=1)
            self.assertEqual(("fail", fix), (findings[check]["verdict"], findings[check]["fix"]), arguments)

    def test_plan_for_ferry_is_what_an_exchange_needs(self):
        findings, figures = self.plan("--for", "ferry", "--ranks", 8)
        self.assertEqual({"ok"}, {f["verdict"] for f in findings.values()})
        self.assertGreater(figures["arena_bytes"], figures["delivery_bytes"])
        findings, _ = self.plan("--for", "ferry", "--ranks", 8, "--experts", 255, code=1)
        self.assertIn("255", findings["plan.exchange"]["seen"])
        self.assertEqual("fail", self.plan("--for", "ferry", "--nodes", 2, code=1)[0]["plan.nodes"]["verdict"])

    def test_plan_refuses_a_routing_that_it_does_not_know(self):
        self.assertIn("expected uniform or grouped:CHOSEN/GROUPS", run("plan", "--routing", "zipf:1.2", code=2))
        _, grouped = self.plan("--nodes", 8, "--routing", "grouped:4/8", "--tokens", 128)
        _, uniform = self.plan("--nodes", 8, "--tokens", 128)
        self.assertLess(grouped["dispatch_rdma_bytes"], uniform["dispatch_rdma_bytes"])

    # ---- nics

    def test_nics_counts_words_of_four_bytes(self):
        ports = json.loads(run("nics", *self.root("gcp-b200"), "--json"))["ports"]
        self.assertEqual(("mlx5_0:1", 4000, 8000), (ports[0]["name"], ports[0]["sent_bytes"], ports[0]["received_bytes"]))
        self.assertIn("no RDMA device", run("nics", *self.root("laptop")))

    def around(self, names, code):
        tree = self.trees["gcp-b200"]
        files = [str(tree.path(f"/sys/class/infiniband/{name}/ports/1/counters/port_xmit_data")) for name in names]
        program = f"for f in {files!r}: open(f, 'w').write('100000000')"
        old = {file: pathlib.Path(file).read_text() for file in files}
        try:
            return json.loads(run("nics", *self.root("gcp-b200"), "--json", "--around", sys.executable, "-c", program,
                                  code=code))
        finally:
            for file, text in old.items():
                pathlib.Path(file).write_text(text)

    def test_nics_says_which_moved_around_a_command(self):
        everyone = self.around([f"mlx5_{i}" for i in range(8)], 0)
        self.assertEqual("ok", everyone["findings"][0]["verdict"])
        half = self.around(["mlx5_0", "mlx5_2", "mlx5_4", "mlx5_6"], 0)["findings"][0]
        self.assertEqual("warn", half["verdict"])
        self.assertIn("idle: mlx5_1:1, mlx5_3:1", half["seen"])
        one = self.around(["mlx5_0"], 1)["findings"][0]
        self.assertEqual("fail", one["verdict"])

    def test_nics_passes_the_commands_failure_on(self):
        self.assertEqual(7, json.loads(run("nics", *self.root("laptop"), "--json", "--around", "sh", "-c", "exit 7",
                                           code=1))["command_exit_code"])
        run("nics", "--around", "/no/such/program", code=1)
        run("nics", "--around", code=2)
        run("nics", "stray", code=2)

    def test_nics_watches_for_a_number_of_rounds(self):
        text = run("nics", *self.root("gcp-b200"), "--watch", "--rounds", 2, "--interval", 0.01)
        self.assertEqual(16, text.count("GB/s  received"))

    def test_facts_are_written_once_a_host_under_a_launcher(self):
        folder = FOLDER / "facts"
        folder.mkdir()
        for rank in range(2):
            environment = {**os.environ, "OMPI_COMM_WORLD_LOCAL_RANK": str(rank)}
            subprocess.run([FERRY, "facts", *self.root("laptop"), "--output", folder], env=environment, check=True)
        self.assertEqual(["laptop.json"], [file.name for file in folder.iterdir()])


if __name__ == "__main__":
    unittest.main()
