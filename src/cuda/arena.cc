#include "cuda/arena.hpp"

#include <unistd.h>

#include "base/error.hpp"
#include "base/human.hpp"
#include "base/unique_fd.hpp"
#include "boot/agree.hpp"
#include "cuda/check.hpp"
#include "cuda/driver.hpp"

namespace ferry::cuda {

namespace {

constexpr std::int64_t kUnit = 256;  // of allocate(): what kernels like to start at

CUmemAllocationProp shareable_memory(int device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  return properties;
}

std::int64_t granularity(int device) {
  const CUmemAllocationProp properties = shareable_memory(device);
  std::size_t bytes = 0;
  check_driver(driver().get_granularity(&bytes, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
               "granularity of shareable GPU memory");
  return static_cast<std::int64_t>(bytes);
}

}  // namespace

std::unique_ptr<DeviceMapping> DeviceMapping::create(int device, std::int64_t bytes, int* fd) {
  auto out = std::make_unique<DeviceMapping>();
  const std::int64_t unit = granularity(device);
  out->bytes_ = (bytes + unit - 1) / unit * unit;
  const CUmemAllocationProp properties = shareable_memory(device);
  CUmemGenericAllocationHandle handle = 0;
  const CUresult made =
      driver().create(&handle, static_cast<std::size_t>(out->bytes_), &properties, 0);
  if (made == CUDA_ERROR_OUT_OF_MEMORY) {
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    cudaMemGetInfo(&free_bytes, &total_bytes);
    FERRY_THROW(ErrorCode::kNoResource,
                "an arena of {} ({} bytes) does not fit: cuda:{} has {} free of {}; try: a smaller "
                "max_tokens, max_recv_rows or arena_bytes",
                human_bytes(out->bytes_), out->bytes_, device,
                human_bytes(static_cast<std::int64_t>(free_bytes)),
                human_bytes(static_cast<std::int64_t>(total_bytes)));
  }
  check_driver(made, "making shareable GPU memory");
  if (fd != nullptr)
    check_driver(driver().export_handle(fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                 "exporting GPU memory as a descriptor");
  out->map(handle, device);
  return out;
}

std::unique_ptr<DeviceMapping> DeviceMapping::open(int device, std::int64_t bytes, int fd) {
  auto out = std::make_unique<DeviceMapping>();
  const std::int64_t unit = granularity(device);
  out->bytes_ = (bytes + unit - 1) / unit * unit;
  CUmemGenericAllocationHandle handle = 0;
  check_driver(
      driver().import_handle(&handle, reinterpret_cast<void*>(static_cast<std::intptr_t>(fd)),
                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
      "importing a peer's GPU memory");
  out->map(handle, device);
  return out;
}

void DeviceMapping::map(unsigned long long handle, int device) {
  CUdeviceptr address = 0;
  const auto size = static_cast<std::size_t>(bytes_);
  check_driver(driver().reserve(&address, size, 0, 0, 0), "reserving address space");
  check_driver(driver().map(address, size, 0, handle, 0), "mapping GPU memory");
  // The mapping keeps the memory; the handle is not needed any more.
  check_driver(driver().release(handle), "releasing a handle");
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = device;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  check_driver(driver().set_access(address, size, &access, 1), "access to a peer's GPU memory");
  base_ = address;
}

DeviceMapping::~DeviceMapping() {
  if (base_ == 0) return;
  driver().unmap(base_, static_cast<std::size_t>(bytes_));
  driver().free_address(base_, static_cast<std::size_t>(bytes_));
}

Arena::Arena(const layout::ArenaLayout& layout, int rank)
    : rank_(rank),
      bytes_(layout.total_bytes),
      heap_bytes_(layout.heap_bytes),
      heap_(layout.heap, layout.heap_bytes, kUnit) {}

Arena Arena::open(boot::Store& store,
                  const layout::ArenaLayout& layout,
                  int device,
                  std::chrono::milliseconds timeout) {
  Arena arena(layout, store.rank());
  int fd = -1;
  std::unique_ptr<DeviceMapping> own;
  // A rank that fails still takes part, so that the others do not wait for it.
  const auto together = [&](const char* step, const std::optional<Error>& failure) {
    boot::throw_together(store, step, with_rank(failure, arena.rank_), timeout);
  };
  const std::optional<Error> failure =
      capture_error([&] { own = DeviceMapping::create(device, layout.total_bytes, &fd); });
  const UniqueFd exported(fd);
  together("exchange creation: GPU memory", failure);

  const std::vector<UniqueFd> fds =
      store.exchange_fds("exchange creation: GPU arenas", exported.get(), timeout);
  together(
      "exchange creation: peers' GPU memory", capture_error([&] {
        for (int peer = 0; peer < store.size(); ++peer) {
          if (peer == arena.rank_) {
            arena.mappings_.push_back(std::move(own));
            continue;
          }
          const UniqueFd& theirs = fds[static_cast<std::size_t>(peer)];
          FERRY_CHECK(theirs.is_open(), ErrorCode::kUnavailable,
                      "cannot map the arena of rank {}: it is on another host", peer);
          arena.mappings_.push_back(DeviceMapping::open(device, layout.total_bytes, theirs.get()));
        }
      }));
  return arena;
}

std::optional<std::int64_t> Arena::offset_of(const void* pointer,
                                             std::int64_t bytes) const noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  const auto start = reinterpret_cast<std::uintptr_t>(base());
  if (address < start || bytes < 0 || bytes > bytes_) return std::nullopt;
  const auto offset = static_cast<std::int64_t>(address - start);
  if (offset > bytes_ - bytes) return std::nullopt;
  return offset;
}

void* Arena::allocate(std::int64_t bytes) {
  FERRY_CHECK(!is_retired_, ErrorCode::kNoResource,
              "rank {}: the arena is retired after a fault and hands out no memory", rank_);
  FERRY_CHECK(bytes > 0, ErrorCode::kInvalidArgument, "allocate needs bytes > 0, got {}", bytes);
  const std::optional<std::int64_t> offset = heap_.allocate(bytes);
  FERRY_CHECK(
      offset.has_value(), ErrorCode::kNoResource,
      "rank {} has no {} ({} bytes) in one piece in its arena: the largest free piece is {} of {} "
      "bytes; try: a larger arena_bytes",
      rank_, human_bytes(bytes), bytes, heap_.largest_free_bytes(), heap_bytes_);
  return base() + *offset;
}

void Arena::deallocate(void* pointer) {
  const std::optional<std::int64_t> offset = offset_of(pointer, 0);
  const std::optional<std::int64_t> bytes = offset ? heap_.deallocate(*offset) : std::nullopt;
  FERRY_CHECK(bytes.has_value(), ErrorCode::kInvalidArgument,
              "rank {}: deallocate of {}, which allocate() did not return", rank_,
              fmt::ptr(pointer));
}

}  // namespace ferry::cuda
