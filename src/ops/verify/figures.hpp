#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ferry::ops {

// One figure of DeepEP's own tests: the best of their tuning.
struct Figure {
  std::string operation;  // "dispatch FP8", "dispatch BF16", "combine BF16"
  std::string link;       // "NVL", "RDMA"
  double gbytes = 0;      // GB/s
};

// The figures in the output of tests/test_intranode.py and tests/test_internode.py.
[[nodiscard]] std::vector<Figure> parse_figures(std::string_view output);

// What was published for 8xB200 a node, 2048 tokens, hidden 7168, 256 experts, top-8.
struct PublishedFigure {
  int nodes;
  const char* operation;
  const char* link;
  double least;  // on bare metal
  double most;
  double on_gke = 0;  // in a Pod; 0: not published
};
[[nodiscard]] std::span<const PublishedFigure> published_figures();
[[nodiscard]] std::optional<PublishedFigure> published_figure(int nodes, const Figure& figure);

}  // namespace ferry::ops
