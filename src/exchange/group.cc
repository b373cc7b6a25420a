#include "ferry/group.hpp"

#include <exception>
#include <mutex>
#include <thread>

#include "base/env.hpp"
#include "base/error.hpp"
#include "boot/launch_env.hpp"
#include "boot/secret.hpp"
#include "exchange/group_impl.hpp"

namespace ferry {

namespace {

std::shared_ptr<detail::GroupImpl> join(boot::Meeting meeting, const GroupConfig& config) {
  const detail::GroupImpl::Timeouts timeouts = detail::resolve_timeouts(config);
  meeting.timeout = timeouts.meeting;
  const int pretended = config.num_pretended_nodes > 0 ? config.num_pretended_nodes : env().nodes;
  return std::make_shared<detail::GroupImpl>(boot::open_store(meeting), pretended, timeouts);
}

}  // namespace

Group Group::from_env() {
  const std::optional<boot::Meeting> meeting = boot::read_launch_env(process_environment(), env());
  FERRY_CHECK(meeting.has_value(), ErrorCode::kInvalidArgument,
              "no launcher is seen in the environment; try: mpirun, torchrun or srun, or set "
              "FERRY_RANK, FERRY_SIZE and FERRY_ADDRESS");
  return Group(join(*meeting, {}));
}

bool Group::is_launched() { return boot::has_process_launcher(process_environment()); }

Group Group::open(const GroupConfig& config) {
  FERRY_CHECK(config.size >= 1 && config.rank >= 0 && config.rank < config.size,
              ErrorCode::kInvalidArgument, "group config: rank is {}, expected 0..{}", config.rank,
              config.size - 1);
  boot::Meeting meeting;
  meeting.rank = config.rank;
  meeting.size = config.size;
  meeting.address = config.address.empty() ? env().address : config.address;
  meeting.interface = env().interface;
  meeting.is_insecure = env().insecure;
  meeting.launcher = "GroupConfig";
  meeting.secret = config.secret.empty() ? boot::read_secret(env()) : config.secret;
  return Group(join(std::move(meeting), config));
}

Group Group::self() {
  return Group(std::make_shared<detail::GroupImpl>(std::move(boot::make_thread_stores(1).front()),
                                                   1, detail::resolve_timeouts({})));
}

void Group::run_threads(int num_ranks,
                        const std::function<void(Group)>& body,
                        const GroupConfig& config) {
  FERRY_CHECK(num_ranks >= 1, ErrorCode::kInvalidArgument,
              "run_threads needs at least one rank, got {}", num_ranks);
  std::vector<std::unique_ptr<boot::Store>> stores = boot::make_thread_stores(num_ranks);
  const int pretended = config.num_pretended_nodes > 0 ? config.num_pretended_nodes : env().nodes;
  std::mutex mutex;
  std::exception_ptr first;  // guarded by mutex
  std::vector<std::thread> threads;
  for (std::unique_ptr<boot::Store>& store : stores) {
    threads.emplace_back([&, own = &store] {
      try {
        body(Group(std::make_shared<detail::GroupImpl>(std::move(*own), pretended,
                                                       detail::resolve_timeouts(config))));
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

int Group::rank() const noexcept { return impl_->rank(); }
int Group::size() const noexcept { return impl_->size(); }
int Group::num_nodes() const noexcept { return impl_->nodes().num_nodes; }
int Group::node() const noexcept {
  return impl_->nodes().node_of[static_cast<std::size_t>(rank())];
}
int Group::local_rank() const noexcept {
  return impl_->nodes().local_rank_of[static_cast<std::size_t>(rank())];
}

int Group::node_of(int rank) const {
  FERRY_CHECK(rank >= 0 && rank < size(), ErrorCode::kInvalidArgument,
              "node_of: rank is {}, expected 0..{}", rank, size() - 1);
  return impl_->nodes().node_of[static_cast<std::size_t>(rank)];
}

std::vector<std::vector<std::byte>> Group::all_gather(std::span<const std::byte> bytes) const {
  impl_->check();
  const std::string_view own(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  std::vector<std::vector<std::byte>> out;
  for (const std::string& text :
       impl_->store().all_gather("all_gather", own, impl_->timeouts().deadlines.arrival)) {
    const auto* first = reinterpret_cast<const std::byte*>(text.data());
    out.emplace_back(first, first + text.size());
  }
  return out;
}

void Group::barrier() const {
  impl_->check();
  [[maybe_unused]] const auto ignored =
      impl_->store().all_gather("barrier", {}, impl_->timeouts().deadlines.arrival);
}

void Group::check() const { impl_->check(); }
void Group::leave() noexcept { impl_->leave(); }

}  // namespace ferry
