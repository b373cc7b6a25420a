#include "ops/verify/figures.hpp"

#include <re2/re2.h>

#include "ops/text.hpp"

namespace ferry::ops {

namespace {

constexpr PublishedFigure kPublished[] = {
    {1, "dispatch FP8", "NVL", 300, 320},          {1, "dispatch BF16", "NVL", 440, 450},
    {1, "combine BF16", "NVL", 350, 360},          {2, "dispatch FP8", "RDMA", 70, 71, 68.70},
    {2, "dispatch FP8", "NVL", 231, 235, 229.30},  {2, "dispatch BF16", "RDMA", 81, 81, 77.80},
    {2, "dispatch BF16", "NVL", 265, 271, 259.66}, {2, "combine BF16", "RDMA", 75, 75, 74.30},
    {2, "combine BF16", "NVL", 245, 253, 247.99},  {4, "dispatch FP8", "RDMA", 54, 54},
    {4, "dispatch FP8", "NVL", 108, 111},          {4, "dispatch BF16", "RDMA", 57, 58},
    {4, "dispatch BF16", "NVL", 114, 118},         {4, "combine BF16", "RDMA", 56, 57},
    {4, "combine BF16", "NVL", 113, 116},
};

}  // namespace

std::vector<Figure> parse_figures(std::string_view output) {
  static const RE2 kBest(R"(Best (dispatch|combine)(?: \((FP8|BF16)\))?)");
  static const RE2 kRate(R"(([0-9]+(?:\.[0-9]+)?) GB/s \((NVL|RDMA)\))");
  std::vector<Figure> figures;
  for (const std::string& line : lines_of(output)) {
    std::string operation;
    std::string dtype;
    if (!RE2::PartialMatch(line, kBest, &operation, &dtype)) continue;
    re2::StringPiece rest(line);
    double rate = 0;
    std::string link;
    while (RE2::FindAndConsume(&rest, kRate, &rate, &link))
      figures.push_back({operation + " " + (dtype.empty() ? "BF16" : dtype), link, rate});
  }
  return figures;
}

std::span<const PublishedFigure> published_figures() { return kPublished; }

std::optional<PublishedFigure> published_figure(int nodes, const Figure& figure) {
  for (const PublishedFigure& row : kPublished)
    if (row.nodes == nodes && figure.operation == row.operation && figure.link == row.link)
      return row;
  return std::nullopt;
}

}  // namespace ferry::ops
