// The exchange of `ferry bench` the way a good MPI program does it: pack one row per (token, rank),
// MPI_Alltoallv straight into the delivered tensor; and back, MPI_Alltoallv and unpack with a sum.
// For comparison only; see compare_mpi.
//
//   mpirun -n 4 mpi_alltoallv [--tokens T --hidden H --experts E --topk K --iters N --warmup N
//                              --seed S]
//
// The routing is that of `ferry bench --routing uniform` with the same seed. Rows are bf16. Each
// operation is timed behind a barrier that is not; rank 0 prints one JSON object whose `dispatch`
// and `combine` have the shape of ferry bench's: slowest rank of each iteration, microseconds.

#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "bench/batch.hpp"

namespace {

using ferry::bench::Batch;
using Row = std::vector<std::uint16_t>;

float to_float(std::uint16_t bits) {
  const std::uint32_t word = static_cast<std::uint32_t>(bits) << 16;
  float value = 0;
  std::memcpy(&value, &word, sizeof(value));
  return value;
}

std::uint16_t to_bf16(float value) {  // finite values
  std::uint32_t word = 0;
  std::memcpy(&word, &value, sizeof(word));
  return static_cast<std::uint16_t>((word + 0x7FFF + ((word >> 16) & 1)) >> 16);
}

// Which rows go where, in the order of the send buffer: by destination, then token.
struct Plan {
  std::vector<std::int64_t> sent_token;     // of each row in the send buffer
  std::vector<std::int64_t> first_row;      // [T + 1]: rows_of_token of each token
  std::vector<std::int64_t> rows_of_token;  // places in the send buffer, by rank
  std::vector<int> send_counts;             // in rows
  std::vector<int> send_offsets;
  std::vector<int> recv_counts;
  std::vector<int> recv_offsets;
  std::int64_t num_received = 0;
};

Plan make_plan(const Batch& batch, int rank) {
  const int ranks = batch.num_ranks();
  const auto& topk = batch.routing.topk[static_cast<std::size_t>(rank)];
  const std::int64_t tokens = batch.routing.num_tokens(rank);
  const int top_k = batch.routing.top_k;
  std::vector<std::vector<std::int64_t>> to(static_cast<std::size_t>(ranks));
  for (std::int64_t token = 0; token < tokens; ++token)
    for (int k = 0; k < top_k; ++k) {
      const int id = topk[static_cast<std::size_t>(token * top_k + k)];
      auto& list =
          to[static_cast<std::size_t>(batch.routing.expert_owner[static_cast<std::size_t>(id)])];
      if (list.empty() || list.back() != token) list.push_back(token);
    }
  Plan plan;
  std::vector<std::vector<std::int64_t>> places(static_cast<std::size_t>(tokens));
  for (const auto& list : to) {
    plan.send_offsets.push_back(static_cast<int>(plan.sent_token.size()));
    plan.send_counts.push_back(static_cast<int>(list.size()));
    for (const std::int64_t token : list) {
      places[static_cast<std::size_t>(token)].push_back(
          static_cast<std::int64_t>(plan.sent_token.size()));
      plan.sent_token.push_back(token);
    }
  }
  for (const auto& own : places) {
    plan.first_row.push_back(static_cast<std::int64_t>(plan.rows_of_token.size()));
    plan.rows_of_token.insert(plan.rows_of_token.end(), own.begin(), own.end());
  }
  plan.first_row.push_back(static_cast<std::int64_t>(plan.rows_of_token.size()));
  plan.recv_counts.resize(static_cast<std::size_t>(ranks));
  MPI_Alltoall(plan.send_counts.data(), 1, MPI_INT, plan.recv_counts.data(), 1, MPI_INT,
               MPI_COMM_WORLD);
  for (const int count : plan.recv_counts) {
    plan.recv_offsets.push_back(static_cast<int>(plan.num_received));
    plan.num_received += count;
  }
  return plan;
}

class Exchange {
 public:
  Exchange(const Batch& batch, int rank)
      : hidden_(static_cast<std::size_t>(batch.hidden)),
        plan_(make_plan(batch, rank)),
        x_(static_cast<std::size_t>(batch.routing.num_tokens(rank)) * hidden_),
        out_(x_.size()),
        packed_(plan_.sent_token.size() * hidden_),
        delivered_(static_cast<std::size_t>(plan_.num_received) * hidden_) {
    for (std::int64_t token = 0; token < batch.routing.num_tokens(rank); ++token)
      fill_row(batch, rank, token,
               std::span(x_).subspan(static_cast<std::size_t>(token) * hidden_, hidden_));
    MPI_Type_contiguous(static_cast<int>(hidden_), MPI_UINT16_T, &row_);
    MPI_Type_commit(&row_);
  }
  ~Exchange() { MPI_Type_free(&row_); }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  void dispatch() {
    for (std::size_t i = 0; i < plan_.sent_token.size(); ++i)
      copy_row(&packed_[i * hidden_], &x_[static_cast<std::size_t>(plan_.sent_token[i]) * hidden_]);
    MPI_Alltoallv(packed_.data(), plan_.send_counts.data(), plan_.send_offsets.data(), row_,
                  delivered_.data(), plan_.recv_counts.data(), plan_.recv_offsets.data(), row_,
                  MPI_COMM_WORLD);
  }

  void combine() {
    MPI_Alltoallv(delivered_.data(), plan_.recv_counts.data(), plan_.recv_offsets.data(), row_,
                  packed_.data(), plan_.send_counts.data(), plan_.send_offsets.data(), row_,
                  MPI_COMM_WORLD);
    std::vector<float> sum(hidden_);
    for (std::size_t token = 0; token + 1 < plan_.first_row.size(); ++token) {
      std::fill(sum.begin(), sum.end(), 0.0F);
      for (auto i = plan_.first_row[token]; i < plan_.first_row[token + 1]; ++i)
        add_row(
            sum,
            &packed_[static_cast<std::size_t>(plan_.rows_of_token[static_cast<std::size_t>(i)]) *
                     hidden_]);
      for (std::size_t c = 0; c < hidden_; ++c) out_[token * hidden_ + c] = to_bf16(sum[c]);
    }
  }

  // With experts that change nothing each token comes back once per rank that it went to.
  [[nodiscard]] bool is_correct() const {
    for (std::size_t token = 0; token + 1 < plan_.first_row.size(); ++token) {
      const auto copies = static_cast<float>(plan_.first_row[token + 1] - plan_.first_row[token]);
      for (std::size_t c = 0; c < hidden_; ++c)
        if (out_[token * hidden_ + c] != to_bf16(copies * to_float(x_[token * hidden_ + c])))
          return false;
    }
    return true;
  }

  [[nodiscard]] std::int64_t received_bytes() const {
    return static_cast<std::int64_t>(delivered_.size()) * 2;
  }

 private:
  void copy_row(std::uint16_t* to, const std::uint16_t* from) const {
    std::memcpy(to, from, hidden_ * 2);
  }
  static void add_row(std::vector<float>& sum, const std::uint16_t* row) {
    for (std::size_t c = 0; c < sum.size(); ++c) sum[c] += to_float(row[c]);
  }

  std::size_t hidden_;
  Plan plan_;
  Row x_;
  Row out_;
  Row packed_;
  Row delivered_;
  MPI_Datatype row_ = MPI_DATATYPE_NULL;
};

// Microseconds of the slowest rank of each iteration.
template <typename Call>
std::vector<double> time_calls(int warmup, int iters, Call&& call) {
  std::vector<double> own;
  for (int i = -warmup; i < iters; ++i) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    call();
    if (i >= 0) own.push_back((MPI_Wtime() - start) * 1e6);
  }
  std::vector<double> slowest(own.size());
  MPI_Allreduce(own.data(), slowest.data(), static_cast<int>(own.size()), MPI_DOUBLE, MPI_MAX,
                MPI_COMM_WORLD);
  std::sort(slowest.begin(), slowest.end());
  return slowest;
}

double median_of(const std::vector<double>& sorted) {
  const std::size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

void print_op(const char* name, const std::vector<double>& us, std::int64_t bytes) {
  const double median = median_of(us);
  std::printf(
      "  \"%s\": {\"median_us\": %.3f, \"min_us\": %.3f, \"max_us\": %.3f, "
      "\"logical_bytes\": %lld, \"logical_gbs\": %.4f},\n",
      name, median, us.front(), us.back(), static_cast<long long>(bytes),
      static_cast<double>(bytes) / median * 1e-3);
}

struct Options {
  ferry::bench::BenchOptions bench;
  bool is_valid = true;
};

Options parse(int argc, char** argv) {
  Options options;
  options.bench.tokens = 4096;
  options.bench.experts = 256;
  options.bench.topk = 8;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const long long value = std::atoll(argv[i + 1]);
    if (name == "--tokens")
      options.bench.tokens = value;
    else if (name == "--hidden")
      options.bench.hidden = value;
    else if (name == "--experts")
      options.bench.experts = static_cast<int>(value);
    else if (name == "--topk")
      options.bench.topk = static_cast<int>(value);
    else if (name == "--iters")
      options.bench.iters = static_cast<int>(value);
    else if (name == "--warmup")
      options.bench.warmup = static_cast<int>(value);
    else if (name == "--seed")
      options.bench.seed = static_cast<std::uint64_t>(value);
    else
      options.is_valid = false;
  }
  if (argc % 2 == 0 || options.bench.iters < 1) options.is_valid = false;
  return options;
}

void run(const ferry::bench::BenchOptions& options, int rank, int ranks) {
  Batch batch;
  batch.routing = make_routing_table(options, ranks);
  batch.hidden = options.hidden;
  batch.seed = options.seed;
  Exchange exchange(batch, rank);
  const auto dispatch = time_calls(options.warmup, options.iters, [&] { exchange.dispatch(); });
  const auto combine = time_calls(options.warmup, options.iters, [&] { exchange.combine(); });
  const std::int64_t own = exchange.received_bytes();
  std::int64_t bytes = 0;
  MPI_Allreduce(&own, &bytes, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
  int is_ok = exchange.is_correct() ? 1 : 0;
  MPI_Allreduce(MPI_IN_PLACE, &is_ok, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  if (rank != 0) return;
  std::printf(
      "{\n  \"schema\": \"ferry.mpi-bench/1\", \"ranks\": %d, \"tokens\": %lld, \"hidden\": %lld, "
      "\"experts\": %d, \"topk\": %d, \"iters\": %d,\n",
      ranks, static_cast<long long>(batch.routing.max_tokens), static_cast<long long>(batch.hidden),
      batch.routing.num_experts, batch.routing.top_k, options.iters);
  print_op("dispatch", dispatch, bytes);
  print_op("combine", combine, bytes);
  std::printf("  \"check\": {\"ok\": %s}\n}\n", is_ok == 1 ? "true" : "false");
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const Options options = parse(argc, argv);
  if (!options.is_valid) {
    if (rank == 0)
      std::fprintf(stderr,
                   "usage: mpi_alltoallv [--tokens T] [--hidden H] [--experts E] [--topk K] "
                   "[--iters N] [--warmup N] [--seed S]\n");
    MPI_Finalize();
    return 2;
  }
  run(options.bench, rank, ranks);
  MPI_Finalize();
  return 0;
}
