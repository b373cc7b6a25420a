#include "ops/diagnose/evidence.hpp"

#include <re2/re2.h>
#include <re2/set.h>

#include <cstdlib>
#include <utility>

#include "base/error.hpp"
#include "ops/diagnose/line_prefix.hpp"

namespace ferry::ops {

namespace {

constexpr std::size_t kShownBytes = 300;
constexpr const char* kComplaint =
    R"(\b(?:error|exception|fatal|failed|assertion|aborted|traceback|panic)\b)";
constexpr const char* kSetting =
    R"(\b((?:NVSHMEM|NCCL|DEEP_EP)_\w+|CUDA_VISIBLE_DEVICES|PYTORCH_CUDA_ALLOC_CONF)=["']?([^\s"']*))";

RE2::Options options_of_patterns() {
  RE2::Options options(RE2::Quiet);
  options.set_case_sensitive(false);
  options.set_encoding(RE2::Options::EncodingLatin1);  // any byte is a character
  options.set_max_mem(64 << 20);
  return options;
}

// Cut between characters, so that what is shown stays UTF-8 where it was.
std::string shown(std::string_view text) {
  std::size_t end = std::min(text.size(), kShownBytes);
  while (end < text.size() && end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80)
    --end;
  return std::string(text.substr(0, end));
}

}  // namespace

bool is_earlier(const Event& a, const Event& b) {
  if (a.source != b.source && a.time_s && b.time_s && *a.time_s != *b.time_s)
    return *a.time_s < *b.time_s;
  return a.order < b.order;
}

// All patterns in one automaton, so that a line is looked at once, and each alone for its group.
struct Evidence::Matcher {
  RE2::Set set{options_of_patterns(), RE2::UNANCHORED};
  std::vector<std::unique_ptr<RE2>> single;
  RE2 setting{kSetting};
  std::size_t complaint_row;
  std::vector<int> rows;  // of the line at hand

  Matcher() {
    for (const Pattern& pattern : log_patterns()) add(pattern.regex);
    complaint_row = single.size();
    add(kComplaint);
    FERRY_CHECK_INTERNAL(set.Compile(), "the log patterns do not compile together");
  }

  void add(const char* regex) {
    single.push_back(std::make_unique<RE2>(regex, options_of_patterns()));
    std::string problem;
    FERRY_CHECK_INTERNAL(set.Add(regex, &problem) >= 0, "log pattern '{}': {}", regex, problem);
  }

  bool match(const re2::StringPiece& text) {
    rows.clear();
    RE2::Set::ErrorInfo error{};
    if (set.Match(text, &rows, &error)) return true;
    if (error.kind != RE2::Set::kOutOfMemory) return false;
    // A line that needs too many states of the common automaton: one pattern after the other.
    for (std::size_t row = 0; row < single.size(); ++row)
      if (RE2::PartialMatch(text, *single[row])) rows.push_back(static_cast<int>(row));
    return !rows.empty();
  }

  [[nodiscard]] std::string value(std::size_t row, const re2::StringPiece& text) const {
    const RE2& regex = *single[row];
    std::string value;
    if (regex.NumberOfCapturingGroups() > 0) RE2::PartialMatch(text, regex, &value);
    return shown(value);
  }
};

Evidence::Evidence() : matcher_(std::make_unique<Matcher>()), sightings_(log_patterns().size()) {}
Evidence::~Evidence() = default;
Evidence::Evidence(Evidence&&) noexcept = default;

void Evidence::read(std::istream& stream, const std::string& source) {
  std::string clock_line;
  const LogSize read =
      read_log(stream, [&](const LogLine& line) { take(line, source, clock_line); });
  size_.bytes += read.bytes;
  size_.lines += read.lines;
  size_.cut_lines += read.cut_lines;
  ++num_sources_;
}

void Evidence::take(const LogLine& line, const std::string& source, std::string& clock_line) {
  ++order_;
  if (may_have_time(line.text)) clock_line = line.text;
  const re2::StringPiece text(line.text.data(), line.text.size());
  const bool is_matched = matcher_->match(text);
  std::optional<int> rank;
  if (is_matched || line.number <= kMostRankLines) rank = parse_rank(line.text);
  if (rank && ranks_.size() < kMostRanks) ranks_.insert(*rank);
  if (!is_matched) return;
  const Event event{source, line.number,      order_, parse_time_s(clock_line),
                    rank,   shown(line.text), ""};
  for (const int matched : matcher_->rows) {
    const auto row = static_cast<std::size_t>(matched);
    if (row == matcher_->complaint_row) {
      if (!complaint_ || is_earlier(event, *complaint_)) complaint_ = event;
    } else {
      if (log_patterns()[row].signal == Signal::kEnvSetting) note_settings(std::string(line.text));
      Event with_value = event;
      with_value.value = matcher_->value(row, text);
      note(row, std::move(with_value));
    }
  }
}

void Evidence::note(std::size_t row, Event event) {
  Sighting& sighting = sightings_[row];
  ++sighting.count;
  if (event.rank && sighting.ranks.size() < kMostRanks) sighting.ranks.insert(*event.rank);
  if (!event.value.empty()) {
    if (sighting.values.size() < kMostValues) sighting.values.insert(event.value);
    sighting.largest = std::max(sighting.largest, std::strtod(event.value.c_str(), nullptr));
  }
  if (!sighting.first || is_earlier(event, *sighting.first)) sighting.first = event;
  if (!sighting.last || is_earlier(*sighting.last, event)) sighting.last = std::move(event);
}

void Evidence::note_settings(const std::string& text) {
  re2::StringPiece rest(text);
  std::string name;
  std::string value;
  while (settings_.size() < kMostSettings &&
         RE2::FindAndConsume(&rest, matcher_->setting, &name, &value))
    settings_.emplace(name, shown(value));
}

const Sighting* Evidence::find(Signal signal) const {
  for (std::size_t row = 0; row < sightings_.size(); ++row)
    if (log_patterns()[row].signal == signal && sightings_[row].count > 0) return &sightings_[row];
  return nullptr;
}

}  // namespace ferry::ops
