"""One case for each thing that `ferry doctor` can find: a machine, what is changed on it, the verdict.

Each check also has a machine or a case on which it is fine (doctor_test.py sees to that).
"""

import os

import machines
from machines import SITE, edit_gpus, extension, module, nccl_wheel, nvshmem, set_acs, set_gids, wheel

HCA = "/sys/class/infiniband"
EXTENSION = "/opt/deepep/DeepEP/deep_ep_cpp.cpython-312-x86_64-linux-gnu.so"


class Case:
    def __init__(self, check, verdict, machine, change, *flags, says=""):
        self.check, self.verdict, self.machine = check, verdict, machine
        self.change, self.flags, self.says = change, flags, says


def env(**variables):
    return lambda tree: tree.set_environment(**variables)


def write(path, text):
    return lambda tree: tree.write(path, text)


def remove(*paths):
    return lambda tree: [tree.remove(path) for path in paths]


def nothing(tree):
    pass


def both(*changes):
    return lambda tree: [change(tree) for change in changes]


def without_module(name):
    def change(tree):
        lines = [line for line in tree.read("/proc/modules").splitlines() if line.split()[:1] != [name]]
        tree.write("/proc/modules", "\n".join(lines))
        tree.remove(f"/sys/module/{name}")
    return change


def old_nvshmem(version):
    """NVSHMEM of that version everywhere, the extension included."""
    return lambda tree: [nvshmem(tree, "/opt/deepep/nvshmem", version),
                         extension(tree, EXTENSION, "100", version)]


def no_registry(tree):
    tree.replace("/proc/driver/nvidia/params", "PeerMappingOverride=0x1", "")
    tree.remove("/etc/modprobe.d/nvidia-peermapping.conf")


def registry_zero(tree):
    tree.replace("/proc/driver/nvidia/params", "PeerMappingOverride=0x1", "PeerMappingOverride=0x0")


def rename_prefix(tree):
    for i in range(8):
        tree.rename(f"{HCA}/mlx5_{i}", f"{HCA}/rocep{i}")


def device_of(tree, index):
    """The folder below /sys/devices that the RDMA device's link leads to."""
    address = os.path.basename(os.readlink(tree.path(f"{HCA}/mlx5_{index}/device")))
    return "/sys/devices" + os.readlink(tree.path(f"/sys/bus/pci/devices/{address}")).split("/sys/devices")[1]


def port(tree, hca, **files):
    tree.write_all(f"{HCA}/{hca}/ports/1", **files)


def process(uid=1000, capabilities="0000000000000000", memlock="8388608", seccomp=0):
    def change(tree):
        tree.write("/proc/self/status", f"Uid:\t{uid}\nCapEff:\t{capabilities}\nSeccomp:\t{seccomp}\n")
        tree.write("/proc/self/limits", f"Max locked memory {memlock} {memlock} bytes\n")
    return change


def shm(size):
    return write("/proc/self/mounts", f"tmpfs /dev/shm tmpfs rw,size={size} 0 0")


def only_ipv6(tree):
    header = tree.read("/proc/net/route").splitlines()[0]
    tree.write("/proc/net/route", header)
    tree.write("/proc/net/if_inet6", "20010db8000000000000000000000001 02 40 00 80     eth0\n")


def v2_extension(tree):
    """FC03: an extension that was built with a newer NCCL than the one torch pins."""
    wheel(tree, "torch", "2.11.0", "nvidia-nccl-cu13==2.28.9")
    wheel(tree, "vllm", "0.26.0", "torch==2.11.0")
    nccl_wheel(tree, "2.28.9", cuda_major=13)
    extension(tree, EXTENSION, "100", "3.5.19", undefined=("ncclGetLsaDevicePointer", "nvshmem_malloc"))


def new_nccl_old_verbs(tree):
    """FC01: GIN in NCCL, verbs of OFED 24.10."""
    nccl_wheel(tree, "2.30.4")
    tree.library("/usr/lib/x86_64-linux-gnu/libmlx5.so.1", "libmlx5.so.1", tags=["MLX5_1.0", "MLX5_1.17"])


def cuda13(tree):
    tree.remove("/usr/local/cuda")
    machines.toolkit(tree, "13.0.1")


def plugin_of_newer_glibc(tree):
    tree.library(f"{machines.GIB}/lib64/libnccl-net.so", "libnccl-net.so", glibc="2.40")


def efa_complete(tree):
    tree.write("/sys/module/efa/version", "3.3.0")
    tree.replace("/proc/driver/nvidia/params", '""\nRegistryDwordsPerDevice', '"PeerMappingOverride=1"\nRegistryDwordsPerDevice')
    tree.library("/usr/lib/x86_64-linux-gnu/libefa.so.1", "libefa.so.1", exports=["efadv_create_comp_cntr"])
    tree.set_environment(NCCL_GIN_TYPE="5")


MULTI = "--multi-node"

CASES = [
    # ---- driver and kernel
    Case("driver.loaded", "fail", "gcp-b200", remove("/proc/driver", "/ferry"), says="no driver loaded"),
    Case("driver.options", "fail", "gcp-b200", registry_zero, says="nvidia-peermapping.conf sets it"),
    Case("driver.options", "warn", "gcp-b200", no_registry, says="no file sets it"),
    Case("driver.options", "fail", "gcp-b200", both(no_registry, old_nvshmem("3.3.20")), says="gdrdrv"),
    Case("driver.options", "warn", "gcp-b200", both(no_registry, old_nvshmem("3.3.20"),
                                                    lambda t: module(t, "gdrdrv", "2.5"))),
    Case("driver.options", "warn", "gcp-b200", remove("/etc/modprobe.d/nvidia-peermapping.conf"),
         says="no file of /etc/modprobe.d"),
    Case("driver.flavour", "fail", "pcie-only", nothing, says="proprietary"),
    Case("driver.flavour", "ok", "pcie-only", lambda t: module(t, "nvidia_peermem", "550.144.03")),
    Case("peermem.loaded", "warn", "gcp-b200", without_module("nvidia_peermem"), says="dmabuf"),
    Case("peermem.loaded", "fail", "pcie-only", nothing, says="no dmabuf either"),
    # FC05: only the new path, with an old and with a newer NVSHMEM.
    Case("peermem.path", "warn", "gcp-b200", old_nvshmem("3.2.5"), says="memory_peers"),
    Case("peermem.loaded", "ok", "gcp-b200", old_nvshmem("3.2.5")),
    Case("peermem.path", "ok", "gcp-b200", old_nvshmem("3.4.5")),
    Case("peermem.path", "ok", "gcp-b200",
         both(old_nvshmem("3.2.5"), write("/sys/kernel/mm/memory_peers/nv_mem/version", "1.0"))),
    Case("peermem.at-boot", "warn", "gcp-b200", remove("/etc/modules-load.d")),
    Case("gpudirect.route", "fail", "pcie-only", nothing, says="kernel 5.15"),
    Case("gpudirect.route", "fail", "gcp-b200",
         both(without_module("nvidia_peermem"), write("/proc/sys/kernel/osrelease", "4.18.0-553.el8"))),
    Case("gpudirect.route", "ok", "gcp-b200", without_module("nvidia_peermem"), says="dmabuf"),
    Case("gdrdrv.loaded", "fail", "efa", both(without_module("gdrdrv"), remove("/dev/gdrdrv"))),
    Case("gdrdrv.loaded", "ok", "efa", nothing),
    Case("gdrdrv.loaded", "fail", "gcp-b200", both(no_registry, old_nvshmem("3.3.20"))),
    Case("nvlink.fabric", "fail", "gcp-b200",
         lambda t: edit_gpus(t, lambda gpu: gpu.update(fabric_state="in-progress")), says="GPU0 in-progress"),
    Case("nvlink.fabric", "unknown", "gcp-b200", remove("/ferry/gpus.json")),
    Case("iommu.translation", "warn", "gcp-b200", write("/sys/kernel/iommu_groups/0/type", "DMA-FQ"), says="DMA-FQ"),
    Case("iommu.translation", "ok", "gcp-b200", write("/sys/kernel/iommu_groups/0/type", "identity")),
    Case("pcie.acs", "warn", "gcp-b200", lambda t: set_acs(t, "0000:42:00.0", 0x1D), says="0000:42:00.0"),
    Case("pcie.acs", "ok", "gcp-b200", lambda t: set_acs(t, "0000:42:00.0", 0x11)),
    Case("pcie.acs", "unknown", "gcp-b200",
         lambda t: t.write("/sys/bus/pci/devices/0000:42:00.0/config", bytes(256)), says="root only"),

    # ---- devices and ports
    Case("hca.present", "fail", "laptop", nothing, MULTI),
    Case("hca.driver", "fail", "roce-a",
         lambda t: [t.link(f"{device_of(t, i)}/driver", "/sys/bus/pci/drivers/erdma") for i in range(8)]
         + [t.folder_at("/sys/bus/pci/drivers/erdma")], says="erdma"),
    Case("hca.driver", "warn", "efa", nothing, says="efa"),
    Case("hca.names", "fail", "gcp-b200-before", nothing, says="rocep145s0"),
    Case("hca.names", "ok", "gcp-b200-before", env(NVSHMEM_HCA_PREFIX="rocep")),
    Case("hca.names", "fail", "gcp-b200",
         both(rename_prefix, old_nvshmem("3.3.20"), env(NVSHMEM_HCA_PREFIX="rocep")), says="not read by NVSHMEM 3.3.20"),
    Case("hca.names", "fail", "gcp-b200", rename_prefix, says="doca-ofed is installed"),
    Case("port.health", "fail", "gcp-b200", lambda t: port(t, "mlx5_3", state="1: DOWN", phys_state="3: Disabled"),
         says="the environment selects it"),
    Case("port.health", "warn", "roce-a", lambda t: port(t, "mlx5_3", state="1: DOWN", phys_state="3: Disabled")),
    Case("port.mixed", "warn", "h200-infiniband", nothing, says="100 Gb/s Ethernet"),
    Case("port.mixed", "fail", "h200-infiniband", nothing, MULTI),
    Case("port.mixed", "ok", "h200-infiniband", env(NVSHMEM_HCA_LIST="mlx5_0:1"), MULTI),
    Case("roce.gid", "fail", "gcp-b200", env(NVSHMEM_IB_GID_INDEX="1"), says="link-local"),
    Case("roce.gid", "fail", "gcp-b200", env(NVSHMEM_IB_GID_INDEX="2"), says="IB/RoCE v1"),
    Case("roce.gid", "fail", "gcp-b200", env(NCCL_IB_GID_INDEX="7"), says="empty"),
    Case("roce.gid", "fail", "roce-a", lambda t: set_gids(t, "mlx5_2", machines.roce_gids(2)[:2]),
         says="no routable RoCE v2 address on mlx5_2"),
    Case("roce.gid", "warn", "roce-a", lambda t: set_gids(t, "mlx5_2", machines.roce_gids(2)[2:]), says="1, 3"),
    Case("roce.mtu", "warn", "pcie-only", nothing, says="1500"),
    Case("roce.mtu", "fail", "pcie-only", env(NCCL_GIN_TYPE="3"), says="GDAKI"),
    Case("ib.traffic-class", "fail", "h200-infiniband", env(NVSHMEM_IB_TRAFFIC_CLASS="128"), says="128"),
    Case("ib.traffic-class", "ok", "roce-a", env(NVSHMEM_IB_TRAFFIC_CLASS="128")),
    Case("ib.traffic-class", "warn", "roce-a", write(f"{HCA}/mlx5_0/tc/1/traffic_class", "Global tclass=106")),
    Case("hca.virtual", "warn", "roce-a", lambda t: t.link(f"{device_of(t, 1)}/physfn", "/sys/bus/pci/devices")),
    Case("hca.fused", "warn", "roce-a",
         lambda t: t.rename(f"{HCA}/mlx5_0", f"{HCA}/mlx5_bond_0"), says="mlx5_bond_0"),
    Case("hca.fused", "ok", "roce-a", both(
        lambda t: t.rename(f"{HCA}/mlx5_0", f"{HCA}/mlx5_bond_0"), env(NCCL_IB_MERGE_NICS="0"))),

    # ---- mapping and variables
    Case("nic.assignment", "warn", "roce-a", nothing, says="4 of 8 NICs"),
    Case("nic.assignment", "fail", "roce-a", nothing, MULTI),
    Case("nic.assignment", "ok", "h200-infiniband", nothing, MULTI),
    Case("nic.assignment", "fail", "gcp-b200",
         env(DEEP_EP_DEVICE_TO_HCA_MAPPING=",".join(f"{i}:mlx5_0:1" for i in range(8))), says="1 of 8 NICs"),
    Case("nic.assignment", "fail", "gcp-b200", env(DEEP_EP_DEVICE_TO_HCA_MAPPING="0:mlx5_9:1"), says="not here"),
    Case("nic.assignment", "fail", "gcp-b200", env(DEEP_EP_DEVICE_TO_HCA_MAPPING="0:mlx5_0,"), says="entry ''"),
    Case("nic.mapping-support", "fail", "gcp-b200",
         write("/opt/deepep/DeepEP/deep_ep/buffer.py", "class Buffer: ...")),
    Case("env.pe-mapping", "fail", "roce-a", env(NVSHMEM_ENABLE_NIC_PE_MAPPING="1")),
    Case("env.pe-mapping", "ok", "gcp-b200", env(NVSHMEM_ENABLE_NIC_PE_MAPPING="1")),
    Case("env.hca-list", "fail", "gcp-b200", env(NVSHMEM_HCA_LIST="=mlx5_0:1"), says="only NCCL reads"),
    Case("env.hca-list", "fail", "gcp-b200", env(NVSHMEM_HCA_LIST="mlx5_12:1"), says="mlx5_12"),
    Case("env.hca-list", "fail", "gcp-b200", env(NCCL_IB_HCA="=mlx5"), says="NCCL_IB_HCA"),
    Case("env.hca-list", "warn", "gcp-b200", env(NVSHMEM_HCA_LIST="^mlx5_7")),
    Case("env.hca-list", "ok", "gcp-b200", env(NVSHMEM_HCA_LIST="mlx5_0:1", NCCL_IB_HCA="mlx5")),
    Case("env.quotes", "fail", "gcp-b200", env(NCCL_SOCKET_IFNAME='"eth0'), says='"eth0'),
    Case("env.dct", "fail", "gcp-b200", env(NVSHMEM_IBGDA_NUM_DCT="8")),
    Case("env.qp-depth", "warn", "gcp-b200", env(NVSHMEM_QP_DEPTH="512"), says="255 tokens"),
    Case("env.qp-depth", "fail", "gcp-b200", env(NVSHMEM_QP_DEPTH="lots")),
    Case("env.nic-handler", "warn", "gcp-b200", env(NVSHMEM_IBGDA_NIC_HANDLER="cpu")),
    Case("env.nic-handler", "fail", "gcp-b200", env(NVSHMEM_IBGDA_NIC_HANDLER="nic")),
    Case("env.ferry", "fail", "laptop", env(FERRY_TIMEOUT_MS="30s"), says="FERRY_TIMEOUT_MS"),
    Case("env.ferry", "warn", "laptop", env(FERRY_TIMEOUT="30"), says="FERRY_TIMEOUT"),

    # ---- versions
    Case("nvshmem.versions", "fail", "gcp-b200", lambda t: extension(t, EXTENSION, "100", "3.4.5"),
         says="the device half in /opt/deepep/DeepEP"),
    Case("nvshmem.versions", "fail", "gcp-b200", both(
        env(LD_PRELOAD=None), lambda t: nvshmem(t, f"{SITE}/nvidia/nvshmem", "3.3.20")), says="none is preloaded"),
    Case("nvshmem.versions", "ok", "gcp-b200", lambda t: nvshmem(t, f"{SITE}/nvidia/nvshmem", "3.3.20")),
    Case("nvshmem.preload", "fail", "gcp-b200", env(LD_PRELOAD="/opt/gone/libnvshmem_host.so.3"), says="/opt/gone"),
    Case("nvshmem.least", "fail", "gcp-b200", old_nvshmem("3.2.5")),
    Case("nvshmem.qp-layout", "fail", "gcp-b200",
         write("/opt/deepep/DeepEP/csrc/kernels/ibgda_device.cuh", "ibgda_get_rc"), says="without commit 29d31c0"),
    Case("nvshmem.ibgda", "fail", "gcp-b200", remove("/opt/deepep/nvshmem/lib/nvshmem_transport_ibgda.so.3"), MULTI),
    Case("nvshmem.address-handle", "warn", "gcp-b200", old_nvshmem("3.4.5")),
    Case("nccl.symbols", "fail", "gcp-b200", v2_extension, says="torch 2.11.0 pins nvidia-nccl-cu13==2.28.9"),
    Case("nccl.symbols", "ok", "gcp-b200", both(v2_extension, lambda t: nccl_wheel(t, "2.30.4", 13))),
    Case("nccl.copies", "warn", "gcp-b200",
         lambda t: t.library("/usr/lib/x86_64-linux-gnu/libnccl.so.2", "libnccl.so.2", text=["NCCL version 2.26.2"])),
    Case("verbs.mlx5", "warn", "gcp-b200", new_nccl_old_verbs, says="MLX5_1.17"),
    Case("verbs.mlx5", "fail", "gcp-b200", new_nccl_old_verbs, MULTI),
    Case("verbs.mlx5", "ok", "gcp-b200", lambda t: nccl_wheel(t, "2.30.4")),
    Case("cuda.driver", "fail", "gcp-b200", write("/ferry/cuda_version", "11.8")),
    Case("cuda.toolkit", "fail", "gcp-b200", cuda13, says="built for CUDA 12.9"),
    Case("cuda.toolkit", "warn", "gcp-b200", both(
        write("/usr/bin/nvcc", ""), env(CUDA_HOME=None, PATH="/usr/bin:/usr/local/cuda/bin"))),
    Case("cuda.wheels", "warn", "gcp-b200", both(lambda t: wheel(t, "nixl-cu12", "1.0"),
                                                 lambda t: wheel(t, "nixl-cu13", "1.0")), says="nixl"),
    Case("cuda.compat", "fail", "pcie-only", both(
        env(LD_LIBRARY_PATH="/usr/local/cuda/compat"),
        lambda t: edit_gpus(t, lambda gpu: gpu.update(name="NVIDIA GeForce RTX 4090")))),
    Case("cuda.compat", "ok", "pcie-only", env(LD_LIBRARY_PATH="/usr/local/cuda/compat")),

    # ---- builds
    Case("build.nvshmem", "fail", "gcp-b200", remove("/opt/deepep/nvshmem/include/nvshmem.h"), says="lacks"),
    Case("build.nvshmem", "fail", "gcp-b200", env(NVSHMEM_DIR="/opt/empty"), says="holds no libnvshmem_host"),
    Case("build.mlx5-link", "warn", "gcp-b200", remove("/usr/lib/x86_64-linux-gnu/libmlx5.so")),
    Case("build.cccl", "warn", "gcp-b200", cuda13),
    Case("build.cccl", "ok", "gcp-b200", both(cuda13, env(CPATH="/usr/local/cuda-13.0/include/cccl"))),
    Case("build.compiler", "warn", "gcp-b200", remove("/usr/bin/g++"), says="g++"),
    Case("build.compiler", "warn", "gcp-b200", env(CUDA_HOME=None), says="CUDA_HOME is unset"),
    Case("build.cxx-standard", "fail", "gcp-b200", both(
        write("/opt/deepep/DeepEP/setup.py", "cxx_flags = ['-O3', '-std=c++17']"),
        lambda t: t.rename(f"{SITE}/torch-2.9.1+cu129.dist-info", f"{SITE}/torch-2.14.0+cu129.dist-info"))),
    Case("build.gdrcopy", "warn", "gcp-b200-before", nothing),
    Case("build.gdrcopy", "ok", "gcp-b200-before", write("/opt/deepep/gdrcopy/include/gdrapi.h", "")),
    Case("build.owner", "fail", "gcp-b200", both(write("/opt/deepep/DeepEP/build/x", ""), process(uid=424242))),
    Case("extension.nvshmem", "warn", "gcp-b200", lambda t: extension(t, EXTENSION, "100", "", undefined=())),
    Case("extension.nvshmem", "fail", "gcp-b200", lambda t: extension(t, EXTENSION, "100", "", undefined=()), MULTI),
    Case("extension.arch", "fail", "gcp-b200", lambda t: extension(t, EXTENSION, "90"), says="sm_90, GPU 0 is sm_100"),
    Case("extension.symbols", "fail", "gcp-b200", lambda t: extension(
        t, EXTENSION, undefined=("nvshmem_malloc", "__cudaRegisterLinkedBinary_f2cf", ))),

    # ---- process, container, network
    Case("limits.memlock", "fail", "gcp-b200", process(), says="CAP_IPC_LOCK is not in effect"),
    Case("limits.memlock", "fail", "gke-cos-pod", process(), says="uid 1000"),
    Case("limits.memlock", "ok", "gcp-b200", process(capabilities="0000000000004000")),
    Case("dev.infiniband", "fail", "gcp-b200", remove("/dev/infiniband/uverbs3"), says="uverbs3 of mlx5_3"),
    Case("dev.infiniband", "warn", "gcp-b200", remove("/dev/infiniband/rdma_cm")),
    Case("shm.size", "fail", "gcp-b200", shm("64m"), says="8 ranks"),
    Case("shm.size", "warn", "gcp-b200", shm("600m")),
    Case("allocator.expandable", "warn", "gke-cos-pod", both(
        process(uid=0, memlock="unlimited", seccomp=2), env(PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True"))),
    Case("allocator.expandable", "ok", "gcp-b200", env(PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")),
    Case("net.interface", "fail", "gcp-b200", env(NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME="bond0"), says="no such interface"),
    Case("net.interface", "fail", "laptop", env(NCCL_SOCKET_IFNAME="docker0"), says="container bridge"),
    Case("net.interface", "ok", "gcp-b200", env(NCCL_SOCKET_IFNAME="eth")),
    Case("net.family", "fail", "gcp-b200", only_ipv6, says="only IPv6"),
    Case("net.family", "ok", "gcp-b200", both(only_ipv6, env(NVSHMEM_BOOTSTRAP_UID_SOCK_FAMILY="AF_INET6"))),
    Case("gke.gib", "fail", "gke-cos-pod", env(LD_LIBRARY_PATH="/opt/deepep/nvshmem/lib"), says="lib64 is not on"),
    Case("gke.gib", "fail", "gke-cos-pod", env(NCCL_TUNER_CONFIG_PATH=None), says="NCCL_TUNER_CONFIG_PATH unset"),
    Case("gke.gib", "fail", "laptop", env(NCCL_NET="gIB"), says="no gIB folder"),
    Case("gke.glibc", "fail", "gke-cos-pod", plugin_of_newer_glibc, says="GLIBC_2.40"),
    Case("efa.stack", "warn", "efa", nothing, says="needs 3.3.0"),
    Case("efa.stack", "ok", "efa", efa_complete),

    # ---- GPUs and FerryEP
    Case("nvlink.mesh", "fail", "pcie-only", nothing, says="0-1"),
    Case("nvlink.mesh", "unknown", "gcp-b200", remove("/ferry/gpus.json")),
    Case("nvlink.domain", "fail", "gcp-b200",
         lambda t: edit_gpus(t, lambda gpu: gpu.update(fabric_cluster="ab" * 16)), says="imex"),
    Case("nvlink.domain", "ok", "gcp-b200", both(
        lambda t: edit_gpus(t, lambda gpu: gpu.update(fabric_cluster="ab" * 16)),
        write("/dev/nvidia-caps-imex-channels/channel0", ""))),
    Case("gpu.class", "fail", "pcie-only",
         lambda t: edit_gpus(t, lambda gpu: gpu.update(name="NVIDIA GeForce RTX 4090")), MULTI),
    Case("gpu.sharing", "fail", "gcp-b200", env(LOCAL_WORLD_SIZE="16"), says="16 local ranks on 8 GPUs"),
    Case("gpu.sharing", "fail", "gcp-b200", lambda t: edit_gpus(t, lambda gpu: gpu.update(is_mig=True))),
    Case("ferry.engine", "fail", "pcie-only", nothing, says="12.4"),
    Case("ferry.memory", "warn", "laptop", write("/proc/meminfo", "MemTotal: 900000 kB\nMemAvailable: 500000 kB\n")),
]
