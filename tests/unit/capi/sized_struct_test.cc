#include "capi/sized_struct.hpp"

#include <cstdint>
#include <vector>

#include "unit/capi/expect_error.hpp"

namespace ferry::capi {
namespace {

// What this library knows; older and newer programs hold the neighbours.
struct Known {
  std::size_t struct_bytes;
  std::int64_t first;
  std::int64_t second;
};
struct Older {
  std::size_t struct_bytes;
  std::int64_t first;
};
struct Newer {
  std::size_t struct_bytes;
  std::int64_t first;
  std::int64_t second;
  std::int64_t third;
};

// A caller's struct of another version, as the library sees it.
template <typename T>
Known* seen_as_known(T& value) {
  return reinterpret_cast<Known*>(&value);
}

TEST(ReadSized, CopiesAStructOfItsOwnSize) {
  const Known given{sizeof(Known), 1, 2};

  const Known got = read_sized("known", &given);

  EXPECT_EQ(got.first, 1);
  EXPECT_EQ(got.second, 2);
}

TEST(ReadSized, GivesDefaultsForNull) {
  const Known got = read_sized<Known>("known", nullptr);

  EXPECT_EQ(got.first, 0);
  EXPECT_EQ(got.second, 0);
}

TEST(ReadSized, GivesDefaultsForTheTailThatAnOlderStructLacks) {
  // The array behind the older struct is what a reader past its end would see.
  struct {
    Older older{sizeof(Older), 1};
    std::int64_t beyond = -1;
  } caller;

  const Known got = read_sized("known", seen_as_known(caller.older));

  EXPECT_EQ(got.first, 1);
  EXPECT_EQ(got.second, 0);
}

TEST(ReadSized, AcceptsANewerStructWhoseUnknownTailIsZero) {
  Newer given{sizeof(Newer), 1, 2, 0};

  const Known got = read_sized("known", seen_as_known(given));

  EXPECT_EQ(got.first, 1);
  EXPECT_EQ(got.second, 2);
}

TEST(ReadSized, RefusesANewerStructWhoseUnknownTailIsSet) {
  for (const int byte : {0, 3, 7}) {
    Newer given{sizeof(Newer), 1, 2, std::int64_t{1} << (8 * byte)};

    expect_error(ErrorCode::kUnavailable,
                 "known of 32 bytes sets fields beyond the 24 bytes that this library knows",
                 [&] { static_cast<void>(read_sized("known", seen_as_known(given))); });
  }
}

TEST(ReadSized, RefusesSizesThatNoVersionCanHave) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{7}, std::size_t{20}, std::size_t{23},
                                  std::size_t{4104}, SIZE_MAX - 7, SIZE_MAX}) {
    const Known given{bytes, 1, 2};

    expect_error(ErrorCode::kInvalidArgument,
                 "known.struct_bytes is " + std::to_string(bytes) +
                     ", expected sizeof(known), which is 24 in this library",
                 [&] { static_cast<void>(read_sized("known", &given)); });
  }
}

TEST(WriteSized, FillsAStructOfItsOwnSizeAndKeepsItsSizeField) {
  Known caller{sizeof(Known), -1, -1};

  write_sized("known", Known{0, 1, 2}, &caller);

  EXPECT_EQ(caller.struct_bytes, sizeof(Known));
  EXPECT_EQ(caller.first, 1);
  EXPECT_EQ(caller.second, 2);
}

TEST(WriteSized, WritesNothingBeyondAnOlderStruct) {
  struct {
    Older older{sizeof(Older), -1};
    std::int64_t beyond = -1;
  } caller;

  write_sized("known", Known{0, 1, 2}, seen_as_known(caller.older));

  EXPECT_EQ(caller.older.first, 1);
  EXPECT_EQ(caller.beyond, -1);
}

TEST(WriteSized, ZeroesWhatOnlyANewerStructHas) {
  Newer caller{sizeof(Newer), -1, -1, -1};

  write_sized("known", Known{0, 1, 2}, seen_as_known(caller));

  EXPECT_EQ(caller.second, 2);
  EXPECT_EQ(caller.third, 0);
}

TEST(WriteSized, TouchesNothingWhenTheSizeWasNotSet) {
  Known caller{0, -1, -1};

  expect_error(ErrorCode::kInvalidArgument,
               "known.struct_bytes is 0, expected sizeof(known), which is 24 in this library", [&] {
                 write_sized("known", Known{0, 1, 2}, &caller);
               });

  EXPECT_EQ(caller.first, -1);
  EXPECT_EQ(caller.second, -1);
}

}  // namespace
}  // namespace ferry::capi
