#include "attend/checkpoint/gguf/gguf_header.h"

#include <gtest/gtest.h>

#include "attend/checkpoint/gguf/gguf_file.h"
#include "tests/support/gguf_bytes.h"
#include "tests/support/test_files.h"

namespace attend {
namespace {

using test::bytes_of;
using test::expect_error;
using test::GgufBytes;
using test::TempDir;

constexpr uint32_t kF32 = 0, kQ4_0 = 2, kIq2Xxs = 16;

std::optional<GgufHeader> parse(const std::string& bytes) {
  return parse_gguf_header(bytes, bytes.size(), "some.gguf");
}

void expect_corrupt(const std::string& bytes, std::initializer_list<std::string_view> parts) {
  expect_error(ErrorCode::kCorruptFile, {"some.gguf"}, [&] { parse(bytes); });
  expect_error(ErrorCode::kCorruptFile, parts, [&] { parse(bytes); });
}

GgufBytes one_tensor(const std::vector<uint64_t>& extents, uint32_t type, size_t num_bytes) {
  return GgufBytes().tensor("w", extents, type, std::string(num_bytes, 'x'));
}

TEST(GgufHeader, ReturnsMetadataAndTensors) {
  const std::string bytes = GgufBytes()
                                .add("general.architecture", "llama")
                                .add("number", uint32_t{7})
                                .add("large", ~uint64_t{0})
                                .add("real", 1.5f)
                                .add("flag", true)
                                .add("numbers", std::vector<int32_t>{1, -2})
                                .add("texts", std::vector<std::string>{"a", ""})
                                .tensor("w", {32, 3}, kQ4_0, std::string(54, 'x'))
                                .tensor("v", {2}, kF32, bytes_of({1.f, 2.f}))
                                .bytes();
  const GgufFile file(bytes, "some.gguf");
  EXPECT_EQ(file.text("general.architecture"), "llama");
  EXPECT_EQ(file.find_integer("number"), 7);
  EXPECT_EQ(std::get<uint64_t>(*file.find("large")), ~uint64_t{0});
  EXPECT_EQ(file.find_number("real"), 1.5);
  EXPECT_EQ(file.find_number("number"), 7.0);
  EXPECT_EQ(file.find_boolean("flag"), true);
  EXPECT_THAT(file.find_integers("numbers").value(), testing::ElementsAre(1, -2));
  EXPECT_THAT(*file.find_texts("texts"), testing::ElementsAre("a", ""));
  EXPECT_EQ(file.find("none"), nullptr);
  const GgufTensorInfo& w = *file.find_tensor("w");
  EXPECT_EQ(w.type->name, "Q4_0");
  EXPECT_THAT(w.shape, testing::ElementsAre(3, 32));
  EXPECT_EQ(w.end - w.begin, 54u);
  EXPECT_THAT(file.read_numbers(*file.find_tensor("v")), testing::ElementsAre(1.0, 2.0));
}

TEST(GgufHeader, ReportsThatMoreBytesAreNeeded) {
  const std::string bytes = GgufBytes().add("a", "text").tensor("w", {2}, kF32, bytes_of({1.f, 2.f})).bytes();
  const size_t header_bytes = GgufBytes().add("a", "text").tensor("w", {2}, kF32, "").header().size();
  for (size_t size = 0; size < header_bytes; ++size)
    EXPECT_FALSE(parse_gguf_header(bytes.substr(0, size), bytes.size(), "some.gguf")) << size;
  EXPECT_TRUE(parse_gguf_header(bytes.substr(0, header_bytes), bytes.size(), "some.gguf"));
}

TEST(GgufHeader, RejectsATruncatedFile) {
  const std::string bytes = GgufBytes().add("a", "text").tensor("w", {2}, kF32, bytes_of({1.f, 2.f})).bytes();
  for (size_t size = 0; size + 32 - 8 < bytes.size(); ++size) {
    SCOPED_TRACE(size);
    expect_corrupt(bytes.substr(0, size), {"some.gguf"});
  }
}

TEST(GgufHeader, RejectsAnotherMagicAndVersion) {
  expect_corrupt("GGML" + std::string(20, '\0'), {"magic", "GGML", "GGUF"});
  GgufBytes file;
  for (const uint32_t version : {0u, 1u, 4u}) {
    file.version = version;
    expect_error(ErrorCode::kUnsupported, {"version " + std::to_string(version), "2 and 3"},
                 [&] { parse(file.bytes()); });
  }
  file.version = 3u << 24;
  expect_error(ErrorCode::kUnsupported, {"big-endian"}, [&] { parse(file.bytes()); });
  file.version = 2;
  EXPECT_TRUE(parse(file.bytes()));
}

TEST(GgufHeader, RejectsCountsBeyondTheFile) {
  for (const uint64_t count : {uint64_t{5}, uint64_t{1} << 40, ~uint64_t{0}}) {
    std::string bytes = GgufBytes().bytes();
    std::memcpy(bytes.data() + 8, &count, sizeof count);
    expect_corrupt(bytes, {"number of tensors " + std::to_string(count)});
    bytes = GgufBytes().bytes();
    std::memcpy(bytes.data() + 16, &count, sizeof count);
    expect_corrupt(bytes, {"number of metadata fields " + std::to_string(count)});
  }
}

TEST(GgufHeader, RejectsLengthsBeyondTheFile) {
  for (const uint64_t length : {uint64_t{1000}, uint64_t{1} << 63, ~uint64_t{0}}) {
    const std::string number = GgufBytes::raw(length);
    expect_corrupt(GgufBytes().field("key", 8, number + "text").bytes(), {"\"key\"", std::to_string(length)});
    for (const uint32_t type : {0u, 8u, 10u})
      expect_corrupt(GgufBytes().field("key", 9, GgufBytes::raw(type) + number).bytes(),
                     {"\"key\"", "number of elements " + std::to_string(length)});
  }
  std::string bytes = GgufBytes().add("key", true).bytes();
  const uint64_t length = uint64_t{1} << 63;
  std::memcpy(bytes.data() + 24, &length, sizeof length);
  expect_corrupt(bytes, {"metadata field 0", "9223372036854775808"});
}

TEST(GgufHeader, RejectsValuesThatItsTypesDoNotHave) {
  expect_corrupt(GgufBytes().field("key", 13, "").bytes(), {"\"key\"", "type 13", "0 to 12"});
  expect_corrupt(GgufBytes().field("key", 7, "\x02").bytes(), {"\"key\"", "boolean 2"});
  expect_corrupt(GgufBytes().field("key", 9, GgufBytes::raw(99u) + GgufBytes::raw(uint64_t{0})).bytes(),
                 {"\"key\"", "elements", "type 99"});
  expect_error(ErrorCode::kUnsupported, {"\"key\"", "arrays of arrays"}, [] {
    parse(GgufBytes().field("key", 9, GgufBytes::raw(9u) + GgufBytes::raw(uint64_t{0})).bytes());
  });
}

TEST(GgufHeader, RejectsNamesThatOccurTwice) {
  expect_corrupt(GgufBytes().add("key", true).add("key", true).bytes(), {"\"key\"", "twice"});
  expect_corrupt(GgufBytes().tensor("w", {1}, kF32, "1234").tensor("w", {1}, kF32, "1234").bytes(),
                 {"\"w\"", "twice"});
  expect_corrupt(GgufBytes().add("", true).bytes(), {"empty key"});
}

TEST(GgufHeader, RejectsAnAlignmentThatIsNotAPowerOfTwo) {
  for (const uint32_t alignment : {0u, 4u, 24u, 1u << 31})
    expect_corrupt(GgufBytes().add("general.alignment", alignment).bytes(),
                   {"general.alignment", std::to_string(alignment), "power of two"});
  expect_corrupt(GgufBytes().add("general.alignment", "32").bytes(), {"general.alignment", "power of two"});
}

TEST(GgufHeader, UsesTheAlignmentOfTheFile) {
  GgufBytes file;
  file.alignment = 64;
  file.add("general.alignment", uint32_t{64});
  file.tensor("v", {1}, kF32, "1234").tensor("w", {1}, kF32, "5678");
  const std::string bytes = file.bytes();
  const GgufHeader header = parse(bytes).value();
  EXPECT_EQ(header.data_begin % 64, 0u);
  EXPECT_EQ(header.tensors[1].begin, 64u);
  EXPECT_EQ(bytes.substr(header.data_begin + 64, 4), "5678");
}

TEST(GgufHeader, RejectsShapesThatDoNotFit) {
  expect_corrupt(one_tensor({}, kF32, 4).bytes(), {"\"w\"", "0 dimensions", "1 to 4"});
  expect_corrupt(one_tensor({1, 1, 1, 1, 1}, kF32, 4).bytes(), {"\"w\"", "5 dimensions"});
  expect_corrupt(one_tensor({0}, kF32, 4).bytes(), {"\"w\"", "dimension 0 of 0"});
  for (const uint64_t extent : {uint64_t{1} << 62, uint64_t{1} << 63, ~uint64_t{0}})
    expect_corrupt(one_tensor({extent, 4}, kF32, 4).bytes(), {"\"w\"", "2^63"});
  expect_corrupt(one_tensor({uint64_t{1} << 62}, kF32, 4).bytes(), {"\"w\"", "2^64 bytes"});
  expect_corrupt(one_tensor({48}, kQ4_0, 27).bytes(), {"\"w\"", "48", "multiple of 32", "Q4_0"});
}

TEST(GgufHeader, RejectsATypeThatTheFormatDoesNotHave) {
  for (const uint32_t type : {4u, 38u, 1000u})
    expect_corrupt(one_tensor({32}, type, 4).bytes(), {"\"w\"", "type " + std::to_string(type), "Q4_K"});
  EXPECT_TRUE(parse(one_tensor({256}, kIq2Xxs, 66).bytes())) << "not supported, but known";
}

TEST(GgufHeader, RejectsOffsetsOutsideOfTheData) {
  expect_corrupt(GgufBytes().tensor_at("w", {1}, kF32, 4, "12341234").bytes(),
                 {"\"w\"", "offset 4", "alignment 32"});
  expect_corrupt(GgufBytes().tensor_at("w", {1}, kF32, 32, "1234").bytes(),
                 {"\"w\"", "32 to 36", "truncated"});
  expect_corrupt(GgufBytes().tensor_at("w", {1}, kF32, ~uint64_t{0} - 1, "1234").bytes(),
                 {"\"w\"", "2^64 bytes"});
}

TEST(GgufHeader, RejectsTensorsThatOverlap) {
  expect_corrupt(
      GgufBytes().tensor("v", {9}, kF32, std::string(64, 'x')).tensor_at("w", {1}, kF32, 32, "").bytes(),
      {"\"w\"", "32 to 36", "overlap", "\"v\"", "0 to 36"});
  expect_corrupt(GgufBytes().tensor("v", {1}, kF32, "1234").tensor_at("w", {1}, kF32, 0, "").bytes(),
                 {"overlap"});
}

TEST(GgufFile, RejectsFieldsOfOtherTypes) {
  const GgufFile file(GgufBytes().add("text", "a").add("number", uint32_t{7}).add("real", 1.5f).bytes(),
                      "some.gguf");
  expect_error(ErrorCode::kCorruptFile, {"some.gguf", "\"text\"", "\"a\"", "an integer"},
               [&] { (void)file.find_integer("text"); });
  expect_error(ErrorCode::kCorruptFile, {"\"number\"", "7", "a string"}, [&] { (void)file.text("number"); });
  expect_error(ErrorCode::kCorruptFile, {"\"none\"", "missing"}, [&] { (void)file.text("none"); });
  expect_error(ErrorCode::kCorruptFile, {"\"real\"", "1.5", "boolean"},
               [&] { (void)file.find_boolean("real"); });
  expect_error(ErrorCode::kCorruptFile, {"\"real\"", "array of strings"},
               [&] { (void)file.find_texts("real"); });
  expect_error(ErrorCode::kCorruptFile, {"\"text\"", "array of numbers"},
               [&] { (void)file.find_numbers("text"); });
}

GgufBytes split(uint16_t index, uint16_t count) {
  return GgufBytes().add("split.no", index).add("split.count", count);
}

TEST(GgufFile, OpensAllPartsOfASplitFile) {
  const TempDir dir;
  const auto path = dir.write("m-00001-of-00002.gguf", split(0, 2).bytes());
  expect_error(ErrorCode::kNotFound, {"m-00002-of-00002.gguf", "missing part"},
               [&] { open_gguf_files(path); });
  const auto second = dir.write("m-00002-of-00002.gguf", split(1, 2).bytes());
  EXPECT_EQ(open_gguf_files(path).size(), 2u);
  expect_error(ErrorCode::kNotFound, {"-00001-of-00002.gguf"}, [&] { open_gguf_files(second); });
  dir.write("m-00002-of-00002.gguf", split(0, 2).bytes());
  expect_error(ErrorCode::kCorruptFile, {"split.no", "expected 1"}, [&] { open_gguf_files(path); });
}

TEST(GgufFile, RejectsASplitFileWithAnotherNumberOfTensors) {
  const TempDir dir;
  dir.write("m-00002-of-00002.gguf", split(1, 2).bytes());
  const auto write = [&](int32_t count) {
    return dir.write("m-00001-of-00002.gguf", split(0, 2).add("split.tensors.count", count).bytes());
  };
  EXPECT_EQ(open_gguf_files(write(0)).size(), 2u);
  expect_error(ErrorCode::kCorruptFile, {"split.tensors.count\" 3", "expected 0"},
               [&] { open_gguf_files(write(3)); });
}

TEST(GgufFile, ReadsAHeaderThatIsLargerThanTheFirstRead) {
  const TempDir dir;
  const std::vector<std::string> texts(1 << 18, "token");
  const auto path = dir.write("large.gguf", GgufBytes().add("texts", texts).add("last", uint32_t{3}).bytes());
  const GgufFile file(path);
  EXPECT_EQ(file.find_texts("texts")->size(), texts.size());
  EXPECT_EQ(file.find_integer("last"), 3);
}

}  // namespace
}  // namespace attend
