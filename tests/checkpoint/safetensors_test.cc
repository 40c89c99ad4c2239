#include "attend/checkpoint/hf/safetensors.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <csignal>

#include "attend/checkpoint/mapped_range.h"
#include "tests/support/test_files.h"

namespace attend {
namespace {

using test::bytes_of;
using test::expect_error;
using test::safetensors_bytes;
using test::TempDir;
using test::TestTensor;

// Header of one F32 tensor "w" with these fields.
std::string header_with(std::string_view dtype, std::string_view shape, std::string_view offsets) {
  return R"({"w":{"dtype":)" + std::string(dtype) + R"(,"shape":)" + std::string(shape) +
         R"(,"data_offsets":)" + std::string(offsets) + "}}";
}

void expect_bad_header(std::string_view header, uint64_t data_bytes,
                       std::initializer_list<std::string_view> parts) {
  SCOPED_TRACE(header);
  expect_error(ErrorCode::kCorruptFile, {"some.safetensors"},
               [&] { parse_safetensors_header(header, data_bytes, "some.safetensors"); });
  expect_error(ErrorCode::kCorruptFile, parts,
               [&] { parse_safetensors_header(header, data_bytes, "some.safetensors"); });
}

TEST(SafetensorsFile, ReturnsEachTensorWithDtypeShapeAndValues) {
  const TempDir dir;
  const std::vector<TestTensor> tensors{
      {"f32", "F32", {2, 3}, bytes_of({1.f, 2.f, 3.f, 4.f, 5.f, 6.f})},
      {"i64", "I64", {1}, bytes_of({int64_t{-7}})},
      {"i32", "I32", {2}, bytes_of({int32_t{8}, int32_t{-9}})},
      {"f16", "F16", {1, 1}, bytes_of({uint16_t{0x3c00}})},
      {"bf16", "BF16", {1}, bytes_of({uint16_t{0x4000}})},
      {"e4m3", "F8_E4M3", {1}, bytes_of({uint8_t{0x38}})},
      {"e5m2", "F8_E5M2", {1}, bytes_of({uint8_t{0x3c}})},
      {"u8", "U8", {2}, bytes_of({uint8_t{250}, uint8_t{3}})},
  };
  const SafetensorsFile file(dir.write("a.safetensors", safetensors_bytes(tensors)));

  const Tensor f32 = file.tensor("f32");
  EXPECT_EQ(f32.view().to_string(), "float32[2, 3] on cpu");
  EXPECT_THAT(f32.span<float>(), testing::ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(file.tensor("i64").span<int64_t>(), testing::ElementsAre(-7));
  EXPECT_THAT(file.tensor("i32").span<int32_t>(), testing::ElementsAre(8, -9));
  EXPECT_EQ(static_cast<float>(*file.tensor("f16").as<F16>()), 1.0f);
  EXPECT_EQ(file.tensor("f16").view().rank, 2);
  EXPECT_EQ(static_cast<float>(*file.tensor("bf16").as<BF16>()), 2.0f);
  EXPECT_EQ(static_cast<float>(*file.tensor("e4m3").as<F8E4M3>()), 1.0f);
  EXPECT_EQ(static_cast<float>(*file.tensor("e5m2").as<F8E5M2>()), 1.0f);
  EXPECT_THAT(file.tensor("u8").span<uint8_t>(), testing::ElementsAre(250, 3));
}

TEST(SafetensorsFile, ViewsKeepTheMappingAlive) {
  const TempDir dir;
  const std::vector<TestTensor> tensors{{"w", "F32", {2}, bytes_of({1.5f, 2.5f})}};
  const auto path = dir.write("a.safetensors", safetensors_bytes(tensors));
  const Tensor tensor = SafetensorsFile(path).tensor("w");
  std::filesystem::remove(path);
  EXPECT_THAT(tensor.span<float>(), testing::ElementsAre(1.5f, 2.5f));
}

TEST(SafetensorsFile, ReturnsAViewOfAnAlignedTensor) {
  const TempDir dir;
  const std::vector<TestTensor> tensors{{"w", "F32", {1}, bytes_of({1.5f})}};
  const SafetensorsFile file(dir.write("a.safetensors", safetensors_bytes(tensors)));
  EXPECT_EQ(file.tensor("w").view().data, file.tensor("w").view().data);
}

TEST(SafetensorsFile, CopiesATensorThatIsNotAlignedToItsDtype) {
  const TempDir dir;
  const std::vector<TestTensor> tensors{{"odd", "U8", {3}, bytes_of({uint8_t{1}, uint8_t{2}, uint8_t{3}})},
                                        {"w", "F32", {2}, bytes_of({1.5f, 2.5f})}};
  const SafetensorsFile file(dir.write("a.safetensors", safetensors_bytes(tensors)));
  const Tensor tensor = file.tensor("w");
  EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.view().data) % alignof(float), 0u);
  EXPECT_THAT(tensor.span<float>(), testing::ElementsAre(1.5f, 2.5f));
}

TEST(SafetensorsFile, SupportsScalarsAndEmptyTensors) {
  const TempDir dir;
  const std::vector<TestTensor> tensors{
      {"nothing", "F32", {0, 4}, ""}, {"scalar", "F32", {}, bytes_of({3.f})}, {"no_more", "F32", {0}, ""}};
  const SafetensorsFile file(dir.write("a.safetensors", safetensors_bytes(tensors)));
  EXPECT_EQ(file.tensor("nothing").view().num_elements(), 0);
  EXPECT_EQ(file.tensor("scalar").view().rank, 0);
  EXPECT_EQ(*file.tensor("scalar").as<float>(), 3.0f);
  EXPECT_EQ(file.tensor("no_more").shape(0), 0);
}

TEST(SafetensorsFile, ReadsTensorBytesUpToTheEndOfTheFile) {
  const TempDir dir;
  const std::string w = bytes_of({int32_t{8}, int32_t{-9}});
  const std::vector<TestTensor> tensors{{"v", "U8", {1}, bytes_of({uint8_t{3}})}, {"w", "I32", {2}, w}};
  const std::filesystem::path path = dir.write("a.safetensors", safetensors_bytes(tensors));
  const SafetensorsFile file(path);
  EXPECT_EQ(file.read(*file.find("w")), w);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 3);
  EXPECT_EQ(file.read(*file.find("w")), w.substr(0, 5));
}

TEST(SafetensorsFile, FetchReportsEveryByteOfATensor) {
  const TempDir dir;
  const std::vector<TestTensor> tensors{{"small", "U8", {3}, "abc"},
                                        {"large", "U8", {40 << 20}, std::string(40 << 20, 'x')}};
  const SafetensorsFile file(dir.write("a.safetensors", safetensors_bytes(tensors)));
  size_t fetched = 0, calls = 0;
  const auto count = [&](size_t bytes) {
    fetched += bytes;
    ++calls;
  };
  file.fetch(*file.find("large"), 0, 40 << 20, count);
  EXPECT_EQ(fetched, size_t{40} << 20);
  EXPECT_GT(calls, 1u);
  fetched = calls = 0;
  file.fetch(*file.find("large"), 5, 12345, count);
  EXPECT_EQ(fetched, 12340u);
  EXPECT_EQ(calls, 1u);
  file.fetch(*file.find("large"), 7, 7, count);
  EXPECT_EQ(fetched, 12340u) << "an empty range";
  expect_error(ErrorCode::kInternal, {"bytes 2 to 4 of tensor \"small\", which has 3"},
               [&] { file.fetch(*file.find("small"), 2, 4, count); });
}

// A rank reads its part where the rest of the file is gone.
TEST(SafetensorsFile, FetchReadsNoPageOutsideItsRange) {
  const TempDir dir;
  const std::vector<TestTensor> tensors{{"w", "U8", {1 << 20}, std::string(1 << 20, 'x')}};
  const auto path = dir.write("a.safetensors", safetensors_bytes(tensors));
  const SafetensorsFile file(path);
  std::filesystem::resize_file(path, 1 << 19);
  size_t fetched = 0;
  // The range is there, so what it reports is that the file was written to.
  expect_error(ErrorCode::kCorruptFile, {"modified while"},
               [&] { file.fetch(*file.find("w"), 4096, 65536, [&](size_t bytes) { fetched += bytes; }); });
  EXPECT_EQ(fetched, 61440u);
  expect_error(ErrorCode::kCorruptFile, {"truncated"},
               [&] { file.fetch(*file.find("w"), (1 << 20) - 4096, 1 << 20, [](size_t) {}); });
}

TEST(SafetensorsFile, FetchRejectsAFileThatWasTruncatedAfterOpening) {
  const TempDir dir;
  const std::vector<TestTensor> tensors{{"w", "U8", {1 << 20}, std::string(1 << 20, 'x')}};
  const auto path = dir.write("a.safetensors", safetensors_bytes(tensors));
  const SafetensorsFile file(path);
  std::filesystem::resize_file(path, 4096);
  expect_error(ErrorCode::kCorruptFile, {"a.safetensors", "\"w\"", "truncated"},
               [&] { file.fetch(*file.find("w"), 0, file.find("w")->num_bytes(), [](size_t) {}); });
}

TEST(SafetensorsFile, FetchRejectsAFileThatWasModifiedAfterOpening) {
  const TempDir dir;
  const std::vector<TestTensor> tensors{{"w", "U8", {100}, std::string(100, 'x')}};
  const auto path = dir.write("a.safetensors", safetensors_bytes(tensors));
  const SafetensorsFile file(path);
  std::filesystem::last_write_time(path, std::filesystem::last_write_time(path) + std::chrono::seconds(1));
  expect_error(ErrorCode::kCorruptFile,
               {"a.safetensors", "modified while attend used it", "not modified while attend runs"},
               [&] { file.fetch(*file.find("w"), 0, file.find("w")->num_bytes(), [](size_t) {}); });
}

TEST(SafetensorsFile, KeepsReadingTheOpenedFileAfterItIsReplacedOrDeleted) {
  const TempDir dir;
  const std::vector<TestTensor> tensors{{"w", "U8", {3}, "abc"}}, others{{"w", "U8", {3}, "xyz"}};
  const auto path = dir.write("a.safetensors", safetensors_bytes(tensors));
  const SafetensorsFile file(path);
  std::filesystem::rename(dir.write("b.safetensors", safetensors_bytes(others)), path);
  file.fetch(*file.find("w"), 0, 3, [](size_t) {});
  EXPECT_THAT(file.tensor("w").span<uint8_t>(), testing::ElementsAre('a', 'b', 'c'));
  std::filesystem::remove(path);
  file.fetch(*file.find("w"), 0, 3, [](size_t) {});
  EXPECT_THAT(file.tensor("w").span<uint8_t>(), testing::ElementsAre('a', 'b', 'c'));
}

// Commands exit with an error if a file is truncated after it was loaded.
TEST(SafetensorsFileDeathTest, ExitsWithTheNameOfATruncatedFile) {
  const TempDir dir;
  const std::vector<TestTensor> tensors{{"w", "U8", {1 << 20}, std::string(1 << 20, 'x')}};
  const auto path = dir.write("a.safetensors", safetensors_bytes(tensors));
  const SafetensorsFile file(path);
  const Tensor tensor = file.tensor("w");
  std::filesystem::resize_file(path, 4096);
  const auto read_the_end = [&] {
    exit_on_truncated_mapping(2);
    volatile uint8_t last = tensor.span<uint8_t>()[(1 << 20) - 1];
    std::exit(last == 'x' ? 0 : 1);
  };
  EXPECT_EXIT(read_the_end(), testing::ExitedWithCode(2), "attend: .*a.safetensors: the file was truncated");
}

TEST(SafetensorsFileDeathTest, OtherBusErrorsKillTheProcess) {
  const auto raise_bus_error = [] {
    exit_on_truncated_mapping(2);
    raise(SIGBUS);
    raise(SIGBUS);
  };
  EXPECT_EXIT(raise_bus_error(), testing::KilledBySignal(SIGBUS), "");
}

TEST(SafetensorsFile, RejectsAPipe) {
  const TempDir dir;
  const auto path = dir.path() / "pipe.safetensors";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  expect_error(ErrorCode::kNotFound, {"pipe.safetensors", "regular file"}, [&] { SafetensorsFile{path}; });
}

TEST(SafetensorsFile, RejectsATensorThatDoesNotExist) {
  const TempDir dir;
  const std::vector<TestTensor> tensors{{"w", "F32", {1}, bytes_of({1.5f})}};
  const SafetensorsFile file(dir.write("a.safetensors", safetensors_bytes(tensors)));
  EXPECT_EQ(file.find("v"), nullptr);
  expect_error(ErrorCode::kNotFound, {"a.safetensors", "\"v\""}, [&] { file.tensor("v"); });
}

TEST(SafetensorsFile, RejectsOnlyTheTensorWithAnUnsupportedDtype) {
  const TempDir dir;
  const std::vector<TestTensor> tensors{{"mask", "BOOL", {2}, bytes_of({uint8_t{1}, uint8_t{0}})},
                                        {"w", "U8", {1}, "x"}};
  const SafetensorsFile file(dir.write("a.safetensors", safetensors_bytes(tensors)));
  EXPECT_EQ(file.tensor("w").shape(0), 1);
  expect_error(ErrorCode::kUnsupported, {"\"mask\"", "BOOL", "BF16"}, [&] { file.tensor("mask"); });
}

TEST(SafetensorsFile, RejectsOnlyTheTensorWithAnUnsupportedRank) {
  const TempDir dir;
  const std::vector<TestTensor> tensors{{"deep", "U8", {1, 1, 1, 1, 1, 1}, "x"}};
  const SafetensorsFile file(dir.write("a.safetensors", safetensors_bytes(tensors)));
  expect_error(ErrorCode::kUnsupported, {"\"deep\"", "rank 6", "at most 5"}, [&] { file.tensor("deep"); });
}

TEST(SafetensorsFile, RejectsAMissingFileAndAFolder) {
  const TempDir dir;
  expect_error(ErrorCode::kNotFound, {"none.safetensors", "no such file"},
               [&] { SafetensorsFile(dir.path() / "none.safetensors"); });
  expect_error(ErrorCode::kNotFound, {dir.path().string(), "regular file"},
               [&] { SafetensorsFile(dir.path()); });
}

TEST(SafetensorsFile, RejectsAFileShorterThanAHeaderLength) {
  const TempDir dir;
  for (const size_t size : {0, 1, 7})
    expect_error(ErrorCode::kCorruptFile, {"a.safetensors", "8 bytes"},
                 [&] { SafetensorsFile(dir.write("a.safetensors", std::string(size, '\0'))); });
}

TEST(SafetensorsFile, RejectsAHeaderLengthBeyondTheFile) {
  const TempDir dir;
  const std::string bytes = safetensors_bytes("{}", "");
  for (const uint64_t length : {uint64_t{3}, uint64_t{1} << 40, ~uint64_t{0}, ~uint64_t{0} - 7}) {
    std::string changed = bytes;
    std::memcpy(changed.data(), &length, sizeof length);
    expect_error(ErrorCode::kCorruptFile,
                 {"a.safetensors", "header length " + std::to_string(length), "at most 2"},
                 [&] { SafetensorsFile(dir.write("a.safetensors", changed)); });
  }
}

TEST(SafetensorsFile, RejectsAHeaderAboveTheLimitOfTheFormat) {
  const TempDir dir;
  const auto path = dir.write("a.safetensors", bytes_of({kMaxSafetensorsHeaderBytes + 1}));
  std::filesystem::resize_file(path, kMaxSafetensorsHeaderBytes + 100);  // sparse file
  expect_error(ErrorCode::kCorruptFile, {"header length 100000001", "at most 100000000"},
               [&] { SafetensorsFile{path}; });
}

TEST(SafetensorsFile, RejectsATruncatedFile) {
  const TempDir dir;
  const std::vector<TestTensor> tensors{{"w", "F32", {4}, bytes_of({1.f, 2.f, 3.f, 4.f})}};
  const std::string bytes = safetensors_bytes(tensors);
  for (size_t size = 8; size < bytes.size(); ++size)
    expect_error(ErrorCode::kCorruptFile, {"a.safetensors"},
                 [&] { SafetensorsFile(dir.write("a.safetensors", bytes.substr(0, size))); });
}

TEST(SafetensorsHeader, SortsTensorsByOffsetAndSkipsMetadata) {
  const auto entries = parse_safetensors_header(
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"U8","shape":[2],"data_offsets":[1,3]},)"
      R"("b":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}   )",
      3, "some.safetensors");
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].name, "b");
  EXPECT_EQ(entries[1].name, "a");
}

TEST(SafetensorsHeader, AcceptsAFileWithoutTensors) {
  EXPECT_TRUE(parse_safetensors_header("{}", 0, "some.safetensors").empty());
}

TEST(SafetensorsHeader, AcceptsSubByteTypesWhoseTensorFillsWholeBytes) {
  EXPECT_EQ(parse_safetensors_header(header_with(R"("F4")", "[2,3]", "[0,3]"), 3, "f")[0].dtype,
            std::nullopt);
  expect_bad_header(header_with(R"("F4")", "[3]", "[0,2]"), 2, {"\"w\"", "F4", "[3]", "1 and a part"});
}

TEST(SafetensorsHeader, RejectsAHeaderThatIsNotAJsonObject) {
  expect_bad_header("", 0, {"header", "JSON"});
  expect_bad_header("{", 0, {"header", "JSON"});
  expect_bad_header("{\"w\":}", 0, {"header", "JSON"});
  expect_bad_header("{}{}", 0, {"header", "JSON"});
  expect_bad_header("\xff\xfe", 0, {"header", "JSON"});
  expect_bad_header("[]", 0, {"header", "[]", "object"});
  expect_bad_header(std::string(100'000, '['), 0, {"header", "JSON"});
}

TEST(SafetensorsHeader, RejectsADuplicateTensor) {
  expect_bad_header(R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                    R"("w":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                    2, {"\"w\"", "twice"});
}

TEST(SafetensorsHeader, RejectsATensorThatIsNotAnObjectOrLacksAField) {
  expect_bad_header(R"({"w":3})", 0, {"\"w\"", "3", "object"});
  expect_bad_header(R"({"w":{"shape":[],"data_offsets":[0,1]}})", 1, {"\"w\"", "dtype", "missing"});
  expect_bad_header(R"({"w":{"dtype":"U8","data_offsets":[0,1]}})", 1, {"\"w\"", "shape", "missing"});
  expect_bad_header(R"({"w":{"dtype":"U8","shape":[]}})", 1, {"\"w\"", "data_offsets", "missing"});
}

TEST(SafetensorsHeader, RejectsADtypeThatTheFormatDoesNotHave) {
  expect_bad_header(header_with(R"("F33")", "[1]", "[0,4]"), 4, {"\"w\"", "\"F33\"", "F32", "BF16"});
  expect_bad_header(header_with("32", "[1]", "[0,4]"), 4, {"\"w\"", "dtype 32", "F32"});
}

TEST(SafetensorsHeader, RejectsAShapeThatIsNotAListOfSizes) {
  for (const char* shape : {"3", "{}", "[-1]", "[1.5]", "[\"1\"]", "[null]", "[9223372036854775808]"})
    expect_bad_header(header_with(R"("F32")", shape, "[0,4]"), 4, {"\"w\"", "shape", shape, "sizes"});
}

TEST(SafetensorsHeader, RejectsOffsetsThatAreNotAPair) {
  for (const char* offsets : {"4", "[0]", "[0,4,8]", "[-4,0]", "[0,4.5]", "[null,4]", "[\"0\",\"4\"]"})
    expect_bad_header(header_with(R"("F32")", "[1]", offsets), 4, {"\"w\"", offsets, "[begin, end]"});
}

TEST(SafetensorsHeader, RejectsOffsetsOutsideOfTheData) {
  expect_bad_header(header_with(R"("F32")", "[1]", "[4,8]"), 4, {"\"w\"", "[4,8]", "4,", "truncated"});
  expect_bad_header(header_with(R"("F32")", "[1]", "[4,0]"), 4, {"\"w\"", "[4,0]", "begin <= end"});
  expect_bad_header(header_with(R"("F32")", "[1]", "[0,18446744073709551615]"), 4, {"\"w\"", "begin <= end"});
}

TEST(SafetensorsHeader, RejectsASizeThatDoesNotMatchShapeAndDtype) {
  expect_bad_header(header_with(R"("F32")", "[2]", "[0,4]"), 4, {"\"w\"", "F32", "[2]", "need 8 bytes"});
  expect_bad_header(header_with(R"("F16")", "[1]", "[0,4]"), 4, {"\"w\"", "F16", "[1]", "need 2 bytes"});
  expect_bad_header(header_with(R"("F32")", "[0]", "[0,4]"), 4, {"\"w\"", "need 0 bytes"});
}

TEST(SafetensorsHeader, RejectsAShapeWithAnOverflowingSize) {
  expect_bad_header(header_with(R"("F32")", "[4294967296,4294967296]", "[0,0]"), 0,
                    {"\"w\"", "more than 2^64"});
  expect_bad_header(header_with(R"("F32")", "[0,4611686018427387904,4]", "[0,0]"), 0,
                    {"\"w\"", "more than 2^64"});
  // 2^62 + 1 elements of 4 bytes overflow to 4 bytes.
  expect_bad_header(header_with(R"("F32")", "[4611686018427387905]", "[0,4]"), 4,
                    {"\"w\"", "more than 2^64"});
}

TEST(SafetensorsHeader, RejectsTensorsThatOverlap) {
  expect_bad_header(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                    R"("b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
                    6, {"\"b\"", "2 to 6", "overlap", "\"a\"", "0 to 4"});
  expect_bad_header(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                    R"("b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
                    4, {"overlap"});
}

TEST(SafetensorsHeader, RejectsBytesThatBelongToNoTensor) {
  expect_bad_header(header_with(R"("U8")", "[2]", "[1,3]"), 3, {"\"w\"", "0 to 1", "no tensor"});
  expect_bad_header(header_with(R"("U8")", "[2]", "[0,2]"), 3, {"3 bytes", "end at 2"});
}

TEST(SafetensorsHeader, RejectsMetadataOtherThanStrings) {
  expect_bad_header(R"({"__metadata__":3})", 0, {"__metadata__", "strings"});
  expect_bad_header(R"({"__metadata__":{"a":1}})", 0, {"__metadata__", "strings"});
}

}  // namespace
}  // namespace attend
