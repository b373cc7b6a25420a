#include "ops/facts/elf.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <gelf.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>

#include "base/unique_fd.hpp"
#include "ops/text.hpp"

namespace ferry::ops {

namespace {

using ElfHandle = std::unique_ptr<Elf, int (*)(Elf*)>;

std::string text_at(Elf* elf, std::size_t table, std::size_t at) {
  const char* text = ::elf_strptr(elf, table, at);
  return text == nullptr ? std::string() : text;
}

void read_dynamic(Elf* elf, Elf_Data* data, const GElf_Shdr& header, ElfFile& file) {
  const int num_entries =
      header.sh_entsize == 0 ? 0 : static_cast<int>(header.sh_size / header.sh_entsize);
  for (int i = 0; i < num_entries; ++i) {
    GElf_Dyn entry;
    if (::gelf_getdyn(data, i, &entry) == nullptr || entry.d_tag == DT_NULL) break;
    const std::string text = text_at(elf, header.sh_link, entry.d_un.d_val);
    if (entry.d_tag == DT_NEEDED) file.needed.push_back(text);
    if (entry.d_tag == DT_SONAME) file.soname = text;
    if (entry.d_tag == DT_RUNPATH) file.runpath = text;
    if (entry.d_tag == DT_RPATH && file.runpath.empty()) file.runpath = text;
  }
}

void read_defined_tags(Elf* elf, Elf_Data* data, const GElf_Shdr& header, ElfFile& file) {
  std::size_t at = 0;
  for (std::size_t i = 0; i < header.sh_info && at < data->d_size; ++i) {
    GElf_Verdef definition;
    if (::gelf_getverdef(data, static_cast<int>(at), &definition) == nullptr) return;
    GElf_Verdaux name;
    const std::size_t aux = at + definition.vd_aux;
    if (aux < data->d_size && ::gelf_getverdaux(data, static_cast<int>(aux), &name) != nullptr)
      file.defined_tags.push_back(text_at(elf, header.sh_link, name.vda_name));
    if (definition.vd_next == 0) return;
    at += definition.vd_next;
  }
}

void read_needed_tags(Elf* elf, Elf_Data* data, const GElf_Shdr& header, ElfFile& file) {
  std::size_t at = 0;
  for (std::size_t i = 0; i < header.sh_info && at < data->d_size; ++i) {
    GElf_Verneed need;
    if (::gelf_getverneed(data, static_cast<int>(at), &need) == nullptr) return;
    std::size_t aux = at + need.vn_aux;
    for (int j = 0; j < need.vn_cnt && aux < data->d_size; ++j) {
      GElf_Vernaux name;
      if (::gelf_getvernaux(data, static_cast<int>(aux), &name) == nullptr) break;
      file.needed_tags.push_back(text_at(elf, header.sh_link, name.vna_name));
      if (name.vna_next == 0) break;
      aux += name.vna_next;
    }
    if (need.vn_next == 0) return;
    at += need.vn_next;
  }
}

// NVSHMEM's device library keeps its version as three integers under this name.
void read_nvshmem_version(Elf* elf, const GElf_Sym& symbol, ElfFile& file) {
  Elf_Scn* section = ::elf_getscn(elf, symbol.st_shndx);
  GElf_Shdr header;
  if (section == nullptr || ::gelf_getshdr(section, &header) == nullptr) return;
  const Elf_Data* data = ::elf_rawdata(section, nullptr);
  const std::uint64_t offset = symbol.st_value - header.sh_addr;
  int numbers[3] = {};
  if (data == nullptr || data->d_buf == nullptr || symbol.st_value < header.sh_addr ||
      offset > data->d_size || data->d_size - offset < sizeof(numbers))
    return;
  std::memcpy(numbers, static_cast<const char*>(data->d_buf) + offset, sizeof(numbers));
  file.nvshmem_device_version = fmt::format("{}.{}.{}", numbers[0], numbers[1], numbers[2]);
}

void read_symbols(Elf* elf, Elf_Data* data, const GElf_Shdr& header, ElfFile& file) {
  const int num_symbols =
      header.sh_entsize == 0 ? 0 : static_cast<int>(header.sh_size / header.sh_entsize);
  for (int i = 0; i < num_symbols; ++i) {
    GElf_Sym symbol;
    if (::gelf_getsym(data, i, &symbol) == nullptr) return;
    const std::string name = text_at(elf, header.sh_link, symbol.st_name);
    if (name.empty()) continue;
    const bool is_defined = symbol.st_shndx != SHN_UNDEF;
    if (name == "nvshmemi_ibgda_device_state_d") file.has_ibgda_state = true;
    if (name == "_ZL27nvshmemi_device_lib_version" && is_defined && symbol.st_shndx < SHN_LORESERVE)
      read_nvshmem_version(elf, symbol, file);
    if (header.sh_type == SHT_DYNSYM) (is_defined ? file.exported : file.undefined).push_back(name);
  }
}

template <typename Number>
Number number_at(const std::string& bytes, std::size_t at) {
  Number number = 0;
  std::memcpy(&number, bytes.data() + at, sizeof(number));
  return number;
}

// A fat binary is a header (magic, version, header size, size of all entries) and entries: kind
// (1 PTX, 2 machine code), header size at 4, payload size at 8, architecture at 28.
void read_fat_binaries(const std::string& bytes, ElfFile& file) {
  constexpr std::uint32_t kMagic = 0xBA55ED50;
  constexpr std::size_t kEntryBytes = 32;
  std::set<std::string> archs(file.archs.begin(), file.archs.end());
  for (std::size_t at = 0; at + 16 <= bytes.size();) {
    if (number_at<std::uint32_t>(bytes, at) != kMagic) {
      at += 8;  // fat binaries are aligned to 8 bytes
      continue;
    }
    const std::size_t header_bytes = number_at<std::uint16_t>(bytes, at + 6);
    const std::uint64_t body_bytes = number_at<std::uint64_t>(bytes, at + 8);
    std::size_t entry = at + header_bytes;
    const std::size_t end = body_bytes > bytes.size() - at
                                ? bytes.size()
                                : std::min<std::size_t>(bytes.size(), entry + body_bytes);
    while (entry < end && end - entry >= kEntryBytes) {
      const auto kind = number_at<std::uint16_t>(bytes, entry);
      const auto arch = number_at<std::uint32_t>(bytes, entry + 28);
      if ((kind == 1 || kind == 2) && arch > 0 && arch < 1000)
        archs.insert(fmt::format("{}_{}", kind == 1 ? "compute" : "sm", arch));
      const std::uint64_t step = std::uint64_t{number_at<std::uint32_t>(bytes, entry + 4)} +
                                 number_at<std::uint64_t>(bytes, entry + 8);
      if (step < kEntryBytes || step > end - entry) break;
      entry += step;
    }
    at = std::max(at + 8, std::min(entry, end) & ~std::size_t{7});
  }
  file.archs.assign(archs.begin(), archs.end());
}

std::string bytes_of(Elf_Scn* section) {
  const Elf_Data* data = ::elf_rawdata(section, nullptr);
  if (data == nullptr || data->d_buf == nullptr) return {};
  return {static_cast<const char*>(data->d_buf), data->d_size};
}

void read_section(
    Elf* elf, std::size_t names, Elf_Scn* section, const ElfOptions& options, ElfFile& file) {
  GElf_Shdr header;
  if (::gelf_getshdr(section, &header) == nullptr) return;
  const std::string name = text_at(elf, names, header.sh_name);
  if (name == ".rodata") file.read_only_data = bytes_of(section);
  if (options.with_archs && (name == ".nv_fatbin" || name == "__nv_relfatbin"))
    read_fat_binaries(bytes_of(section), file);
  Elf_Data* data = ::elf_getdata(section, nullptr);
  if (data == nullptr || header.sh_type == SHT_NOBITS) return;
  if (header.sh_type == SHT_DYNAMIC) read_dynamic(elf, data, header, file);
  if (header.sh_type == SHT_GNU_verdef) read_defined_tags(elf, data, header, file);
  if (header.sh_type == SHT_GNU_verneed) read_needed_tags(elf, data, header, file);
  if (header.sh_type == SHT_DYNSYM || header.sh_type == SHT_SYMTAB)
    read_symbols(elf, data, header, file);
}

}  // namespace

Fact<ElfFile> read_elf(const std::string& local_path, const ElfOptions& options) {
  if (::elf_version(EV_CURRENT) == EV_NONE) return Fact<ElfFile>::unknown("libelf is too old");
  const UniqueFd descriptor(::open(local_path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (descriptor.get() < 0) return Fact<ElfFile>::unknown(errno_text(errno));
  const ElfHandle elf(::elf_begin(descriptor.get(), ELF_C_READ_MMAP, nullptr), &::elf_end);
  std::size_t names = 0;
  if (elf == nullptr || ::elf_kind(elf.get()) != ELF_K_ELF ||
      ::elf_getshdrstrndx(elf.get(), &names) != 0)
    return Fact<ElfFile>::unknown("no ELF file");
  ElfFile file;
  file.nvshmem_device_version = Fact<std::string>::unknown("no version of a device half inside");
  for (Elf_Scn* section = ::elf_nextscn(elf.get(), nullptr); section != nullptr;
       section = ::elf_nextscn(elf.get(), section))
    read_section(elf.get(), names, section, options, file);
  return file;
}

Fact<std::string> highest_tag(const std::vector<std::string>& tags, const std::string& prefix) {
  Fact<std::string> highest = Fact<std::string>::absent();
  for (const std::string& tag : tags) {
    if (!tag.starts_with(prefix) || tag.size() == prefix.size()) continue;
    const std::string version = tag.substr(prefix.size());
    if (version.find_first_not_of("0123456789.") != std::string::npos) continue;
    if (!highest.is_known() || compare_versions(version, highest->substr(prefix.size())) > 0)
      highest = tag;
  }
  return highest;
}

Fact<std::string> version_after(const std::string& text, const std::string& mark) {
  for (std::size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at + 1)) {
    const std::size_t begin = at + mark.size();
    std::size_t end = begin;
    while (end < text.size() &&
           (std::isdigit(static_cast<unsigned char>(text[end])) != 0 || text[end] == '.'))
      ++end;
    while (end > begin && text[end - 1] == '.') --end;
    const std::string version = text.substr(begin, end - begin);
    if (contains(version, ".")) return version;
  }
  return Fact<std::string>::absent();
}

}  // namespace ferry::ops
