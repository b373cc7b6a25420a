#include "topo/nic_assignment.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "base/error.hpp"

namespace ferry::topo {

namespace {

using Distances = std::vector<std::vector<Distance>>;
using testing::ElementsAre;

int total(const Distances& distances, const std::vector<int>& nic_of) {
  int sum = 0;
  for (std::size_t gpu = 0; gpu < nic_of.size(); ++gpu)
    sum += static_cast<int>(distances[gpu][static_cast<std::size_t>(nic_of[gpu])]);
  return sum;
}

// The least sum over all injective assignments, by trying them all.
int least_by_trying(const Distances& distances, std::size_t num_nics) {
  std::vector<int> nics(num_nics);
  std::iota(nics.begin(), nics.end(), 0);
  int least = 1 << 20;
  do {
    least = std::min(
        least, total(distances,
                     {nics.begin(), nics.begin() + static_cast<std::ptrdiff_t>(distances.size())}));
  } while (std::next_permutation(nics.begin(), nics.end()));
  return least;
}

Distances random_distances(std::mt19937& random, std::size_t num_gpus, std::size_t num_nics) {
  std::uniform_int_distribution<int> pick(0, kNumDistances - 1);
  Distances distances(num_gpus, std::vector<Distance>(num_nics));
  for (auto& row : distances)
    for (auto& distance : row) distance = static_cast<Distance>(pick(random));
  return distances;
}

// Pairs of GPUs and NICs below four switches, as in GCP's A4.
Distances four_switches() {
  Distances distances(8, std::vector<Distance>(8, Distance::kSys));
  for (std::size_t gpu = 0; gpu < 8; ++gpu)
    for (std::size_t nic = 0; nic < 8; ++nic)
      if (gpu / 2 == nic / 2) distances[gpu][nic] = Distance::kPix;
  return distances;
}

}  // namespace

TEST(NicAssignment, GivesEachGpuOfASwitchANicOfItsOwn) {
  EXPECT_THAT(assign_nics(four_switches()), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(nearest_nics(four_switches()), ElementsAre(0, 0, 2, 2, 4, 4, 6, 6));
}

TEST(NicAssignment, LeavesTheNearestNicToTheGpuThatNeedsItMore) {
  const Distances distances = {{Distance::kPix, Distance::kPxb}, {Distance::kPix, Distance::kSys}};

  EXPECT_THAT(assign_nics(distances), ElementsAre(1, 0));
}

TEST(NicAssignment, SharesNicsOnlyWhenAllAreInUse) {
  const Distances distances(4, {Distance::kPix, Distance::kSys});

  const std::vector<int> nic_of = assign_nics(distances);

  EXPECT_EQ(std::count(nic_of.begin(), nic_of.end(), 0), 2);
  EXPECT_EQ(std::count(nic_of.begin(), nic_of.end(), 1), 2);
}

TEST(NicAssignment, SaysMinusOneWithoutNics) {
  EXPECT_THAT(assign_nics({{}, {}}), ElementsAre(-1, -1));
  EXPECT_TRUE(assign_nics({}).empty());
  EXPECT_THROW(static_cast<void>(assign_nics({{Distance::kPix}, {}})), Error);
}

TEST(NicAssignment, IsOneToOneAndLeastForRandomDistances) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const std::size_t num_gpus = 1 + random() % 5;
    const std::size_t num_nics = num_gpus + random() % 3;
    const Distances distances = random_distances(random, num_gpus, num_nics);

    const std::vector<int> nic_of = assign_nics(distances);

    ASSERT_EQ(std::set<int>(nic_of.begin(), nic_of.end()).size(), num_gpus) << "round " << round;
    ASSERT_EQ(total(distances, nic_of), least_by_trying(distances, num_nics)) << "round " << round;
  }
}

TEST(NicAssignment, SharesEvenlyForRandomDistances) {
  std::mt19937 random(8);
  for (int round = 0; round < 200; ++round) {
    const std::size_t num_nics = 1 + random() % 4;
    const std::size_t num_gpus = num_nics + random() % 8;

    const std::vector<int> nic_of = assign_nics(random_distances(random, num_gpus, num_nics));

    for (std::size_t nic = 0; nic < num_nics; ++nic) {
      const auto num = std::count(nic_of.begin(), nic_of.end(), static_cast<int>(nic));
      ASSERT_GE(num, static_cast<long>(num_gpus / num_nics)) << "round " << round;
      ASSERT_LE(num, static_cast<long>((num_gpus + num_nics - 1) / num_nics)) << "round " << round;
    }
  }
}

// Listing the NICs in another order may change which of several best assignments is taken, never
// how good it is.
TEST(NicAssignment, KeepsItsSumWhenNicsAreListedInAnotherOrder) {
  std::mt19937 random(9);
  for (int round = 0; round < 100; ++round) {
    const Distances distances = random_distances(random, 4, 5);
    std::vector<std::size_t> order(5);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::shuffle(order.begin(), order.end(), random);
    Distances shuffled(4, std::vector<Distance>(5));
    for (std::size_t gpu = 0; gpu < 4; ++gpu)
      for (std::size_t nic = 0; nic < 5; ++nic) shuffled[gpu][nic] = distances[gpu][order[nic]];

    ASSERT_EQ(total(shuffled, assign_nics(shuffled)), total(distances, assign_nics(distances)))
        << "round " << round;
  }
}

}  // namespace ferry::topo
