#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/unique_fd.hpp"
#include "boot/socket_store.hpp"

namespace ferry::boot::test {

enum class Place { kThreads, kUnix, kTcp, kTcpInsecure };

// A deadline for what must succeed: long enough for a loaded machine under a sanitizer.
inline constexpr std::chrono::milliseconds kLong{60000};
// A deadline that is meant to pass.
inline constexpr std::chrono::milliseconds kShort{200};

inline constexpr const char* kSecret = "a secret that all ranks of the test know";

// A port of 127.0.0.1 that nobody has at the moment.
[[nodiscard]] int free_port();
// An address that no other test and no other process uses.
[[nodiscard]] std::string fresh_address(Place place);
[[nodiscard]] Meeting make_meeting(const std::string& address,
                                   int rank,
                                   int size,
                                   std::chrono::milliseconds timeout = kLong);

// Runs body(rank) on a thread per rank and joins them. What a body threw, by rank; "" for nothing.
[[nodiscard]] std::vector<std::string> run_ranks(int size, const std::function<void(int)>& body);

// Opens one store per rank, each on its own thread; fails the test where one does not open.
[[nodiscard]] std::vector<std::unique_ptr<Store>> open_group(Place place, int size);

// The same as "invalid argument: message".
[[nodiscard]] std::string error_of(const std::function<void()>& body);

// A connection of somebody who speaks no protocol. Writes as much of `bytes` as goes.
[[nodiscard]] UniqueFd connect_stranger(const std::string& address, const std::string& bytes = "");
// Waits until the other end has closed; what it sent before.
[[nodiscard]] std::string read_to_end(int fd);

// Waits for a condition that another thread makes true.
[[nodiscard]] bool becomes_true(const std::function<bool()>& condition);

}  // namespace ferry::boot::test
