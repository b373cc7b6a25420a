"""The installer over a made-up host and fake programs: killed, failing, hanging and resumed runs end in
the same state, and no recorded call of any path is on the list of what it never does."""

import fcntl
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

DRIVER = os.path.abspath(sys.argv.pop(1))
FAKE = pathlib.Path(__file__).resolve().with_name("fake_program")
PROGRAMS = """apt-get dpkg git cmake make pip python3 gcloud modprobe sudo reboot wget update-initramfs
    chown nvidia-smi ibv_devinfo env mkdir rm mv ln install diff gpg sha256sum tar conda nvcc""".split()
ROCEP = [145, 146, 152, 153, 198, 199, 205, 206]
DEADLINE = 60

# What the installer never does, whatever it was asked for (reboot: but for --reboot).
NEVER = {
    "reboots": r"^(sudo )?reboot\b",
    "unloads or reloads a driver": r"\b(rmmod|modprobe (-r|--remove))\b|service .*(openibd|nvidia)",
    "restarts networking": r"\b(systemctl|service|netplan|ifdown|ifup|ip link set)\b",
    "upgrades or removes packages": r"apt-get .* (upgrade|dist-upgrade|full-upgrade|remove|purge|autoremove)\b",
    "installs in a way that could": r"apt-get .*\binstall\b(?!.*--no-upgrade.*--no-remove)",
    "hands over what lies outside its prefix": r"\bchown\b(?! \S+ /opt/deepep(/\S+)?( /opt/deepep(/\S+)?)*$)",
    "hands over whole trees": r"\bchown\b.*-R",
    "removes outside its prefix": r"\brm\b (?!-rf -- /opt/deepep/\S+$)",
    "touches an instance": r"\bgcloud\b",
    "trusts keys for everything": r"apt-key",
    "fetches without TLS": r"\bhttp://",
    "runs a user's phase as root": r"^sudo (?!-u)(git|make|cmake|tar|conda)\b",
}


class Host:
    """A GCP B200 machine before anything was installed, and what a boot does to it."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.root = self.folder / "root"
        self.log = self.folder / "calls"
        self.bin = self.folder / "bin"
        self.bin.mkdir(parents=True)
        for name in PROGRAMS:
            (self.bin / name).symlink_to(FAKE)
        self.write("/etc/os-release", 'ID=ubuntu\nVERSION_ID="24.04"\n')
        self.write("/etc/machine-id", "1" * 32 + "\n")
        self.write("/proc/meminfo", "MemTotal: 2000000000 kB\nMemAvailable: 1900000000 kB\n")
        self.write("/proc/modules", "nvidia 16384 0 - Live 0x0\n")
        self.write("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for "
                                                  "x86_64  570.133.20  Release\n")
        self.write("/proc/driver/nvidia/params", 'RegistryDwords: ""\n')
        self.write("/var/lib/dpkg/status", "")
        self.write("/usr/lib/x86_64-linux-gnu/libmlx5.so.1", "")
        for bus in ROCEP:
            self.write(f"/sys/class/infiniband/rocep{bus}s0/ports/1/state", "4: ACTIVE\n")
        self.boots = 0
        self.boot()

    def write(self, name, text):
        path = self.root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def boot(self):
        self.boots += 1
        self.write("/proc/sys/kernel/random/boot_id", f"boot-{self.boots}\n")
        infiniband = self.root / "sys/class/infiniband"
        if "Package: doca-ofed" in (self.root / "var/lib/dpkg/status").read_text():
            for index, old in enumerate(sorted(infiniband.glob("rocep*"))):
                old.rename(infiniband / f"mlx5_{index}")
        if (self.root / "etc/modprobe.d/nvidia-peermapping.conf").exists():
            self.write("/proc/driver/nvidia/params", 'RegistryDwords: "PeerMappingOverride=0x1"\n')

    def start(self, *arguments, at=None, action=None, **variables):
        environment = {"PATH": str(self.bin), "FAKE_ROOT": str(self.root), "FAKE_LOG": str(self.log),
                       "FAKE_BIN": str(self.bin), **variables}
        if at:
            environment.update(FAKE_AT=str(at), FAKE_ACTION=action)
        return subprocess.Popen([DRIVER, str(self.root), str(self.folder / "state"), "accept=1",
                                 *arguments], env=environment, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def run(self, *arguments, **options):
        process = self.start(*arguments, **options)
        out, _ = process.communicate(timeout=DEADLINE)
        self.out = out
        return process.returncode

    def run_to_the_end(self, *arguments):
        """What a person does who reads the messages: go on, and reboot when told to."""
        for _ in range(4):
            code = self.run(*arguments)
            if code != 4:
                return code
            self.boot()
        return code

    def calls(self):
        return self.log.read_text().splitlines() if self.log.exists() else []

    def snapshot(self):
        """Every file below the root but former versions that were kept, and what only a boot says."""
        files = {}
        for path in sorted(self.root.rglob("*")):
            name = str(path.relative_to(self.root))
            if re.search(r"\.~\d+~", name) or name.startswith("proc/"):
                continue
            if path.is_symlink():
                files[name] = os.readlink(path)
            elif path.is_file():
                files[name] = path.read_text()
        return files

    def state(self):
        return json.loads((self.folder / "state/state.json").read_text())


class Install(unittest.TestCase):
    recorded = []  # calls of every path, for the last test

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.hosts = 0

    def host(self):
        self.hosts += 1
        host = Host(os.path.join(self.folder.name, str(self.hosts)))
        self.addCleanup(lambda: Install.recorded.extend(host.calls()))
        return host

    def finished(self, *arguments):
        host = self.host()
        self.assertEqual(host.run_to_the_end(*arguments), 0, host.out)
        return host

    def test_stops_for_the_reboot_and_goes_on_after_it(self):
        host = self.host()
        self.assertEqual(host.run(), 4, host.out)
        self.assertIn("stopped: a reboot is due (doca-ofed, driver-option takes effect", host.out)
        self.assertIn("to go on: sudo reboot, then: ferry install --stack deepep --target bare-metal "
                      "--prefix /opt/deepep --accept-unpinned --apply --resume", host.out)
        before = len(host.calls())
        self.assertEqual(host.run(), 4, "without a reboot nothing is repeated")
        self.assertEqual(len(host.calls()), before)
        host.boot()
        self.assertEqual(host.run(), 0, host.out)
        self.assertEqual({record["status"] for record in host.state()["phases"].values()}, {"done"})
        done = len(host.calls())
        self.assertEqual(host.run(), 0, host.out)
        self.assertEqual(len(host.calls()), done, "nothing is due any more")

    def test_says_when_a_reboot_has_not_helped(self):
        host = self.host()
        host.run()
        host.write("/proc/sys/kernel/random/boot_id", "another\n")
        self.assertEqual(host.run(), 1, host.out)
        self.assertIn("the machine was booted since, and it still is not in force", host.out)

    def resumed(self, action, first, stride, *arguments):
        total = len(self.finished(*arguments).calls())
        wanted = self.finished(*arguments).snapshot()
        for at in range(first, total + 1, stride):
            host = self.host()
            code = host.run(*arguments, "longest_ms=400" if action == "hang" else "longest_ms=0",
                            at=at, action=action)
            if code == 4:  # the call comes after the reboot
                host.boot()
                code = host.run(*arguments, "longest_ms=400" if action == "hang" else "longest_ms=0",
                                at=at, action=action)
            if action == "fail" and host.calls()[at - 1].startswith("diff "):
                continue  # it says that files differ, and nothing more
            self.assertEqual(code, -9 if action == "kill" else 1, f"call {at}: {host.out}")
            if action != "kill":
                self.assertIn("to go on: ferry install", host.out)
            self.assertEqual(host.run_to_the_end(*arguments), 0, f"call {at}: {host.out}")
            self.assertEqual(host.snapshot(), wanted, f"call {at}")

    def test_killed_at_any_call_it_resumes_to_the_same_state(self):
        self.resumed("kill", 1, 4)
        self.resumed("kill", 3, 13, "identity=sudo")

    def test_failing_at_any_call_it_says_so_and_resumes(self):
        self.resumed("fail", 3, 8, "identity=root")

    def test_hanging_it_ends_and_resumes(self):
        self.resumed("hang", 2, 23)

    def test_every_source_of_nvshmem_ends_with_headers_and_ibgda(self):
        for source in ("archive", "wheel", "deb", "conda"):
            host = self.finished(f"nvshmem={source}")
            self.assertTrue((host.root / "opt/deepep").is_dir(), source)
        self.assertIn("--require-hashes", "\n".join(self.finished("nvshmem=wheel").calls()))

    def test_the_cpu_handler_is_a_module_and_no_driver_option(self):
        host = self.finished("nic=cpu")
        calls = "\n".join(host.calls())
        self.assertIn("modprobe gdrdrv", calls)
        self.assertNotIn("update-initramfs", calls)
        self.assertTrue((host.root / "etc/modules-load.d/gdrdrv.conf").exists())

    def test_on_gke_it_only_builds(self):
        host = self.finished("target=gke-cos")
        calls = "\n".join(host.calls())
        self.assertNotIn("doca", calls)
        self.assertIn("-DNVSHMEM_USE_GDRCOPY=OFF", calls)

    def test_refuses_a_pull_request_that_moved_and_names_both_commits(self):
        host = self.host()
        host.run()
        host.boot()
        self.assertEqual(host.run(FAKE_DEEPEP="2" * 40), 1, host.out)
        self.assertIn("got '" + "2" * 40 + "', expected '8a07e7e7ed57cfc63005f670d64d410cb30b061b'", host.out)
        self.assertFalse((host.root / "opt/deepep/DeepEP").exists())

    def test_refuses_a_build_against_another_nvshmem(self):
        host = self.host()
        host.run()
        host.boot()
        self.assertEqual(host.run(FAKE_NVSHMEM="/venv/site-packages/nvidia/nvshmem"), 1, host.out)
        self.assertIn("expected '/opt/deepep/nvshmem'", host.out)

    def test_records_what_came_without_a_pin(self):
        fetched = self.finished().state()["fetched"]
        self.assertEqual(fetched["nvshmem"], "1" * 40)
        self.assertIn("cuda-keyring", fetched)

    def test_unpinned_downloads_stop_it_before_its_first_command(self):
        host = self.host()
        process = subprocess.run([DRIVER, host.root, host.folder / "state"], capture_output=True, text=True,
                                 env={"PATH": str(host.bin)}, timeout=DEADLINE, check=False)
        self.assertEqual(process.returncode, 4, process.stdout)
        self.assertIn("nobody has pinned cuda-keyring, doca-key, nvshmem, torch, numpy", process.stdout)
        self.assertEqual(host.calls(), [])

    def test_a_phase_that_was_undone_is_planned_again(self):
        host = self.finished()
        shutil.rmtree(host.root / "opt/deepep/gdrcopy")
        self.assertEqual(host.run(), 0, host.out)
        self.assertIn("phase 6 gdrcopy: recorded as done, but its check says: no libgdrapi.so", host.out)
        self.assertTrue((host.root / "opt/deepep/gdrcopy/lib/libgdrapi.so.2").exists())

    def test_a_cloned_image_does_not_inherit_the_state(self):
        host = self.finished()
        host.write("/etc/machine-id", "2" * 32 + "\n")
        self.assertEqual(host.run(), 0, host.out)
        self.assertIn("the recorded state is of another machine, and is ignored", host.out)

    def test_a_second_run_names_the_first_ones_pid(self):
        host = self.host()
        (host.folder / "state").mkdir()
        with open(host.folder / "state/lock", "w", encoding="utf-8") as lock:
            lock.write("4711")
            lock.flush()
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.assertEqual(host.run(), 1)
        self.assertIn("another ferry install is running here, pid 4711", host.out)

    def test_registry_options_of_another_file_stop_it_with_the_merged_line(self):
        host = self.host()
        host.write("/etc/modprobe.d/nvidia.conf", 'options nvidia NVreg_RegistryDwords="RmMsg=1;"\n')
        self.assertEqual(host.run(), 4, host.out)
        self.assertIn('options nvidia NVreg_RegistryDwords="PeerMappingOverride=0x1;RmMsg=1;"', host.out)
        self.assertFalse((host.root / "etc/modprobe.d/nvidia-peermapping.conf").exists())

    def test_a_driver_in_use_is_not_changed(self):
        host = self.host()
        host.write("/proc/77/comm", "trainer\n")
        host.write("/dev/nvidia0", "")
        (host.root / "proc/77/fd").mkdir()
        (host.root / "proc/77/fd/5").symlink_to("/dev/nvidia0")
        self.assertEqual(host.run(), 1, host.out)
        self.assertIn("77 (trainer)", host.out)
        self.assertEqual(host.calls(), [])

    def test_reboots_only_when_told_to(self):
        host = self.host()
        self.assertEqual(host.run("reboot=1"), 4, host.out)
        self.assertEqual(host.calls()[-1], "sudo reboot ")
        host.log.write_text("")  # the one path that may

    def test_zz_no_recorded_call_is_on_the_never_list(self):
        self.assertGreater(len(self.recorded), 500)
        for what, pattern in NEVER.items():
            found = [call for call in self.recorded if re.search(pattern, call)]
            self.assertEqual(found[:3], [], f"it {what}")

    def test_the_never_list_can_fail(self):
        bad = ["sudo reboot", "modprobe -r nvidia", "systemctl restart networking", "apt-get -y upgrade",
               "apt-get install -y x", "chown alice /etc", "chown -R alice /opt/deepep", "rm -rf -- /",
               "gcloud compute instances stop a", "apt-key add", "wget http://x", "sudo git clone x"]
        for call, (what, pattern) in zip(bad, NEVER.items()):
            self.assertRegex(call, pattern, what)


if __name__ == "__main__":
    unittest.main()
