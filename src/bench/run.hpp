#pragma once

#include "bench/batch.hpp"
#include "bench/ceiling.hpp"
#include "bench/options.hpp"
#include "bench/ping_pong.hpp"
#include "bench/record.hpp"
#include "ferry/group.hpp"

namespace ferry::bench {

// What one rank brings home. Ceiling and ping-pong are complete on rank 0.
struct RankRun {
  RankRecord record;
  Ceiling ceiling;
  PingPong ping_pong;
};

// The configuration of the exchange that `options` ask for.
[[nodiscard]] ExchangeConfig make_config(const BenchOptions& options,
                                         const Batch& batch,
                                         Device device);

// Threads that one rank of this exchange uses; CPU engine.
[[nodiscard]] int threads_per_rank(const BenchOptions& options, int num_local_ranks);

// Collective. Warm-up and timed iterations of route, dispatch and combine, each behind a barrier
// that is not timed; in low-latency mode also dispatch and combine back to back, and the bare
// ping-pong. Where operations run ahead of the host, many of them at once as well, or as graphs in
// low-latency mode. With --check the last iteration's outputs are poisoned before it and compared
// after it.
[[nodiscard]] RankRun run_rank(const BenchOptions& options,
                               const Batch& batch,
                               const Group& group,
                               bool has_progress);

}  // namespace ferry::bench
