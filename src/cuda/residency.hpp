#pragma once

// Blocks that wait for peers hold a multiprocessor each. If those of all exchanges of all ranks on
// a GPU are not there at once, one that waits can keep out the one that it waits for.
namespace ferry::cuda {

// A share of this process's waiting blocks on one GPU, held as long as the object lives.
class WaitingBlocks {
 public:
  WaitingBlocks() = default;
  WaitingBlocks(int device, int num_blocks);
  WaitingBlocks(WaitingBlocks&& other) noexcept;
  WaitingBlocks& operator=(WaitingBlocks&& other) noexcept;
  ~WaitingBlocks();

  // Of all exchanges of this process.
  [[nodiscard]] static int on_device(int device);

 private:
  int device_ = 0;
  int num_blocks_ = 0;
};

}  // namespace ferry::cuda
