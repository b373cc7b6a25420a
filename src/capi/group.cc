#include "ferry/group.hpp"

#include <fmt/format.h>

#include "capi/config.hpp"
#include "capi/guard.hpp"
#include "capi/handles.hpp"

using namespace ferry::capi;
using ferry::ErrorCode;
using ferry::Group;

namespace {

// Runs the caller's body for one thread rank and turns its status into an exception, which carries
// it past the join of the threads.
void run_body(ferry_rank_body body, void* user, Group group) {
  clear_failure();
  ferry_group handle{std::move(group)};
  const int rank = handle.group.rank();
  const ferry_status status = body(&handle, user);
  if (status == FERRY_OK) return;
  if (status == last_failure())
    ferry::throw_error(static_cast<ErrorCode>(status), ferry_last_error());
  FERRY_THROW(static_cast<ErrorCode>(status), "the body of rank {} returned status {} ({})", rank,
              status, ferry_status_name(status));
}

}  // namespace

ferry_status ferry_group_from_env(ferry_group** out_group) {
  return guard_new(__func__, {FERRY_REQUIRED(out_group)}, out_group,
                   [] { return new ferry_group{Group::from_env()}; });
}

ferry_status ferry_group_open(const ferry_group_config* config, ferry_group** out_group) {
  return guard_new(__func__, {FERRY_REQUIRED(config), FERRY_REQUIRED(out_group)}, out_group,
                   [&] { return new ferry_group{Group::open(to_config(config))}; });
}

int32_t ferry_group_is_launched(void) {
  try {
    return Group::is_launched() ? 1 : 0;
  } catch (...) {  // out of memory
    return 0;
  }
}

ferry_status ferry_group_self(ferry_group** out_group) {
  return guard_new(__func__, {FERRY_REQUIRED(out_group)}, out_group,
                   [] { return new ferry_group{Group::self()}; });
}

ferry_status ferry_group_run_threads(int32_t num_ranks,
                                     const ferry_group_config* config,
                                     ferry_rank_body body,
                                     void* user) {
  return guard(__func__, {FERRY_REQUIRED(body)}, [&] {
    Group::run_threads(
        num_ranks, [&](Group group) { run_body(body, user, std::move(group)); }, to_config(config));
  });
}

ferry_status ferry_group_rank(const ferry_group* group, int32_t* out_rank) {
  return guard(__func__, {FERRY_REQUIRED(group), FERRY_REQUIRED(out_rank)},
               [&] { *out_rank = group->group.rank(); });
}

ferry_status ferry_group_size(const ferry_group* group, int32_t* out_size) {
  return guard(__func__, {FERRY_REQUIRED(group), FERRY_REQUIRED(out_size)},
               [&] { *out_size = group->group.size(); });
}

ferry_status ferry_group_num_nodes(const ferry_group* group, int32_t* out_num_nodes) {
  return guard(__func__, {FERRY_REQUIRED(group), FERRY_REQUIRED(out_num_nodes)},
               [&] { *out_num_nodes = group->group.num_nodes(); });
}

ferry_status ferry_group_node(const ferry_group* group, int32_t* out_node) {
  return guard(__func__, {FERRY_REQUIRED(group), FERRY_REQUIRED(out_node)},
               [&] { *out_node = group->group.node(); });
}

ferry_status ferry_group_local_rank(const ferry_group* group, int32_t* out_local_rank) {
  return guard(__func__, {FERRY_REQUIRED(group), FERRY_REQUIRED(out_local_rank)},
               [&] { *out_local_rank = group->group.local_rank(); });
}

ferry_status ferry_group_node_of(const ferry_group* group, int32_t rank, int32_t* out_node) {
  return guard(__func__, {FERRY_REQUIRED(group), FERRY_REQUIRED(out_node)},
               [&] { *out_node = group->group.node_of(rank); });
}

ferry_status ferry_group_all_gather(const ferry_group* group,
                                    const void* bytes,
                                    size_t num_bytes,
                                    ferry_gathered** out_gathered) {
  return guard_new(
      __func__, {FERRY_REQUIRED(group), FERRY_REQUIRED(out_gathered)}, out_gathered, [&] {
        FERRY_CHECK(bytes != nullptr || num_bytes == 0, ErrorCode::kInvalidArgument,
                    "bytes is NULL, expected {} bytes as num_bytes says", num_bytes);
        return new ferry_gathered{
            group->group.all_gather({static_cast<const std::byte*>(bytes), num_bytes})};
      });
}

ferry_status ferry_gathered_from_rank(const ferry_gathered* gathered,
                                      int32_t rank,
                                      const void** out_bytes,
                                      size_t* out_num_bytes) {
  return guard(
      __func__,
      {FERRY_REQUIRED(gathered), FERRY_REQUIRED(out_bytes), FERRY_REQUIRED(out_num_bytes)}, [&] {
        const auto num_ranks = static_cast<std::int64_t>(gathered->by_rank.size());
        FERRY_CHECK(rank >= 0 && rank < num_ranks, ErrorCode::kInvalidArgument,
                    "rank is {}, expected 0..{}", rank, num_ranks - 1);
        const std::vector<std::byte>& from = gathered->by_rank[static_cast<std::size_t>(rank)];
        *out_bytes = from.data();
        *out_num_bytes = from.size();
      });
}

void ferry_gathered_free(ferry_gathered* gathered) { delete gathered; }

ferry_status ferry_group_barrier(const ferry_group* group) {
  return guard(__func__, {FERRY_REQUIRED(group)}, [&] { group->group.barrier(); });
}

ferry_status ferry_group_check(const ferry_group* group) {
  return guard(__func__, {FERRY_REQUIRED(group)}, [&] { group->group.check(); });
}

ferry_status ferry_group_leave(ferry_group* group) {
  return guard(__func__, {FERRY_REQUIRED(group)}, [&] { group->group.leave(); });
}

void ferry_group_free(ferry_group* group) { delete group; }
