#pragma once

// Dispatch and combine written for obviousness: the truth that every engine is compared with. Slow,
// without the library, at most 100 lines. Its arithmetic is in oracle_numbers.hpp.

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

namespace ferry::oracle {

enum class Form { kByRank, kByExpert, kPadded };
enum class Order { kRankAscending, kHighestKAscending };

struct Shape {
  Form form = Form::kByRank;
  int num_ranks = 1;
  int top_k = 1;
  std::int64_t max_tokens = 0;
  std::int64_t alignment = 1;  // rows; kByExpert's starts
  std::vector<int> owner;      // [num_experts]: the rank of each expert
};

using Topk = std::vector<int>;  // one source's ids, [tokens * top_k]; -1 is none

struct Row {
  std::int64_t index = 0;  // where it stands in the delivery
  int source = 0;
  std::int64_t token = 0;
  int slot = 0;     // the row's k; kByRank: this rank's position among the token's destinations
  int expert = -1;  // global id; kByRank: -1
};

struct Received {
  std::vector<Row> rows;              // ascending index
  std::int64_t num_rows = 0;          // gaps included
  std::vector<std::int64_t> counts;   // [E_l] rows per local expert
  std::vector<std::int64_t> offsets;  // [E_l + 1] first row of each local expert
};

// What rank `me` receives.
inline Received receive(const Shape& shape, const std::vector<Topk>& topk, int me) {
  Received in;
  const bool is_by_rank = shape.form == Form::kByRank;
  std::vector<std::int64_t> count(shape.owner.size());
  for (int source = 0; source < shape.num_ranks; ++source) {
    const Topk& all = topk[size_t(source)];
    for (std::int64_t token = 0; token * shape.top_k < std::int64_t(all.size()); ++token) {
      const int* ids = &all[size_t(token * shape.top_k)];
      std::set<int> ranks;  // that the token goes to, ascending
      for (int k = 0; k < shape.top_k; ++k)
        if (ids[k] >= 0) ranks.insert(shape.owner[size_t(ids[k])]);
      if (!ranks.contains(me)) continue;
      const auto position = int(std::distance(ranks.begin(), ranks.find(me)));
      if (is_by_rank) in.rows.push_back({in.num_rows++, source, token, position, -1});
      for (int k = 0; k < shape.top_k; ++k) {
        if (ids[k] < 0 || shape.owner[size_t(ids[k])] != me) continue;
        const std::int64_t place = count[size_t(ids[k])]++;  // inside its expert, for now
        if (!is_by_rank) in.rows.push_back({place, source, token, k, ids[k]});
      }
    }
  }
  std::vector<std::int64_t> start(count.size());
  in.offsets.push_back(0);
  for (size_t expert = 0; expert < count.size(); ++expert) {
    if (shape.owner[expert] != me) continue;
    start[expert] = in.offsets.back();
    const bool is_padded = shape.form == Form::kPadded;
    std::int64_t room = is_padded ? shape.num_ranks * shape.max_tokens : count[expert];
    while (shape.form == Form::kByExpert && room % shape.alignment != 0) ++room;
    in.counts.push_back(count[expert]);
    in.offsets.push_back(start[expert] + room);
  }
  if (is_by_rank) return in;
  in.num_rows = in.offsets.back();
  for (Row& row : in.rows) row.index += start[size_t(row.expert)];
  std::ranges::sort(in.rows, {}, &Row::index);
  return in;
}

struct Term {
  int rank = 0;  // that holds the row
  int k = 0;     // that it serves; kByRank: the highest
};

// The rows whose sum is a token's result, in the order of the sum; weighted sums go by k.
inline std::vector<Term> combine_order(const Shape& shape, const int* ids, Order order) {
  std::vector<Term> terms;
  for (int k = 0; k < shape.top_k; ++k) {
    if (ids[k] < 0) continue;
    const int rank = shape.owner[size_t(ids[k])];
    if (shape.form == Form::kByRank) std::erase_if(terms, [&](Term t) { return t.rank == rank; });
    terms.push_back({rank, k});
  }
  if (order == Order::kRankAscending) std::ranges::stable_sort(terms, {}, &Term::rank);
  return terms;
}

}  // namespace ferry::oracle
