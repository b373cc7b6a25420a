#pragma once

#include <string>
#include <vector>

#include "ops/facts/fact.hpp"

namespace ferry::ops {

// What a shared library says of itself. Read with libelf; nothing of it is run.
struct ElfFile {
  std::string soname{};
  std::string runpath{};                       // DT_RUNPATH, else DT_RPATH
  std::vector<std::string> needed{};           // DT_NEEDED
  std::vector<std::string> defined_tags{};     // symbol versions it defines: "MLX5_1.17"
  std::vector<std::string> needed_tags{};      // symbol versions it needs: "GLIBC_2.34"
  std::vector<std::string> exported{};         // dynamic symbols it defines
  std::vector<std::string> undefined{};        // dynamic symbols it expects elsewhere
  std::vector<std::string> archs{};            // of CUDA code inside: "sm_90", "compute_90"
  std::string read_only_data{};                // .rodata
  Fact<std::string> nvshmem_device_version{};  // of NVSHMEM's device half, if it was linked in
  bool has_ibgda_state = false;                // nvshmemi_ibgda_device_state_d is in it
};

struct ElfOptions {
  bool with_archs = false;  // reads every byte of the CUDA code, hundreds of MiB in some libraries
};

// `local_path` is a path of this machine. Unknown with the reason on anything that is no ELF file.
[[nodiscard]] Fact<ElfFile> read_elf(const std::string& local_path, const ElfOptions& options = {});

// The highest tag that begins with `prefix`, compared as a version: "MLX5_1.17"; absent if none.
[[nodiscard]] Fact<std::string> highest_tag(const std::vector<std::string>& tags,
                                            const std::string& prefix);

// The version that follows `mark` in a library's text: "NVSHMEM v" gives "3.3.20"; absent if none.
[[nodiscard]] Fact<std::string> version_after(const std::string& text, const std::string& mark);

}  // namespace ferry::ops
