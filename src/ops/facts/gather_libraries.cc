#include <algorithm>
#include <array>
#include <set>

#include "ops/facts/elf.hpp"
#include "ops/facts/gather.hpp"
#include "ops/facts/search_paths.hpp"
#include "ops/text.hpp"

namespace ferry::ops::gathering {

namespace {

struct Family {
  const char* name;
  const char* file;     // what its file names begin with
  const char* mark;     // stands before the version in its text
  const char* package;  // of wheels that carry it
};
constexpr std::array kFamilies = {
    Family{"nvshmem", "libnvshmem_host.so", "NVSHMEM v", "nvidia-nvshmem-"},
    Family{"nccl", "libnccl.so", "NCCL version ", "nvidia-nccl-"},
    Family{"mlx5", "libmlx5.so", "", ""},
    Family{"ibverbs", "libibverbs.so", "", ""},
    Family{"efa", "libefa.so", "", ""},
    Family{"gdrapi", "libgdrapi.so", "", ""},
    Family{"nccl-net", "libnccl-net", "", ""},
};

// Symbols that tell one generation of a library from another.
constexpr std::array kSymbols = {"ncclGetLsaDevicePointer", "ncclDevCommCreate", "ncclGetVersion",
                                 "efadv_create_comp_cntr"};

std::string folder_of(const std::string& path) { return path.substr(0, path.rfind('/')); }
std::string name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

const Family* family_of(const std::string& file) {
  for (const Family& family : kFamilies) {
    if (!file.starts_with(family.file)) continue;
    const std::string rest = file.substr(std::string(family.file).size());
    // "libnccl.so.2", not "libnccl.so.2-gdb.py"; plugins are "libnccl-net*.so*".
    const bool is_plugin = std::string(family.name) == "nccl-net";
    if (is_plugin ? contains(rest, ".so")
                  : rest.find_first_not_of(".0123456789") == std::string::npos)
      return &family;
  }
  return nullptr;
}

// "libnccl.so.2.28.9" says 2.28.9; "libnccl.so.2" says nothing that helps.
Fact<std::string> version_in_name(const std::string& file) {
  const std::size_t at = file.find(".so.");
  if (at == std::string::npos) return Fact<std::string>::absent();
  const std::string version = file.substr(at + 4);
  return std::count(version.begin(), version.end(), '.') >= 2 ? Fact<std::string>(version)
                                                              : Fact<std::string>::absent();
}

Fact<std::string> wheel_version(const Facts& facts, const Family& family, const std::string& file) {
  if (*family.package == '\0') return Fact<std::string>::absent();
  for (const PythonPackage& package : facts.software.python)
    if (package.name.starts_with(family.package) && file.starts_with(package.path + "/"))
      return package.version;
  return Fact<std::string>::absent();
}

LibraryFacts library_of(const Root& root,
                        const Facts& facts,
                        const Family& family,
                        const std::string& path,
                        const std::string& found_by) {
  LibraryFacts library;
  library.family = family.name;
  library.path = path;
  library.file = root.resolve(path).value_or(path);
  library.found_by = found_by;
  library.version = Fact<std::string>::absent();
  const Fact<ElfFile> elf = read_elf(root.local_path(path));
  if (elf.is_known()) {
    if (*family.mark != '\0') library.version = version_after(elf->read_only_data, family.mark);
    library.highest_tag = highest_tag(elf->defined_tags, "MLX5_");
    library.glibc_need = highest_tag(elf->needed_tags, "GLIBC_");
    for (const char* symbol : kSymbols)
      if (std::find(elf->exported.begin(), elf->exported.end(), symbol) != elf->exported.end())
        library.symbols.emplace_back(symbol);
  } else {
    library.highest_tag = library.glibc_need = Fact<std::string>::unknown(elf.reason());
  }
  if (!library.version.is_known()) library.version = version_in_name(name_of(library.file));
  if (!library.version.is_known()) library.version = wheel_version(facts, family, library.file);
  if (!library.version.is_known())
    library.version = Fact<std::string>::unknown("neither its text nor its name says a version");

  const std::string folder = folder_of(library.file);
  for (const std::string& name : root.names(folder))
    if (name.starts_with("nvshmem_transport_ibgda.so")) library.has_ibgda = true;
  library.has_headers = root.exists(folder_of(folder) + "/include/nvshmem.h") &&
                        root.exists(folder + "/libnvshmem_device.a");
  return library;
}

}  // namespace

void gather_libraries(const Root& root, Facts& facts) {
  std::set<std::string> seen;
  const auto add = [&](const std::string& path, const std::string& found_by) {
    const Family* family = family_of(name_of(path));
    const Fact<std::string> file = root.resolve(path);
    if (family == nullptr || !file.is_known() || root.is_folder(path)) return;
    if (!seen.insert(file.value()).second) return;
    facts.software.libraries.push_back(library_of(root, facts, *family, path, found_by));
  };
  for (const LibraryFolder& folder : library_folders(root, facts)) {
    if (folder.found_by == "LD_PRELOAD") {
      add(folder.path, folder.found_by);
      continue;
    }
    for (const std::string& name : root.names(folder.path))
      if (family_of(name) != nullptr) add(folder.path + "/" + name, folder.found_by);
  }
}

}  // namespace ferry::ops::gathering
