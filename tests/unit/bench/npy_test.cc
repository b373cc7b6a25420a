#include "bench/npy.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "ferry/error.hpp"

namespace ferry::bench {
namespace {

// A .npy file as NumPy lays it out, with any header and data.
std::string npy(const std::string& header, const std::string& data, int major = 1) {
  std::string file = "\x93NUMPY";
  file += static_cast<char>(major);
  file += '\0';
  const int length_bytes = major == 1 ? 2 : 4;
  for (int i = 0; i < length_bytes; ++i) file += static_cast<char>(header.size() >> (8 * i) & 0xFF);
  return file + header + data;
}

std::string header_of(const std::string& descr, const std::string& shape) {
  return "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }   \n";
}

Recording parse(const std::string& file) {
  return parse_npy("r.npy", std::as_bytes(std::span(file)));
}

std::string refusal(const std::string& file) {
  try {
    static_cast<void>(parse(file));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "accepted";
}

std::string int16s(std::initializer_list<int> values) {
  std::string data;
  for (const int value : values) {
    data += static_cast<char>(value & 0xFF);
    data += static_cast<char>(value >> 8 & 0xFF);
  }
  return data;
}

TEST(ParseNpy, ReadsTokensByTopk) {
  const Recording recording =
      parse(npy(header_of("<i2", "(3, 2)"), int16s({0, 1, 300, -1, 59, 2})));

  EXPECT_EQ(recording.num_tokens, 3);
  EXPECT_EQ(recording.num_layers, 1);
  EXPECT_EQ(recording.top_k, 2);
  EXPECT_EQ(recording.max_id, 300);
  EXPECT_EQ(recording.ids, (std::vector<std::int32_t>{0, 1, 300, -1, 59, 2}));
}

TEST(ParseNpy, ReadsTokensByLayersByTopk) {
  const Recording recording = parse(npy(header_of("<i2", "(2, 2, 1)"), int16s({4, 5, 6, 7})));

  EXPECT_EQ(recording.num_tokens, 2);
  EXPECT_EQ(recording.num_layers, 2);
  EXPECT_EQ(recording.top_k, 1);
}

TEST(ParseNpy, ReadsEveryFormatVersionAndWidth) {
  for (const int major : {1, 2, 3})
    EXPECT_EQ(parse(npy(header_of("<i2", "(1, 1)"), int16s({7}), major)).max_id, 7);
  EXPECT_EQ(parse(npy(header_of("<i4", "(1, 1)"), std::string("\x07\0\0\0", 4))).max_id, 7);
  EXPECT_EQ(parse(npy(header_of("<i8", "(1, 1)"), std::string("\x07\0\0\0\0\0\0\0", 8))).max_id, 7);
  EXPECT_EQ(parse(npy(header_of("|u1", "(1, 1)"), "\xC8")).max_id, 200);
  EXPECT_EQ(parse(npy(header_of("<u2", "(1, 1)"), std::string("\x07\0", 2))).max_id, 7);
  EXPECT_EQ(parse(npy(header_of("<u4", "(1, 1)"), std::string("\x07\0\0\0", 4))).max_id, 7);
  EXPECT_EQ(parse(npy(header_of("<i8", "(1, 1)"), std::string(8, '\xFF'))).ids[0], -1);
}

TEST(ParseNpy, ReadsAFileWithoutTokens) {
  const Recording recording = parse(npy(header_of("<i2", "(0, 4)"), ""));

  EXPECT_EQ(recording.num_tokens, 0);
  EXPECT_EQ(recording.max_id, -1);
}

TEST(ParseNpy, AcceptsKeysInAnyOrderAndAnyQuotes) {
  const std::string header = "{\"shape\":(1,1,),\"fortran_order\" : False , \"descr\":\"<i2\"}";

  EXPECT_EQ(parse(npy(header, int16s({3}))).max_id, 3);
}

TEST(ParseNpy, RefusesWhatIsNotNpy) {
  EXPECT_EQ(refusal(""), "recording 'r.npy' is not a .npy file: it does not begin with \\x93NUMPY");
  EXPECT_EQ(refusal("PK\x03\x04 a zip of arrays"),
            "recording 'r.npy' is not a .npy file: it does not begin with \\x93NUMPY");
  EXPECT_EQ(refusal(npy("{}", "", 4)), "recording 'r.npy' is of .npy format 4, expected 1, 2 or 3");
}

TEST(ParseNpy, RefusesATruncatedFileAtEveryByte) {
  const std::string whole = npy(header_of("<i2", "(2, 2)"), int16s({0, 1, 2, 3}));

  for (std::size_t length = 0; length < whole.size(); ++length)
    EXPECT_NE(refusal(whole.substr(0, length)), "accepted") << length;

  EXPECT_EQ(refusal(whole.substr(0, whole.size() - 1)),
            "recording 'r.npy' is truncated: its shape needs 8 bytes of ids, 7 are there");
  EXPECT_EQ(refusal(whole.substr(0, 40)),
            "recording 'r.npy' is truncated: its header has 63 bytes, 30 are there");
}

TEST(ParseNpy, RefusesBytesLeftOver) {
  EXPECT_EQ(refusal(npy(header_of("<i2", "(1, 1)"), int16s({1, 2}))),
            "recording 'r.npy' has bytes left over: its shape needs 2 bytes of ids, 4 are there");
}

TEST(ParseNpy, RefusesForeignElements) {
  const std::string tail = ", expected little-endian integers (<i2, <i4, <i8, |u1, <u2 or <u4)";
  for (const char* descr : {">i2", "<f4", "|O", "<U8", "<c8", "|b1", "<u8", "i2", ""})
    EXPECT_EQ(refusal(npy(header_of(descr, "(1, 1)"), int16s({1}))),
              "recording 'r.npy' has elements of type '" + std::string(descr) + "'" + tail);
  EXPECT_EQ(
      refusal(npy("{'descr': [('a', '<i2')], 'fortran_order': False, 'shape': (1, 1)}", "..")),
      "recording 'r.npy' holds records or objects, expected plain integers");
}

TEST(ParseNpy, RefusesFortranOrder) {
  EXPECT_EQ(refusal(npy("{'descr': '<i2', 'fortran_order': True, 'shape': (1, 1)}", int16s({1}))),
            "recording 'r.npy' is in Fortran order, expected C order");
}

TEST(ParseNpy, RefusesOtherShapes) {
  EXPECT_EQ(
      refusal(npy(header_of("<i2", "()"), int16s({1}))),
      "recording 'r.npy' has 0 dimensions, expected [tokens, topk] or [tokens, layers, topk]");
  EXPECT_EQ(
      refusal(npy(header_of("<i2", "(1,)"), int16s({1}))),
      "recording 'r.npy' has 1 dimensions, expected [tokens, topk] or [tokens, layers, topk]");
  EXPECT_EQ(refusal(npy(header_of("<i2", "(1, 33)"), std::string(66, '\0'))),
            "recording 'r.npy' has 33 columns of top-k ids, expected 1 to 32");
  EXPECT_EQ(refusal(npy(header_of("<i2", "(1, 0)"), "")),
            "recording 'r.npy' has 0 columns of top-k ids, expected 1 to 32");
  EXPECT_EQ(refusal(npy(header_of("<i2", "(1, 0, 2)"), "")), "recording 'r.npy' has no layers");
}

TEST(ParseNpy, NeverTrustsAHugeShape) {
  EXPECT_EQ(refusal(npy(header_of("<i2", "(4611686018427387904, 4)"), int16s({1}))),
            "recording 'r.npy' has a shape beyond 64 bits of bytes");
  EXPECT_EQ(refusal(npy(header_of("<i2", "(99999999999999999999, 4)"), int16s({1}))),
            "recording 'r.npy' has an extent beyond 64 bits in its shape");
  EXPECT_EQ(
      refusal(npy(header_of("<i2", "(1000000000000, 4)"), int16s({1}))),
      "recording 'r.npy' is truncated: its shape needs 8000000000000 bytes of ids, 2 are there");
}

TEST(ParseNpy, NeverTrustsAHugeHeaderLength) {
  std::string file = npy("{}", "", 2);
  for (int i = 8; i < 12; ++i) file[static_cast<std::size_t>(i)] = '\xFF';

  EXPECT_EQ(refusal(file),
            "recording 'r.npy' claims a header of 4294967295 bytes, expected at most 65536");
}

TEST(ParseNpy, RefusesBrokenHeaders) {
  EXPECT_EQ(refusal(npy("", "")), "recording 'r.npy' has a header with '' where '{' is expected");
  EXPECT_EQ(refusal(npy("{'descr': '<i2'}", "")),
            "recording 'r.npy' has a header without 'fortran_order'");
  EXPECT_EQ(refusal(npy("{'a': 1}", "")),
            "recording 'r.npy' has a header with the unknown key 'a'");
  EXPECT_EQ(refusal(npy("{'descr': '<i2', 'descr': '<i2'}", "")),
            "recording 'r.npy' has a header with 'descr' twice");
  EXPECT_EQ(refusal(npy("{'descr': '<i2", "")),
            "recording 'r.npy' has a header with an open quote");
  EXPECT_EQ(refusal(npy("{'shape': (-1, 2)}", "")),
            "recording 'r.npy' has a header with '-1, 2)}' where a whole number is expected");
  EXPECT_EQ(refusal(npy("{'fortran_order': 0}", "")),
            "recording 'r.npy' has a header with '0}' where True or False is expected");
  EXPECT_EQ(refusal(npy(header_of("<i2", "(1, 1)") + "import os", int16s({1}))),
            "recording 'r.npy' has a header with 'import os' after its dictionary");
  EXPECT_EQ(refusal(npy(std::string("{\0\x1B[31m", 7) + std::string(60, 'x'), "")),
            "recording 'r.npy' has a header with '??[31mxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...' "
            "where a quoted word is expected");
}

TEST(ParseNpy, RefusesIdsThatNameNoExpert) {
  EXPECT_EQ(refusal(npy(header_of("<i2", "(2, 2)"), int16s({0, 1, 2, -2}))),
            "recording 'r.npy' names expert -2 for token 1, expected -1 or 0 to 4095");
  EXPECT_EQ(refusal(npy(header_of("<i2", "(1, 1)"), int16s({4096}))),
            "recording 'r.npy' names expert 4096 for token 0, expected -1 or 0 to 4095");
}

TEST(ReadNpy, SaysWhyAFileCannotBeRead) {
  try {
    static_cast<void>(read_npy("/nonexistent/r.npy"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kSystem);
    EXPECT_STREQ(error.what(),
                 "cannot open recording '/nonexistent/r.npy': No such file or directory");
  }
}

TEST(ReadNpy, RefusesWhatIsNoRegularFile) {
  for (const char* path : {"/dev/zero", "/proc/self"}) {
    try {
      static_cast<void>(read_npy(path));
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.what(), "recording '" + std::string(path) + "' is not a regular file");
    }
  }
}

TEST(ReadNpy, ReadsWhatParseReads) {
  const std::string path = testing::TempDir() + "read_npy_test.npy";
  std::ofstream(path, std::ios::binary) << npy(header_of("<i2", "(1, 2)"), int16s({8, 9}));

  const Recording recording = read_npy(path);
  std::remove(path.c_str());

  EXPECT_EQ(recording.ids, (std::vector<std::int32_t>{8, 9}));
}

}  // namespace
}  // namespace ferry::bench
