#include "ops/install/version_table.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace ferry::ops {

namespace {

constexpr VersionEntry kTable[] = {
    {"cuda-keyring", SourceKind::kFile, "1.1-1",
     "https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2404/x86_64/"
     "cuda-keyring_1.1-1_all.deb",
     "", ""},
    {"cuda-toolkit", SourceKind::kSigned, "12.9", "cuda-toolkit-12-9", "",
     "signed by cuda-keyring"},
    {"doca-key", SourceKind::kKey, "DOCA 3.2.1",
     "https://linux.mellanox.com/public/repo/doca/3.2.1/ubuntu24.04/x86_64/GPG-KEY-Mellanox.pub",
     "", ""},
    {"doca-ofed", SourceKind::kSigned, "3.2.1",
     "https://linux.mellanox.com/public/repo/doca/3.2.1/ubuntu24.04/x86_64", "",
     "signed by doca-key"},
    {"gdrcopy", SourceKind::kGit, "v2.5.2", "https://github.com/NVIDIA/gdrcopy.git",
     "c91ad9f178e5fb729fc5b6dc62a77c3bb364d6c9", "tag v2.5.2 of the repository"},
    {"nvshmem", SourceKind::kGit, "v3.5.19-1", "https://github.com/NVIDIA/nvshmem.git", "", ""},
    {"nvshmem-archive", SourceKind::kFile, "3.3.9",
     "https://developer.download.nvidia.com/compute/nvshmem/redist/libnvshmem/linux-x86_64/"
     "libnvshmem-linux-x86_64-3.3.9_cuda12-archive.tar.xz",
     "", ""},
    {"nvshmem-wheel", SourceKind::kWheel, "3.3.9", "nvidia-nvshmem-cu12==3.3.9",
     "95ba1e98189c056eb5372bd355ab714b3741a03e6de1e32f167f5240fd967c5f",
     "computed from PyPI's x86_64 wheel"},
    {"nvshmem-deb", SourceKind::kSigned, "3", "libnvshmem3-cuda-12", "", "signed by cuda-keyring"},
    {"nvshmem-conda", SourceKind::kWheel, "3.3.24", "conda-forge::libnvshmem-dev=3.3.24", "", ""},
    {"torch", SourceKind::kWheel, "2.9.1+cu129", "https://download.pytorch.org/whl/cu129", "", ""},
    {"numpy", SourceKind::kWheel, "newest", "https://pypi.org/simple", "", ""},
    {"deepep", SourceKind::kGit, "pull/466/head", "https://github.com/deepseek-ai/DeepEP.git",
     "8a07e7e7ed57cfc63005f670d64d410cb30b061b",
     "refs/pull/466/head of the repository; contains 29d31c0"},
};

}  // namespace

std::span<const VersionEntry> version_table() { return kTable; }

const VersionEntry& version_entry(std::string_view name) {
  const auto* found = std::find_if(std::begin(kTable), std::end(kTable),
                                   [&](const VersionEntry& entry) { return name == entry.name; });
  FERRY_CHECK_INTERNAL(found != std::end(kTable), "the version table has no '{}'", name);
  return *found;
}

bool is_pinned(const VersionEntry& entry) noexcept {
  return entry.kind == SourceKind::kSigned || *entry.pin != '\0';
}

}  // namespace ferry::ops
