#include "bench/host_views.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <span>

namespace ferry::bench {
namespace {

using testing::ElementsAre;

// A GPU whose memory is the host's, and which counts what is copied.
class CountingDevice final : public BenchDevice {
 public:
  Device device() const noexcept override { return Device::cuda(0); }
  StreamRef stream() const noexcept override { return {}; }
  std::string name() const override { return "fake"; }
  int num_devices() const noexcept override { return 1; }
  std::shared_ptr<void> allocate(std::int64_t) override { return nullptr; }
  void copy(void* to, const void* from, std::int64_t bytes) override {
    ++num_copies;
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
  void fill(void*, unsigned char, std::int64_t) override {}
  void synchronize() override {}
  void start_clock() override {}
  std::int64_t stop_clock_ns() override { return 0; }
  bool runs_ahead() const noexcept override { return true; }
  DeviceGraphs* graphs() noexcept override { return nullptr; }
  Ceiling measure_ceiling(std::int64_t) override { return {}; }

  int num_copies = 0;
};

std::span<std::int64_t> numbers(const TensorView& view) {
  return {static_cast<std::int64_t*>(view.data), static_cast<std::size_t>(view.num_elements())};
}

TEST(HostViews, AreTheTensorsThemselvesOnTheCpu) {
  const std::unique_ptr<BenchDevice> host = make_host_device();
  std::int64_t memory[3] = {1, 2, 3};
  const TensorView tensor = TensorView::dense(memory, DType::kInt64, {3});
  HostViews views(*host);

  EXPECT_EQ(views.read(tensor).data, memory);
  EXPECT_EQ(views.open(tensor).data, memory);
}

TEST(HostViews, GoFromTheDeviceAndBack) {
  CountingDevice device;
  std::int64_t memory[3] = {1, 2, 3};
  const TensorView tensor = TensorView::dense(memory, DType::kInt64, {3}, device.device());
  HostViews views(device);

  const TensorView seen = views.read(tensor);
  EXPECT_EQ(seen.device, Device::cpu());
  EXPECT_THAT(numbers(seen), ElementsAre(1, 2, 3));
  numbers(seen)[1] = 7;
  EXPECT_EQ(memory[1], 2);
  views.write_back(tensor);

  EXPECT_THAT(memory, ElementsAre(1, 7, 3));
  EXPECT_EQ(device.num_copies, 2);
}

TEST(HostViews, GiveOneTensorOneCopy) {
  CountingDevice device;
  std::int64_t memory[2] = {1, 2};
  const TensorView tensor = TensorView::dense(memory, DType::kInt64, {2}, device.device());
  HostViews views(device);

  const TensorView seen = views.read(tensor);

  EXPECT_EQ(views.open(tensor).data, seen.data);
  EXPECT_EQ(views.read(tensor).data, seen.data);
  EXPECT_EQ(device.num_copies, 1);
}

// An empty list and the next one start at the same address.
TEST(HostViews, TellAnEmptyTensorFromItsNeighbour) {
  CountingDevice device;
  std::int64_t memory[2] = {5, 6};
  HostViews views(device);

  EXPECT_EQ(
      views.read(TensorView::dense(memory, DType::kInt64, {0}, device.device())).num_elements(), 0);
  EXPECT_THAT(numbers(views.read(TensorView::dense(memory, DType::kInt64, {2}, device.device()))),
              ElementsAre(5, 6));
}

TEST(HostViews, LeaveOutWhatIsNotGiven) {
  CountingDevice device;
  HostViews views(device);

  EXPECT_FALSE(views.read(TensorView()).is_given());
  EXPECT_EQ(device.num_copies, 0);
}

}  // namespace
}  // namespace ferry::bench
