#include "topo/hca_mapping.hpp"

#include <charconv>

#include "base/error.hpp"

namespace ferry::topo {

namespace {

bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

// As Python's int() reads it: blanks around it, a sign, underscores between digits.
std::optional<int> parse_id(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  std::string number;
  if (!text.empty() && (text.front() == '-' || text.front() == '+')) {
    if (text.front() == '-') number += '-';
    text.remove_prefix(1);
  }
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool is_between =
        i > 0 && i + 1 < text.size() && is_digit(text[i - 1]) && is_digit(text[i + 1]);
    if (text[i] == '_' && is_between) continue;
    if (!is_digit(text[i])) return std::nullopt;
    number += text[i];
  }
  int id = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), id);
  if (error != std::errc{} || end != number.data() + number.size()) return std::nullopt;
  return id;
}

std::optional<int> parse_positive(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 1) return std::nullopt;
  return value;
}

}  // namespace

HcaMapping parse_hca_mapping(std::string_view text) {
  HcaMapping mapping;
  for (const std::string_view entry : split(text, ',')) {
    const std::size_t colon = entry.find(':');
    FERRY_CHECK(colon != std::string_view::npos, ErrorCode::kInvalidArgument,
                "DEEP_EP_DEVICE_TO_HCA_MAPPING has the entry '{}', expected DEVICE:HCA[:PORT] such "
                "as 0:mlx5_0:1; try: ferry topo --format mapping",
                entry);
    const auto id = parse_id(entry.substr(0, colon));
    FERRY_CHECK(id.has_value(), ErrorCode::kInvalidArgument,
                "DEEP_EP_DEVICE_TO_HCA_MAPPING has the entry '{}' whose device '{}' is no whole "
                "number; try: ferry topo --format mapping",
                entry, entry.substr(0, colon));
    mapping[*id] = std::string(entry.substr(colon + 1));
  }
  return mapping;
}

std::string format_hca_mapping(const HcaMapping& mapping) {
  std::string text;
  for (const auto& [id, hca] : mapping)
    text += fmt::format("{}{}:{}", text.empty() ? "" : ",", id, hca);
  return text;
}

int physical_device(int device, const std::optional<std::string>& visible_devices) {
  if (!visible_devices) return device;
  const auto entries = split(*visible_devices, ',');
  FERRY_CHECK(device >= 0 && static_cast<std::size_t>(device) < entries.size(),
              ErrorCode::kInvalidArgument,
              "CUDA device {} is not among the {} entries of CUDA_VISIBLE_DEVICES='{}'", device,
              entries.size(), *visible_devices);
  const std::string_view entry = entries[static_cast<std::size_t>(device)];
  int id = 0;
  const auto [end, error] = std::from_chars(entry.data(), entry.data() + entry.size(), id);
  FERRY_CHECK(!entry.empty() && is_digit(entry.front()) && error == std::errc{} &&
                  end == entry.data() + entry.size(),
              ErrorCode::kInvalidArgument,
              "entry {} of CUDA_VISIBLE_DEVICES='{}' is '{}', expected digits only: the mapping "
              "of GPUs to NICs knows neither UUIDs nor MIG names",
              device, *visible_devices, entry);
  return id;
}

std::string hca_of_device(const HcaMapping& mapping,
                          int device,
                          const std::optional<std::string>& visible_devices) {
  const int id = physical_device(device, visible_devices);
  const auto found = mapping.find(id);
  FERRY_CHECK(found != mapping.end(), ErrorCode::kInvalidArgument,
              "DEEP_EP_DEVICE_TO_HCA_MAPPING='{}' has no NIC for CUDA device {}; "
              "try: ferry topo --format mapping",
              format_hca_mapping(mapping), id);
  return found->second;
}

std::optional<HcaPort> parse_hca_port(std::string_view text) {
  const auto parts = split(text, ':');
  if (parts.size() > 3 || parts[0].empty()) return std::nullopt;
  HcaPort hca{.name = std::string(parts[0])};
  if (parts.size() > 1) {
    hca.port = parse_positive(parts[1]);
    if (!hca.port) return std::nullopt;
  }
  if (parts.size() > 2) {
    hca.count = parse_positive(parts[2]);
    if (!hca.count) return std::nullopt;
  }
  return hca;
}

}  // namespace ferry::topo
