#pragma once

#include <cstdint>
#include <istream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ops/diagnose/log_reader.hpp"
#include "ops/diagnose/patterns.hpp"

namespace ferry::ops {

// One line that a pattern matched.
struct Event {
  std::string source;  // file name, or "-"
  std::int64_t line = 0;
  std::int64_t order = 0;        // in which lines were read, over all sources
  std::optional<double> time_s;  // of this line or, failing that, of the last line that had one
  std::optional<int> rank;
  std::string text;   // at most 300 bytes
  std::string value;  // the pattern's first group
};

// By time where both have one; else in the order they were read.
[[nodiscard]] bool is_earlier(const Event& a, const Event& b);

// All that is kept of one pattern's lines.
struct Sighting {
  std::int64_t count = 0;
  std::optional<Event> first;  // the earliest
  std::optional<Event> last;
  std::set<int> ranks;           // of at most kMostRanks
  std::set<std::string> values;  // the first kMostValues distinct ones
  double largest = 0;            // of the values that are numbers
};

// What was read of a set of logs, in bounded memory however long they are.
class Evidence {
 public:
  static constexpr std::size_t kMostRanks = 4096;
  static constexpr std::size_t kMostValues = 32;
  static constexpr std::size_t kMostSettings = 256;
  static constexpr std::int64_t kMostRankLines = 100000;

  Evidence();
  ~Evidence();
  Evidence(Evidence&&) noexcept;

  // Reads one log to its end. Call once per source.
  void read(std::istream& stream, const std::string& source);

  // What the pattern of that signal matched, null if nothing.
  [[nodiscard]] const Sighting* find(Signal signal) const;
  // One for each row of log_patterns(); count 0: never seen.
  [[nodiscard]] const std::vector<Sighting>& sightings() const noexcept { return sightings_; }
  // NVSHMEM_*, NCCL_* and a few other variables that the logs print as NAME=value; the first value.
  [[nodiscard]] const std::map<std::string, std::string>& settings() const noexcept {
    return settings_;
  }
  // The ranks that wrote the first kMostRankLines lines of each log, or a line that matched.
  [[nodiscard]] const std::set<int>& ranks() const noexcept { return ranks_; }
  // The earliest line that speaks of an error, for logs without any known one.
  [[nodiscard]] const std::optional<Event>& first_complaint() const noexcept { return complaint_; }
  [[nodiscard]] const LogSize& size() const noexcept { return size_; }
  [[nodiscard]] int num_sources() const noexcept { return num_sources_; }

 private:
  struct Matcher;
  void take(const LogLine& line, const std::string& source, std::string& clock_line);
  void note(std::size_t row, Event event);
  void note_settings(const std::string& text);

  std::unique_ptr<Matcher> matcher_;
  std::vector<Sighting> sightings_;
  std::map<std::string, std::string> settings_;
  std::set<int> ranks_;
  std::optional<Event> complaint_;
  LogSize size_;
  std::int64_t order_ = 0;
  int num_sources_ = 0;
};

}  // namespace ferry::ops
