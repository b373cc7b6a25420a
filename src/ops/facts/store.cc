#include "ops/facts/store.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "base/env.hpp"
#include "base/error.hpp"

namespace ferry::ops {

namespace {

bool is_first_on_host(const std::string& path) {
  const Lookup lookup = process_environment();
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID", "LOCAL_RANK"}) {
    const auto value = lookup(name);
    // A file that is named itself is written by whoever was told to.
    if (value && std::filesystem::is_directory(path)) return *value == "0";
  }
  return true;
}

}  // namespace

std::string store_facts(const std::string& text, const Facts& facts, const std::string& path) {
  if (!is_first_on_host(path)) return "";
  std::string file = path;
  if (std::filesystem::is_directory(path)) file += "/" + facts.host.name + ".json";
  const std::string unfinished = fmt::format("{}.{}.tmp", file, ::getpid());
  {
    std::ofstream out(unfinished, std::ios::binary);
    out << text;
    out.flush();
    FERRY_CHECK(out.good(), ErrorCode::kSystem, "cannot write the facts to '{}': {}", unfinished,
                errno_text(errno));
  }
  const bool is_renamed = std::rename(unfinished.c_str(), file.c_str()) == 0;
  FERRY_CHECK(is_renamed, ErrorCode::kSystem, "cannot rename '{}' to '{}': {}", unfinished, file,
              errno_text(errno));
  return file;
}

}  // namespace ferry::ops
