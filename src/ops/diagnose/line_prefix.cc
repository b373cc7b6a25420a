#include "ops/diagnose/line_prefix.hpp"

#include <re2/re2.h>

#include <algorithm>
#include <string>

namespace ferry::ops {

namespace {

constexpr std::size_t kPrefixBytes = 200;

re2::StringPiece head_of(std::string_view line) {
  return {line.data(), std::min(line.size(), kPrefixBytes)};
}

// Each has one group, the rank; the surest form first.
const RE2& rank_form(std::size_t form) {
  static const RE2 kForms[] = {
      RE2(R"(^\[\d+,(\d{1,5})\]<std(?:out|err)>)"),              // mpirun --tag-output
      RE2(R"((?i)\bglobal rank:? *(\d{1,5})\b)"),                // DeepEP's counters
      RE2(R"(\bferry\[(\d{1,5})/\d+\])"),                        // FerryEP
      RE2(R"(^\[(?:default)?(?:rank)?(\d{1,5})(?:/\d+)?\]:?)"),  // torchrun, PyTorch
      RE2(R"((?i)\[rank[ _]?(\d{1,5})\])"),
      RE2(R"(\b[\w.-]+:\d+:\d+ \[(\d{1,2})\] NCCL )"),  // the device, which is the local rank
      RE2(R"((?:\b|_)EP(\d{1,4})\b)"),
      RE2(R"((?:\b|_)DP(\d{1,4})\b)"),
      RE2(R"((?:\b|_)TP(\d{1,4})\b)"),
      RE2(R"((?i)\brank[ =:]+(\d{1,5})\b)"),
      RE2(R"(^(\d{1,5}): )"),  // srun -l
  };
  return kForms[form];
}
constexpr std::size_t kNumForms = 11;

std::optional<int> rank_in(const re2::StringPiece& head) {
  int rank = 0;
  for (std::size_t form = 0; form < kNumForms; ++form)
    if (RE2::PartialMatch(head, rank_form(form), &rank)) return rank;
  return std::nullopt;
}

// Days are counted as if every month had 31: order is what matters, and differences within a day.
std::optional<double> time_in(const re2::StringPiece& head) {
  static const RE2 kForm(
      R"((?:(?:(\d{4})-)?(\d\d)[-/](\d\d)[T ]|\b)(\d\d):(\d\d):(\d\d)(?:[.,](\d{1,6}))?)");
  std::string year;
  std::string month;
  std::string day;
  std::string fraction;
  int hours = 0;
  int minutes = 0;
  int seconds = 0;
  if (!RE2::PartialMatch(head, kForm, &year, &month, &day, &hours, &minutes, &seconds, &fraction))
    return std::nullopt;
  double days = 0;
  if (!month.empty()) days = std::stoi(month) * 31 + std::stoi(day);
  const double part = fraction.empty() ? 0 : std::stod("0." + fraction);
  return days * 86400 + hours * 3600 + minutes * 60 + seconds + part;
}

}  // namespace

std::optional<int> parse_rank(std::string_view line) { return rank_in(head_of(line)); }

std::optional<double> parse_time_s(std::string_view line) { return time_in(head_of(line)); }

bool may_have_time(std::string_view line) noexcept {
  const std::string_view head = line.substr(0, kPrefixBytes);
  for (std::size_t at = head.find(':'); at != std::string_view::npos; at = head.find(':', at + 1))
    if (at + 3 < head.size() && head[at + 3] == ':') return true;
  return false;
}

}  // namespace ferry::ops
