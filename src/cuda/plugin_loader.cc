#include <dlfcn.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "base/env.hpp"
#include "base/error.hpp"
#include "cuda/plugin.hpp"

namespace ferry::cuda {

namespace {

// Where the code of this function was loaded from.
std::filesystem::path own_folder() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&load_plugin), &info) == 0 ||
      info.dli_fname == nullptr)
    return {};
  std::error_code ignored;
  // A program's own name may be relative to a folder that it has left.
  std::filesystem::path file = std::filesystem::canonical(info.dli_fname, ignored);
  if (ignored) file = std::filesystem::read_symlink("/proc/self/exe", ignored);
  return file.parent_path();
}

std::vector<std::filesystem::path> candidates() {
  if (!env().plugin_dir.empty()) return {std::filesystem::path(env().plugin_dir) / kPluginFile};
  const std::filesystem::path folder = own_folder();
  return {folder / kPluginFile, folder.parent_path() / "lib" / kPluginFile};
}

const Plugin& open_plugin() {
  std::string tried;
  for (const std::filesystem::path& file : candidates()) {
    // Never closed: its threads and its types live as long as the process.
    void* library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      tried += fmt::format("{}{}", tried.empty() ? "" : "; ", ::dlerror());
      continue;
    }
    const auto entry = reinterpret_cast<PluginEntry>(::dlsym(library, kPluginEntry));
    FERRY_CHECK(entry != nullptr, ErrorCode::kUnavailable, "{} is no CUDA engine of FerryEP",
                file.string());
    const Plugin* plugin = entry();
    FERRY_CHECK(std::strcmp(plugin->abi, kPluginAbi) == 0, ErrorCode::kUnavailable,
                "{} is of another build: it says '{}', expected '{}'; try: install both together",
                file.string(), plugin->abi, kPluginAbi);
    return *plugin;
  }
  FERRY_THROW(ErrorCode::kUnavailable,
              "the CUDA engine cannot be loaded: {}; try: a build with the CUDA toolkit, or "
              "FERRY_PLUGIN_DIR",
              tried);
}

}  // namespace

const Plugin& load_plugin() {
  static const Plugin& plugin = open_plugin();
  return plugin;
}

}  // namespace ferry::cuda
