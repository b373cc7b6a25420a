#include "ops/diagnose/patterns.hpp"

namespace ferry::ops {

namespace {

constexpr Pattern direct(const char* cause, const char* regex) {
  return {Signal::kDirect, Role::kError, cause, regex};
}
constexpr Pattern error(Signal signal, const char* regex) {
  return {signal, Role::kError, "", regex};
}
constexpr Pattern context(Signal signal, const char* regex) {
  return {signal, Role::kContext, "", regex};
}
constexpr Pattern secondary(const char* regex) {
  return {Signal::kDirect, Role::kSecondary, "", regex};
}

constexpr Pattern kPatterns[] = {
    // Building.
    direct("build.cccl-headers", R"(cuda/std/\w+.*no such file)"),
    direct("build.mixed-toolkits", R"(CUDART_ZERO_BF16.{0,20}undefined)"),
    direct("build.nvshmem-rdc", R"(multiple definition of .nvshmemi_ibgda_device_state_d)"),
    direct("build.nvshmem-without-ibgda",
           R"(undefined reference to .nvshmemi_ibgda_device_state_d)"),
    direct("build.nvshmem-headers", R"(\bnvshmemx?\.h: no such file)"),
    direct("build.mlx5-link", R"(cannot find -lmlx5\b|could not find.*\bmlx5_lib\b)"),
    direct("build.cuda-stub", R"(ld: cannot find -lcuda\b)"),
    direct("build.cxx-standard", R"(#error.*C\+\+20 or later)"),
    direct("build.gdrcopy-include", R"(GDRCOPY_INCLUDE.{0,60}not ?found|gdrapi\.h: no such file)"),
    direct(
        "build.permission",
        R"(permission denied.*\bbuild(?:/|\b.*deep_?ep)|deep_?ep\S*/build\S*.{0,20}permission denied)"),
    direct("build.nvcc-missing", R"(/bin/nvcc: not found|/bin/nvcc: no such file)"),
    direct("cuda.wrong-architecture", R"(named symbol not found|no kernel image is available)"),
    // Versions.
    direct("versions.nvshmem-mismatch", R"(device library version does not match)"),
    direct(
        "versions.nccl-too-old",
        R"(undefined symbol: *nccl(?:GetLsaDevicePointer|\w*Lsa\w*|Dev\w+|Gin\w*|\w*Window\w*))"),
    direct("versions.nccl-headers", R"(must be initialized via.*_INITIALIZER)"),
    direct("versions.driver-too-old",
           R"(cudaErrorInsufficientDriver|driver version is insufficient for CUDA runtime)"),
    direct("versions.libstdcxx", R"(undefined symbol: *_ZN\w*exception_ptr\w*_M_addref)"),
    // Driver, NICs, transports.
    error(Signal::kPeermemMissing, R"(neither nv_peer_mem.*nvidia_peermem)"),
    error(Signal::kTransportFailed, R"(init failed for transport: *(\w+))"),
    error(Signal::kGpuBuffers, R"(cannot allocate buffer on the specified memory type)"),
    error(Signal::kDevxUar, R"(cannot allocate mlx5dv_devx_uar)"),
    direct("driver.fabric-state", R"(fabric_state_out_of_sync|cuMemMap.*\b(?:274877906944|401)\b)"),
    error(Signal::kGinNone, R"(ginType.*NCCL_GIN_TYPE_NONE)"),
    context(Signal::kVerbsTag, R"(dlvsym failed.*(MLX5_1\.\d+))"),
    error(Signal::kAddressHandle, R"(unable to create ah\b)"),
    error(Signal::kTrafficClassSyndrome, R"(syndrome 764216)"),
    error(
        Signal::kModifyQp,
        R"(ibv_modify_qp (?:failed|to \w+ failed|\w* ?timed out).*?(?:(?:status|errno|error|rc)[ :=]*|\()?\b(110|101|22)\b|ibv_modify_qp failed|ibv_modify_qp.*timed out)"),
    error(Signal::kNoMlx5dv, R"(unable to dlopen libmlx5dv)"),
    error(Signal::kNoGid, R"(no suitable gid found)"),
    direct("nic.proxy-qp-depth", R"(does not support specifying qp depth)"),
    direct("nic.grh", R"(DOCA failure 21\b|DOCA_ERROR_DRIVER)"),
    direct("boot.no-interface", R"(no socket interface found)"),
    context(Signal::kRocepName, R"(\b(rocep\d+s\d+\w*))"),
    context(Signal::kMlx5Name, R"(\b(mlx5_\d+)\b)"),
    context(Signal::kRdmaBandwidth, R"(\bbest (?:dispatch|combine)\b.*?([\d.]+) GB/s \(RDMA\))"),
    // Waits.
    error(Signal::kDispatchTimeout, R"(timeout \(dispatch CPU\)|CPU recv timeout)"),
    error(
        Signal::kKernelTimeout,
        R"(DeepEP timeout for (?:barrier|dispatch|combine)|DeepEP (?:dispatch|combine|RDMA)\b.* timeout\b)"),
    error(Signal::kMetaTimeout,
          R"(timeout \(RDMA meta\)|\(RDMA meta\).{0,20}timeout|RDMA meta timeout)"),
    error(Signal::kCounterMissing, R"(\bnum_recv_tokens: *(-1)\b)"),
    context(Signal::kCounterPresent, R"(\bnum_recv_tokens: *(\d+)\b)"),
    // Limits.
    direct("limits.token-cap", R"(x\.size\(0\) <= num_max_dispatch_tokens_per_rank)"),
    direct("limits.hidden", R"(unsupported hidden)"),
    direct("limits.rdma-ranks", R"(unsupported rdma ranks)"),
    direct("limits.nvl-peers", R"(NUM_MAX_NVL_PEERS or low_latency_mode)"),
    direct("limits.nvl-chunk", R"(nvl_chunked_recv_tokens / num_rdma_ranks)"),
    direct("limits.qps", R"(\bnum_rc_per_pe (?:>=|==|<|>)|assert.*\bnum_rc_per_pe\b)"),
    direct("limits.topk", R"(num_topk <= kNumMaxTopK)"),
    direct("limits.contiguous", R"(x\.is_contiguous\(\))"),
    error(Signal::kCooperativeLaunch, R"(too many blocks in cooperative launch)"),
    // Memory, processes, containers.
    error(Signal::kResourceHandle, R"(invalid resource handle)"),
    error(Signal::kCuMemCreate, R"(cuMemCreate.*(operation not permitted|failed|out of memory))"),
    error(Signal::kLimitedMpg, R"(limited MPG\b)"),
    direct("container.memlock", R"(ibv_(?:reg_mr|create_cq).*cannot allocate memory)"),
    direct("container.shm", R"(creating shared memory segment .*/dev/shm|/dev/shm.*no space left)"),
    direct("container.pidfd", R"(pidfd_getfd: operation not permitted)"),
    error(Signal::kGibMissing, R"(network gIB not found)"),
    error(Signal::kDeallocPd, R"(\bibv_dealloc_pd\b)"),
    error(Signal::kFerryError, R"(^(?:.*\s)?ferry(?:\[\d+/\d+\])? error [\w.]+: (.*))"),
    // What decides between causes.
    context(Signal::kPeermemLoaded,
            R"(^nvidia_peermem +\d+|\bnvidia_peermem\b.*\b(?:loaded|live)\b|^nv_peer_mem +\d+)"),
    context(Signal::kTwoPorts, R"(\bmlx5_\d+:2\b|\bmlx5_\d+\+mlx5_\d+|NCCL_CROSS_NIC[ =:]+0\b)"),
    context(Signal::kZeroQpn, R"(\b(?:remote|dest)[ _]?(?:qpn|qp_num|gid)\b[ =:]*(?:0x)?0+\b)"),
    context(
        Signal::kBufferConstruction,
        R"(deep_ep\.cpp:|deep_ep/buffer|Buffer\.__init__|\bBuffer\(|runtime\.sync|cudaIpcOpenMemHandle)"),
    context(Signal::kGlibcTooOld, R"(version .?(GLIBC_2\.\d+).? not found)"),
    context(Signal::kBarrierFile, R"(\bbarrier[\w/.]*\.(?:cu|cpp|cuh))"),
    context(Signal::kLinkLayer, R"(link_layer:?[ =]*(InfiniBand|Ethernet))"),
    context(Signal::kHandlerCpu,
            R"(NIC handler will be (?:the )?(CPU)|NVSHMEM_IBGDA_NIC_HANDLER[ =:]+"?(?:cpu))"),
    context(Signal::kHandlerGpu,
            R"(NIC handler will be (?:the )?(GPU)|NVSHMEM_IBGDA_NIC_HANDLER[ =:]+"?(?:gpu))"),
    context(Signal::kJit,
            R"(DeepGEMM warmup|\bJIT[ -]?compil|compiling .*kernels?\b|nvcc .*--cubin)"),
    context(Signal::kNvshmemVersion,
            R"(nvshmem(?:[-_]cu\d+)?(?: version:?|[-_= ]+)\s*v?(\d+\.\d+(?:\.\d+)?))"),
    context(Signal::kWheelNvshmem, R"(NVSHMEM path:.*(site-packages\S*))"),
    context(
        Signal::kEnvSetting,
        R"(\b((?:NVSHMEM|NCCL|DEEP_EP)_\w+|CUDA_VISIBLE_DEVICES|PYTORCH_CUDA_ALLOC_CONF)=["']?[^\s"']*)"),
    context(Signal::kWorldSize,
            R"(\b(?:world[_ ]size|ep[_ ]size|num_ranks)["']?[ =:]+(\d{1,6})\b)"),
    context(Signal::kNumHosts, R"(\b(?:nnodes|num_nodes)["']?[ =:]+(\d{1,5})\b)"),
    context(Signal::kPcieGpu,
            R"(\b(?:NVIDIA )?(L20|L4|L40S?|GeForce RTX \d+\w*|RTX [3-6]0\d0\w*|RTX PRO \d+))"),
    // What follows from something else.
    secondary(R"(nvshmem api called before)"),
    secondary(R"(illegal memory access)"),
    secondary(R"(unspecified launch failure|cudaErrorLaunchFailure)"),
    secondary(R"(message truncated)"),
    secondary(R"(broken pipe|connection reset by peer|connection closed by (?:remote|peer))"),
    secondary(R"(segmentation fault|signal 11\b|SIGSEGV)"),
    secondary(R"(watchdog caught collective operation timeout|NCCL watchdog thread terminated)"),
    secondary(R"(ChildFailedError|sending process \d+ closing signal|SIGTERM)"),
};

}  // namespace

std::span<const Pattern> log_patterns() { return kPatterns; }

}  // namespace ferry::ops
