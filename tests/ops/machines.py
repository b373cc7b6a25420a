"""Machines made up for tests: each function writes one whole tree. No file was copied from a host.

    machines.py FOLDER     writes all of them below FOLDER
"""

import json
import pathlib
import sys

from tree import Tree

ALL_CAPABILITIES = "000001ffffffffff"
FIX = "nvshmemi_ibgda_device_qp_t* ibgda_get_rc_impl(StateType* state, int pe, int id)"
MAPPING_FIX = "    def _setup_device_hca_mapping(self): ..."


# ---- parts ------------------------------------------------------------------------------------

def linux(tree, hostname, os_id="ubuntu", os_version="24.04", kernel="6.8.0-1024-gcp",
          vendor="", product="", memlock="unlimited", capabilities=ALL_CAPABILITIES, uid=0,
          shm="64g", memory_kb=2_000_000_000, cmdline="BOOT_IMAGE=/vmlinuz ro", **environment):
    tree.write("/etc/hostname", hostname)
    tree.write("/etc/machine-id", "0" * 31 + "1")
    tree.write("/etc/os-release", f'ID={os_id}\nVERSION_ID="{os_version}"\n')
    tree.write("/proc/sys/kernel/osrelease", kernel)
    tree.write("/proc/cmdline", cmdline)
    tree.write("/proc/meminfo", f"MemTotal: {memory_kb} kB\nMemAvailable: {memory_kb // 2} kB\n")
    tree.write("/proc/modules", "")
    tree.write("/proc/1/cgroup", "0::/init.scope")
    tree.write("/proc/self/status",
               f"Name:\tferry\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nCapEff:\t{capabilities}\nSeccomp:\t0\n")
    tree.write("/proc/self/limits",
               "Limit                     Soft Limit           Hard Limit           Units\n"
               f"Max locked memory         {memlock}            {memlock}            bytes\n")
    tree.write("/proc/self/mounts", f"tmpfs /dev/shm tmpfs rw,nosuid,nodev,size={shm} 0 0")
    tree.write("/proc/net/route",
               "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n")
    tree.write("/proc/net/if_inet6", "")
    for cpu in range(4):
        tree.folder_at(f"/sys/devices/system/cpu/cpu{cpu}")
    tree.folder_at("/sys/bus/pci/devices")
    tree.folder_at("/sys/module")
    if vendor:
        tree.write("/sys/class/dmi/id/sys_vendor", vendor)
        tree.write("/sys/class/dmi/id/product_name", product)
    tree.write(f"/lib/modules/{kernel}/modules.dep",
               "kernel/drivers/video/nvidia-peermem.ko.zst: kernel/drivers/video/nvidia.ko.zst\n")
    tree.library("/usr/lib/x86_64-linux-gnu/libc.so.6", "libc.so.6",
                 text=["GNU C Library stable release version 2.39."])
    tree.write("/usr/bin/g++", "")
    tree.set_environment(PATH="/usr/local/cuda/bin:/usr/bin", HOME="/root", **environment)
    interface(tree, "lo", mtu=65536, is_virtual=True, has_route=False)
    interface(tree, "eth0", mtu=1460, is_default=True)


def interface(tree, name, mtu=1500, state="up", is_virtual=False, has_route=True, is_default=False):
    tree.write_all(f"/sys/class/net/{name}", operstate=state, mtu=mtu)
    tree.write_all(f"/sys/class/net/{name}/statistics", rx_bytes=1000, tx_bytes=2000)
    if not is_virtual:
        tree.folder_at(f"/sys/class/net/{name}/device")
    if has_route:
        add_route(tree, name, is_default)


def add_route(tree, name, is_default=False):
    text = tree.read("/proc/net/route")
    text += f"{name}\t0000A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
    if is_default:
        text += f"{name}\t00000000\t0100A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n"
    tree.write("/proc/net/route", text)


def module(tree, name, version=None):
    tree.write("/proc/modules", tree.read("/proc/modules").strip("\n") +
               f"\n{name} 16384 0 - Live 0x0000000000000000\n")
    tree.folder_at(f"/sys/module/{name}")
    if version:
        tree.write(f"/sys/module/{name}/version", version)


def pci(tree, path, vendor, device, pci_class, numa):
    """The device at the end of `path`, which begins with its root port, and its bridges."""
    root_bus = path[0].rsplit(":", 1)[0]
    folder = f"/sys/devices/pci{root_bus}"
    for depth, address in enumerate(path):
        folder += f"/{address}"
        is_last = depth == len(path) - 1
        if not tree.path(folder + "/class").exists():
            tree.write_all(folder, vendor=vendor if is_last else "0x1000",
                           device=device if is_last else "0xc030",
                           **{"class": pci_class if is_last else "0x060400"}, numa_node=numa)
            if not is_last:
                tree.write(folder + "/config", bytes(4096))
        if not tree.path(f"/sys/bus/pci/devices/{address}").is_symlink():
            tree.link(f"/sys/bus/pci/devices/{address}", f"../../../..{folder}")


def set_acs(tree, address, control):
    """The bridge's config space with one extended capability: ACS and its control register."""
    config = bytearray(4096)
    config[0x100:0x104] = (0x0001000D).to_bytes(4, "little")
    config[0x106:0x108] = control.to_bytes(2, "little")
    tree.write(f"/sys/bus/pci/devices/{address}/config", bytes(config))


def driver(tree, version="570.133.20", flavour="open", registry="", cuda="12.8"):
    kind = "Open Kernel Module for x86_64" if flavour == "open" else "x86_64 Kernel Module"
    tree.write("/proc/driver/nvidia/version", f"NVRM version: NVIDIA UNIX {kind}  {version}  Release\n")
    tree.write("/proc/driver/nvidia/params",
               f'EnableStreamMemOPs: 0\nRegistryDwords: "{registry}"\nRegistryDwordsPerDevice: ""\n')
    tree.write("/ferry/cuda_version", cuda)
    module(tree, "nvidia", version)
    for node in ("nvidiactl", "nvidia-uvm"):
        tree.write(f"/dev/{node}", "")


def gpus(tree, paths, name, capability, numas, memory_gib, switch_links=0, fabric="completed"):
    """GPUs at the given PCI paths; `switch_links` NVLinks of each lead to an NVSwitch."""
    answers = []
    for index, (path, numa) in enumerate(zip(paths, numas)):
        pci(tree, path, "0x10de", "0x2901", "0x030200", numa)
        address = path[-1]
        uuid = f"GPU-00000000-0000-0000-0000-{index:012d}"
        tree.write(f"/proc/driver/nvidia/gpus/{address}/information",
                   f"Model: \t\t {name}\nIRQ:   \t\t 16\nGPU UUID: \t {uuid}\n")
        links = [{"link": i, "is_active": True, "peer": "", "is_switch": True}
                 for i in range(switch_links)]
        answers.append({
            "index": index, "pci": address, "name": name, "uuid": uuid,
            "compute_capability": capability, "memory_bytes": memory_gib << 30, "is_mig": False,
            "nvlinks": links, "fabric_state": fabric if switch_links else None,
            "fabric_cluster": "0" * 32 if switch_links else None,
            "fabric_clique": 0 if switch_links else None})
    tree.write("/ferry/gpus.json", json.dumps(answers))


def edit_gpus(tree, edit):
    answers = json.loads(tree.read("/ferry/gpus.json"))
    for gpu in answers:
        edit(gpu)
    tree.write("/ferry/gpus.json", json.dumps(answers))


def hca(tree, name, path, index, numa=0, kernel_driver="mlx5_core", link_layer="Ethernet", rate=400,
        netdev=None, mtu=8896, state="4: ACTIVE", phys="5: LinkUp", gids=None, device="0x1021"):
    pci(tree, path, "0x15b3" if kernel_driver == "mlx5_core" else "0x1d0f", device, "0x020700", numa)
    address = path[-1]
    folder = f"/sys/class/infiniband/{name}"
    tree.link(f"{folder}/device", f"/sys/bus/pci/devices/{address}")
    device_folder = "/sys/devices/pci" + path[0].rsplit(":", 1)[0] + "/" + "/".join(path)
    tree.folder_at(f"/sys/bus/pci/drivers/{kernel_driver}")
    tree.link(f"{device_folder}/driver", f"/sys/bus/pci/drivers/{kernel_driver}")
    tree.folder_at(f"{device_folder}/infiniband_verbs/uverbs{index}")
    tree.write(f"/dev/infiniband/uverbs{index}", "")
    tree.write("/dev/infiniband/rdma_cm", "")
    tree.write_all(folder, fw_ver="28.43.2026", board_id="MT_0000000838",
                   node_guid=f"0000:0000:0000:{index:04x}")
    port = f"{folder}/ports/1"
    tree.write_all(port, state=state, phys_state=phys, link_layer=link_layer,
                   rate=f"{rate} Gb/sec (4X NDR)")
    tree.write_all(f"{port}/counters", port_xmit_data=1000 + index, port_rcv_data=2000 + index,
                   port_xmit_packets=10, port_rcv_packets=20)
    if netdev:
        tree.write(f"{device_folder}/net/{netdev}/mtu", str(mtu))
        interface(tree, netdev, mtu=mtu)
    if gids is None:
        gids = roce_gids(index) if link_layer == "Ethernet" else [
            (f"fe80:0000:0000:0000:0000:0000:0000:{index + 1:04x}", "IB/RoCE v1")]
    set_gids(tree, name, gids, netdev or "")


def roce_gids(index):
    link_local = f"fe80:0000:0000:0000:0000:0000:0000:{index + 1:04x}"
    mapped = f"0000:0000:0000:0000:0000:ffff:0a00:{index + 1:04x}"
    return [(link_local, "IB/RoCE v1"), (link_local, "RoCE v2"),
            (mapped, "IB/RoCE v1"), (mapped, "RoCE v2")]


def set_gids(tree, name, gids, netdev=""):
    port = f"/sys/class/infiniband/{name}/ports/1"
    for i in range(8):
        address, kind = gids[i] if i < len(gids) else (":".join(["0000"] * 8), "")
        tree.write(f"{port}/gids/{i}", address)
        if kind:
            tree.write(f"{port}/gid_attrs/types/{i}", kind)
            tree.write(f"{port}/gid_attrs/ndevs/{i}", netdev)
        elif tree.path(f"{port}/gid_attrs/types/{i}").exists():
            tree.remove(f"{port}/gid_attrs/types/{i}")


def rdma_core(tree, mlx5_tag="MLX5_1.25", dev_link=True):
    folder = "/usr/lib/x86_64-linux-gnu"
    tree.library(f"{folder}/libmlx5.so.1", "libmlx5.so.1", tags=["MLX5_1.0", "MLX5_1.9", mlx5_tag])
    tree.library(f"{folder}/libibverbs.so.1", "libibverbs.so.1")
    if dev_link:
        tree.link(f"{folder}/libmlx5.so", "libmlx5.so.1")


def toolkit(tree, version="12.9.1"):
    short = ".".join(version.split(".")[:2])
    folder = f"/usr/local/cuda-{short}"
    tree.write(f"{folder}/version.json", json.dumps({"cuda": {"name": "CUDA SDK", "version": version}}))
    tree.write(f"{folder}/bin/nvcc", "")
    tree.write(f"{folder}/include/cuda.h", "")
    if int(version.split(".")[0]) >= 13:
        tree.folder_at(f"{folder}/include/cccl/cuda/std")
    tree.link("/usr/local/cuda", f"/usr/local/cuda-{short}")


SITE = "/usr/local/lib/python3.12/dist-packages"


def wheel(tree, name, version, *pins):
    lines = [f"Name: {name}", f"Version: {version}"] + [f"Requires-Dist: {pin}" for pin in pins]
    tree.write(f"{SITE}/{name.replace('-', '_')}-{version}.dist-info/METADATA", "\n".join(lines))


def nccl_wheel(tree, version, cuda_major=12):
    wheel(tree, f"nvidia-nccl-cu{cuda_major}", version)
    newest = ["ncclGetVersion", "ncclDevCommCreate", "ncclGetLsaDevicePointer"]
    is_new = tuple(int(x) for x in version.split(".")) >= (2, 30, 4)
    tree.library(f"{SITE}/nvidia/nccl/lib/libnccl.so.2", "libnccl.so.2",
                 text=[f"NCCL version {version}+cuda{cuda_major}.9"],
                 exports=newest if is_new else newest[:1])


def nvshmem(tree, prefix, version, ibgda=True, headers=True):
    tree.library(f"{prefix}/lib/libnvshmem_host.so.3", "libnvshmem_host.so.3",
                 text=[f"NVSHMEM v{version}"])
    if ibgda:
        tree.write(f"{prefix}/lib/nvshmem_transport_ibgda.so.3", "")
    if headers:
        tree.write(f"{prefix}/lib/libnvshmem_device.a", "")
        tree.write(f"{prefix}/include/nvshmem.h", "")


def deep_ep(tree, folder, arch="100", nvshmem_version="3.5.19", fix=True, mapping=True):
    tree.write(f"{folder}/setup.py", "cxx_flags = ['-O3']\n")
    tree.write(f"{folder}/csrc/kernels/ibgda_device.cuh", FIX if fix else "ibgda_get_rc")
    tree.write(f"{folder}/deep_ep/buffer.py", MAPPING_FIX if mapping else "class Buffer: ...")
    tree.write(f"{folder}/.git/HEAD", "29d31c095796f3c8ece47ee9cdcc167051bbeed9")
    extension(tree, f"{folder}/deep_ep_cpp.cpython-312-x86_64-linux-gnu.so", arch, nvshmem_version)


def extension(tree, path, arch="100", nvshmem_version="3.5.19", undefined=("nvshmem_malloc",)):
    tree.library(path, "", archs=[f"sm_{arch}"], device_version=nvshmem_version or None,
                 ibgda=bool(nvshmem_version), undefined=undefined)


def paired_switches(gpu_buses, nic_buses):
    """Four switches below four root ports, each with two GPUs and two NICs; PCI paths of both."""
    gpu_paths, nic_paths = [], []
    for i in range(0, 8, 2):
        root = f"0000:{0x40 + 0x10 * i:02x}:01.0"
        upstream = f"0000:{0x41 + 0x10 * i:02x}:00.0"
        for port, (buses, paths) in enumerate(((gpu_buses, gpu_paths), (nic_buses, nic_paths))):
            for k in (0, 1):
                down = f"0000:{0x42 + 0x10 * i:02x}:{port * 2 + k:02x}.0"
                paths.append([root, upstream, down, f"0000:{buses[i + k]:02x}:00.0"])
    return gpu_paths, nic_paths


# ---- machines ---------------------------------------------------------------------------------

B200_GPU_BUSES = [0x8f, 0x90, 0x96, 0x97, 0xc4, 0xc5, 0xcb, 0xcc]
B200_NIC_BUSES = [0x91, 0x92, 0x98, 0x99, 0xc6, 0xc7, 0xcd, 0xce]  # rocep145s0 is bus 0x91


def b200_hardware(tree, nic_names):
    gpu_paths, nic_paths = paired_switches(B200_GPU_BUSES, B200_NIC_BUSES)
    numas = [0, 0, 0, 0, 1, 1, 1, 1]
    gpus(tree, gpu_paths, "NVIDIA B200", "10.0", numas, 180, switch_links=18)
    for i, name in enumerate(nic_names):
        hca(tree, name, nic_paths[i], i, numas[i], netdev=f"gpu{i}rdma0")


def gcp_b200_before(tree):
    """A4 with the distribution's drivers: nothing installed yet."""
    linux(tree, "a4-0", vendor="Google", product="Google Compute Engine")
    driver(tree)
    module(tree, "mlx5_core")
    tree.write("/usr/bin/nv-fabricmanager", "")
    b200_hardware(tree, [f"rocep{bus}s0" for bus in B200_NIC_BUSES])
    rdma_core(tree, "MLX5_1.24", dev_link=False)
    tree.write("/var/lib/dpkg/status", dpkg("rdma-core=50.0-2", "git=1:2.43.0", "g++=4:13.2.0", "make=4.3"))


def dpkg(*packages):
    paragraphs = []
    for package in packages:
        name, version = package.split("=", 1)
        paragraphs.append(f"Package: {name}\nStatus: install ok installed\nVersion: {version}\n")
    return "\n".join(paragraphs)


MAPPING = ",".join(f"{i}:mlx5_{i}:1" for i in range(8))


def gcp_b200(tree):
    """The same, installed as the guide says and with its environment script sourced."""
    linux(tree, "a4-0", vendor="Google", product="Google Compute Engine",
          CUDA_HOME="/usr/local/cuda", NVSHMEM_DIR="/opt/deepep/nvshmem",
          NVSHMEM_HOME="/opt/deepep/nvshmem", LD_LIBRARY_PATH="/opt/deepep/nvshmem/lib",
          LD_PRELOAD="/opt/deepep/nvshmem/lib/libnvshmem_host.so.3",
          PYTHONPATH="/opt/deepep/DeepEP", NVSHMEM_REMOTE_TRANSPORT="ibgda",
          NVSHMEM_IB_ENABLE_IBGDA="1", NVSHMEM_IBGDA_NIC_HANDLER="gpu", NVSHMEM_HCA_PREFIX="mlx5",
          NVSHMEM_IB_GID_INDEX="3", NVSHMEM_DISABLE_CUDA_VMM="1",
          DEEP_EP_DEVICE_TO_HCA_MAPPING=MAPPING)
    registry = "PeerMappingOverride=0x1"
    driver(tree, registry=registry)
    tree.write("/etc/modprobe.d/nvidia-peermapping.conf", f"options nvidia NVreg_RegistryDwords={registry}\n")
    tree.write("/etc/modules-load.d/nvidia-peermem.conf", "nvidia-peermem\n")
    module(tree, "nvidia_peermem", "570.133.20")
    module(tree, "mlx5_core", "25.07-0.9.7")
    tree.write("/usr/bin/nv-fabricmanager", "")
    b200_hardware(tree, [f"mlx5_{i}" for i in range(8)])
    rdma_core(tree)
    toolkit(tree)
    tree.write("/opt/deepep/gdrcopy/include/gdrapi.h", "")
    tree.library("/opt/deepep/gdrcopy/lib/libgdrapi.so.2.5", "libgdrapi.so.2")
    nvshmem(tree, "/opt/deepep/nvshmem", "3.5.19")
    wheel(tree, "torch", "2.9.1+cu129", "nvidia-nccl-cu12==2.27.5", "nvidia-nvshmem-cu12==3.3.20")
    wheel(tree, "numpy", "2.3.5")
    nccl_wheel(tree, "2.27.5")
    deep_ep(tree, "/opt/deepep/DeepEP")
    tree.write("/var/lib/dpkg/status",
               dpkg("doca-ofed=3.2.1-044000", "rdma-core=2507mlnx58-1", "cmake=3.28.3", "ninja-build=1.11.1",
                    "git=1:2.43.0", "g++=4:13.2.0", "make=4.3", "cuda-toolkit-12-9=12.9.1-1"))


GIB = "/host/home/kubernetes/bin/gib"


def gke_cos_pod(tree):
    """A privileged Pod of the guide on A4: the drivers are the node's, gIB is mounted below /host."""
    linux(tree, "deepep-pod", os_version="24.04", kernel="6.6.72+", vendor="Google",
          product="Google Compute Engine", KUBERNETES_SERVICE_HOST="10.0.0.1",
          CUDA_HOME="/usr/local/cuda", NVSHMEM_DIR="/opt/deepep/nvshmem",
          LD_LIBRARY_PATH=f"/opt/deepep/nvshmem/lib:/usr/local/nvidia/lib64:{GIB}/lib64",
          LD_PRELOAD="/opt/deepep/nvshmem/lib/libnvshmem_host.so.3",
          PYTHONPATH="/opt/deepep/DeepEP", NVSHMEM_REMOTE_TRANSPORT="ibgda",
          NVSHMEM_IB_ENABLE_IBGDA="1", NVSHMEM_IBGDA_NIC_HANDLER="gpu", NVSHMEM_HCA_PREFIX="mlx5",
          NVSHMEM_IB_GID_INDEX="3", NVSHMEM_DISABLE_CUDA_VMM="1",
          DEEP_EP_DEVICE_TO_HCA_MAPPING=MAPPING, NCCL_NET="gIB",
          NCCL_SHIMNET_GUEST_CONFIG_CHECKER_CONFIG_FILE=f"{GIB}/configs/guest_config.txtpb",
          NCCL_TUNER_CONFIG_PATH=f"{GIB}/configs/tuner_config_a4.txtpb", NCCL_CROSS_NIC="0",
          NCCL_NET_GDR_LEVEL="PIX", NCCL_IB_TC="52", NCCL_IB_FIFO_TC="84")
    tree.write("/proc/1/cgroup", "0::/kubepods.slice/kubepods-pod1.slice")
    driver(tree)
    module(tree, "mlx5_core")
    module(tree, "nvidia_peermem", "570.133.20")
    b200_hardware(tree, [f"mlx5_{i}" for i in range(8)])
    rdma_core(tree)
    toolkit(tree)
    tree.write(f"{GIB}/configs/guest_config.txtpb", "")
    tree.write(f"{GIB}/configs/tuner_config_a4.txtpb", "")
    tree.library(f"{GIB}/lib64/libnccl-net.so", "libnccl-net.so", glibc="2.31")
    nvshmem(tree, "/opt/deepep/nvshmem", "3.5.19")
    wheel(tree, "torch", "2.8.0+cu129", "nvidia-nccl-cu12==2.27.5")
    nccl_wheel(tree, "2.27.5")
    deep_ep(tree, "/opt/deepep/DeepEP")


def h200_infiniband(tree):
    """DGX-like: a switch for each pair of GPU and NIC, native InfiniBand, NVSHMEM from the wheel."""
    linux(tree, "dgx-0", kernel="6.8.0-60-generic", vendor="NVIDIA", product="DGXH200",
          CUDA_HOME="/usr/local/cuda", PYTHONPATH="/workspace/DeepEP")
    driver(tree, "580.82.07", cuda="13.0", registry="PeerMappingOverride=1;")
    tree.write("/etc/modprobe.d/nvidia.conf",
               'options nvidia NVreg_EnableStreamMemOPs=1 NVreg_RegistryDwords="PeerMappingOverride=1;"\n')
    tree.write("/proc/driver/nvidia/params",
               'EnableStreamMemOPs: 1\nRegistryDwords: "PeerMappingOverride=1;"\n')
    module(tree, "nvidia_peermem", "580.82.07")
    module(tree, "gdrdrv", "2.5")
    module(tree, "mlx5_core", "24.10")
    tree.write("/dev/gdrdrv", "")
    tree.write("/etc/modules-load.d/nvidia-peermem.conf", "nvidia_peermem\n")
    tree.write("/usr/bin/nv-fabricmanager", "")
    buses = [0x1b, 0x43, 0x52, 0x61, 0x9d, 0xc3, 0xd1, 0xdf]
    numas = [0, 0, 0, 0, 1, 1, 1, 1]
    paths = [[f"0000:{bus - 6:02x}:01.0", f"0000:{bus - 5:02x}:00.0"] for bus in buses]
    gpus(tree, [p + [f"0000:{b - 4:02x}:01.0", f"0000:{b:02x}:00.0"] for p, b in zip(paths, buses)],
         "NVIDIA H200", "9.0", numas, 141, switch_links=18)
    for i, (path, bus) in enumerate(zip(paths, buses)):
        hca(tree, f"mlx5_{i}", path + [f"0000:{bus - 4:02x}:00.0", f"0000:{bus - 3:02x}:00.0"], i,
            numas[i], link_layer="InfiniBand")
    # The storage NIC: slower and Ethernet, it must be left out of the plan.
    hca(tree, "mlx5_8", ["0000:28:01.0", "0000:29:00.0"], 8, 0, rate=100, netdev="eno1", mtu=9000)
    rdma_core(tree)
    toolkit(tree)
    nvshmem(tree, f"{SITE}/nvidia/nvshmem", "3.4.5")
    wheel(tree, "nvidia-nvshmem-cu12", "3.4.5")
    wheel(tree, "torch", "2.9.1+cu129", "nvidia-nccl-cu12==2.27.5", "nvidia-nvshmem-cu12==3.4.5")
    nccl_wheel(tree, "2.27.5")
    deep_ep(tree, "/workspace/DeepEP", arch="90", nvshmem_version="3.4.5", mapping=False)


def roce_node(tree, name="roce-a"):
    """8xH100 with RoCE; two such nodes are compared in a test, one of them changed."""
    linux(tree, name, kernel="6.8.0-60-generic", vendor="Supermicro", product="SYS-821GE")
    driver(tree, "570.133.20", registry="PeerMappingOverride=0x1")
    tree.write("/etc/modprobe.d/nvidia.conf", "options nvidia NVreg_RegistryDwords=PeerMappingOverride=0x1\n")
    module(tree, "nvidia_peermem", "570.133.20")
    module(tree, "mlx5_core", "24.10")
    tree.write("/etc/modules-load.d/rdma.conf", "nvidia-peermem\n")
    tree.write("/usr/bin/nv-fabricmanager", "")
    gpu_paths, nic_paths = paired_switches([0x1a, 0x1b, 0x3a, 0x3b, 0x9a, 0x9b, 0xba, 0xbb],
                                           [0x1c, 0x1d, 0x3c, 0x3d, 0x9c, 0x9d, 0xbc, 0xbd])
    numas = [0, 0, 0, 0, 1, 1, 1, 1]
    gpus(tree, gpu_paths, "NVIDIA H100 80GB HBM3", "9.0", numas, 80, switch_links=18)
    for i in range(8):
        hca(tree, f"mlx5_{i}", nic_paths[i], i, numas[i], netdev=f"rdma{i}", mtu=9000)
    rdma_core(tree)
    toolkit(tree)


def roce_other_node(tree):
    """One node that differs: GIDs in another order, MTU 1500 on one NIC, no peermem, an older NVSHMEM."""
    roce_node(tree, "roce-b")
    tree.remove("/sys/module/nvidia_peermem")
    tree.write("/proc/modules", "nvidia 1 0 - Live 0x0\nmlx5_core 1 0 - Live 0x0\n")
    for i in range(8):
        gids = roce_gids(i)
        set_gids(tree, f"mlx5_{i}", [gids[2], gids[3], gids[0], gids[1]], f"rdma{i}")
    address = "0000:1c:00.0"
    tree.write(f"/sys/bus/pci/devices/{address}/net/rdma0/mtu", "1500")


def efa(tree):
    """8xH200 on EFA (p5en): no mlx5 anywhere."""
    linux(tree, "p5en-0", os_id="amzn", os_version="2023", kernel="6.1.119-129.201.amzn2023",
          vendor="Amazon EC2", product="p5en.48xlarge", FI_PROVIDER="efa")
    driver(tree, "570.133.20")
    module(tree, "efa", "2.17.2g")
    module(tree, "gdrdrv", "2.4")
    tree.write("/dev/gdrdrv", "")
    tree.write("/usr/bin/nv-fabricmanager", "")
    tree.folder_at("/opt/amazon/efa/lib64")
    gpu_paths, nic_paths = paired_switches([0x53, 0x64, 0x75, 0x86, 0x97, 0xa8, 0xb9, 0xca],
                                           [0x4f, 0x5a, 0x71, 0x79, 0x93, 0xa4, 0xb5, 0xc6])
    numas = [0, 0, 0, 0, 1, 1, 1, 1]
    gpus(tree, gpu_paths, "NVIDIA H200", "9.0", numas, 141, switch_links=18)
    for i in range(8):
        bus = int(nic_paths[i][-1][5:7], 16)
        hca(tree, f"rdmap{bus}s0", nic_paths[i], i, numas[i], kernel_driver="efa",
            link_layer="Unspecified", rate=400, device="0xefa3",
            gids=[(f"fe80:0000:0000:0000:0000:0000:00ef:{i + 1:04x}", "IB/RoCE v1")])
    tree.library("/usr/lib/x86_64-linux-gnu/libefa.so.1", "libefa.so.1")
    tree.library("/usr/lib/x86_64-linux-gnu/libibverbs.so.1", "libibverbs.so.1")
    toolkit(tree)


def pcie_only(tree):
    """4xL40S without NVLink, one two-port NIC's worth of RoCE, proprietary modules."""
    linux(tree, "l40s", kernel="5.15.0-130-generic", os_version="22.04", vendor="Dell Inc.",
          product="PowerEdge R760xa")
    driver(tree, "550.144.03", flavour="proprietary", cuda="12.4")
    module(tree, "mlx5_core")
    paths = [[f"0000:{bus:02x}:01.0", f"0000:{bus + 1:02x}:00.0"] for bus in (0x20, 0x30, 0xa0, 0xb0)]
    gpus(tree, paths, "NVIDIA L40S", "8.9", [0, 0, 1, 1], 45)
    hca(tree, "mlx5_0", ["0000:40:01.0", "0000:41:00.0"], 0, 0, rate=200, netdev="ens1f0np0", mtu=1500)
    hca(tree, "mlx5_1", ["0000:c0:01.0", "0000:c1:00.0"], 1, 1, rate=200, netdev="ens2f0np0", mtu=1500)
    rdma_core(tree, "MLX5_1.21")
    toolkit(tree, "12.4.1")


def laptop(tree):
    """No GPU, no RDMA device, an ordinary user."""
    linux(tree, "laptop", os_id="debian", os_version="12", kernel="6.1.0-28-amd64", vendor="LENOVO",
          product="20XW", memlock="8388608", capabilities="0000000000000000", uid=1000, shm="8g",
          memory_kb=16_000_000)
    interface(tree, "docker0", state="down", is_virtual=True)


def azure_vm(tree):
    """8xH100 in a virtual machine where every device has a PCI domain of its own."""
    linux(tree, "ndv5", kernel="6.8.0-1020-azure", vendor="Microsoft Corporation",
          product="Virtual Machine")
    driver(tree, registry="PeerMappingOverride=1")
    tree.write("/etc/modprobe.d/nvidia.conf", "options nvidia NVreg_RegistryDwords=PeerMappingOverride=1\n")
    module(tree, "nvidia_peermem", "570.133.20")
    module(tree, "mlx5_core")
    tree.write("/etc/modules-load.d/rdma.conf", "nvidia-peermem\n")
    tree.write("/usr/bin/nv-fabricmanager", "")
    numas = [0, 0, 0, 0, 1, 1, 1, 1]
    gpus(tree, [[f"{i + 1:04x}:00:00.0"] for i in range(8)], "NVIDIA H100 80GB HBM3", "9.0", numas, 80,
         switch_links=18)
    for i in range(8):
        hca(tree, f"mlx5_ib{i}", [f"{0x101 + i:04x}:00:00.0"], i, numas[i], link_layer="InfiniBand")
    rdma_core(tree)
    toolkit(tree)


MACHINES = {
    "gcp-b200": gcp_b200,
    "gcp-b200-before": gcp_b200_before,
    "gke-cos-pod": gke_cos_pod,
    "h200-infiniband": h200_infiniband,
    "roce-a": roce_node,
    "roce-b": roce_other_node,
    "efa": efa,
    "pcie-only": pcie_only,
    "laptop": laptop,
    "azure-vm": azure_vm,
}


def make(name, folder, cache):
    tree = Tree(folder, cache)
    MACHINES[name](tree)
    return tree


def main():
    folder = pathlib.Path(sys.argv[1])
    for name in MACHINES:
        make(name, folder / name, folder / ".libraries")


if __name__ == "__main__":
    main()
