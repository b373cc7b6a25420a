#pragma once

#include <span>
#include <string>

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

// What a process tells the other ranks of its blocks on a GPU; the same from all its threads.
[[nodiscard]] std::string tell_waiting_blocks(const std::string& gpu,
                                              const std::string& process,
                                              int num_blocks);
// The blocks of all processes on `gpu`, from what every rank has told.
[[nodiscard]] int sum_waiting_blocks(const std::string& gpu, std::span<const std::string> told);

}  // namespace ferry::cuda
