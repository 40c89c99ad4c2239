// Tensors of quantized weights: the bit layouts of each format, and malformed tensors that are rejected.
#include "attend/model/weights/quantized/quantized_tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "attend/kernels/gemm/weights.h"
#include "tests/support/test_files.h"

namespace attend {
namespace {

using test::expect_error;
using test::TempDir;
using test::TestTensor;
using testing::ElementsAre;

template <class T>
TestTensor tensor(const std::string& name, const std::string& dtype, std::vector<int64_t> shape,
                  const std::vector<T>& values) {
  return {name, dtype, std::move(shape),
          std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T))};
}
TestTensor floats(const std::string& name, std::vector<int64_t> shape, const std::vector<float>& values) {
  return tensor(name, "F32", std::move(shape), values);
}
TestTensor repeated(const std::string& name, std::vector<int64_t> shape, uint32_t word) {
  const int64_t count = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  return tensor(name, "I32", shape, std::vector<uint32_t>(static_cast<size_t>(count), word));
}
TestTensor bytes(const std::string& name, const std::string& dtype, std::vector<int64_t> shape,
                 uint8_t byte) {
  const int64_t count = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  return {name, dtype, std::move(shape), std::string(static_cast<size_t>(count), static_cast<char>(byte))};
}

// A slot with one part, in a file of these tensors with names that start with "a".
class OnePart {
 public:
  OnePart(const std::vector<TestTensor>& tensors, const Quantization& quantization, int64_t rows,
          int64_t columns, const std::string& name = "a.weight")
      : OnePart(tensors, quantization, WeightSlot{.parts = {{name, rows}}, .columns = columns}) {}
  OnePart(const std::vector<TestTensor>& tensors, const Quantization& quantization, const WeightSlot& slot)
      : quantization_(quantization),
        files_((dir_.write("model.safetensors", test::safetensors_bytes(tensors)),
                open_checkpoint(dir_.path())->open_tensors())) {
    slots_.push_back(slot);
    quantization_.method = "a method";
    find_quantized_tensors(slots_, quantization_, *files_);
  }

  const WeightPart& part() const { return slots_.front().parts.front(); }
  bool is_copied() const { return copies_quantized_values(slots_.front(), part(), quantization_); }
  const Weight& weight() {
    check_part(slots_.front(), part(), quantization_, *files_);
    read_ = read_part(slots_.front(), part(), quantization_, *files_);
    Stream stream;
    kernels::require_weight_on(stream, "weight", read_.weight);
    return read_.weight;
  }
  std::vector<double> row(int64_t out, size_t count) {
    std::vector<double> all = kernels::reference::weight_row(weight(), out);
    all.resize(count);
    return all;
  }
  void expect_rejected(ErrorCode code, std::initializer_list<std::string_view> parts) {
    expect_error(code, parts, [&] { weight(); });
  }

 private:
  TempDir dir_;
  Quantization quantization_;
  std::shared_ptr<const CheckpointTensors> files_;
  std::vector<WeightSlot> slots_;
  LoadedPart read_;
};

constexpr Quantization kFp8 = {.storage = WeightStorage::kFp8};
constexpr Quantization kPacked = {.storage = WeightStorage::kPackedInt4, .group_ins = 32};
constexpr Quantization kAwq = {.storage = WeightStorage::kAwq, .group_ins = 32};
constexpr Quantization kGptq = {.storage = WeightStorage::kGptq, .group_ins = 32, .zeros_less_one = true};

std::vector<TestTensor> gptq(uint32_t zeros = 0x77777777) {
  return {repeated("a.qweight", {4, 8}, 0x87654321), repeated("a.qzeros", {1, 1}, zeros),
          floats("a.scales", {1, 8}, {0.5, 1, 2, 4, 8, 16, 32, 64})};
}
std::vector<TestTensor> awq() {
  return {repeated("a.qweight", {32, 1}, 0x86427531), repeated("a.qzeros", {1, 1}, 0x88888888),
          floats("a.scales", {1, 8}, std::vector<float>(8, 0.5f))};
}
std::vector<TestTensor> packed() {
  return {repeated("a.weight_packed", {2, 4}, 0x76543210), floats("a.weight_scale", {2, 1}, {1.0f, 0.5f})};
}
std::vector<TestTensor> fp8(const TestTensor& scale) {
  return {bytes("a.weight", "F8_E4M3", {4, 64}, 0x3c), scale};
}

// Two experts of 4 outputs and 64 inputs in one tensor. The codes of output o of expert e are 1.5 * 2^(e +
// o).
std::vector<TestTensor> shared_experts(const TestTensor& scale) {
  TestTensor codes = bytes("a", "F8_E4M3", {2, 64, 4}, 0);
  for (size_t i = 0; i < codes.data.size(); ++i)
    codes.data[i] = static_cast<char>(0x3c + 8 * (i / 256 + i % 4));
  return {codes, scale};
}
WeightSlot experts_slot() {
  return {.parts = {{"a", 8}}, .columns = 64, .layout = StoredLayout::kExpertColumns, .num_experts = 2};
}

std::vector<TestTensor> replacing(std::vector<TestTensor> tensors, const TestTensor& by) {
  std::erase_if(tensors, [&](const TestTensor& tensor) { return tensor.name == by.name; });
  tensors.push_back(by);
  return tensors;
}

TEST(QuantizedTensor, IsPlainWithoutQuantizedTensors) {
  OnePart plain({floats("a.weight", {2, 32}, std::vector<float>(64))}, kPacked, 2, 32);
  EXPECT_EQ(plain.part().storage, WeightStorage::kPlain);
  EXPECT_THAT(plain.part().tensor_names(), ElementsAre("a.weight"));
}

TEST(QuantizedTensor, ReadsGptqPackedByInputs) {
  OnePart first(gptq(), kGptq, 8, 32);
  EXPECT_THAT(first.row(0, 9), ElementsAre(-3.5, -3, -2.5, -2, -1.5, -1, -0.5, 0, -3.5));
  EXPECT_THAT(first.row(7, 2), ElementsAre(-448, -384));
  EXPECT_TRUE(first.weight().zeros.empty());
  Quantization second = kGptq;
  second.zeros_less_one = false;
  EXPECT_THAT(OnePart(gptq(0x88888888), second, 8, 32).row(0, 2), ElementsAre(-3.5, -3));
  // The zero point of output 1 is 3; words pack zero points along outputs.
  EXPECT_THAT(OnePart(gptq(0x88888838), second, 8, 32).row(1, 2), ElementsAre(-2, -1));
}

TEST(QuantizedTensor, ReadsAwqPackedByInterleavedOutputs) {
  OnePart part(awq(), kAwq, 8, 32);
  std::vector<double> first_inputs;
  for (int out = 0; out < 8; ++out) first_inputs.push_back(part.row(out, 1)[0]);
  EXPECT_THAT(first_inputs, ElementsAre(-3.5, -3, -2.5, -2, -1.5, -1, -0.5, 0));
  // Zero points are interleaved like codes: the one of output 2 is the second.
  OnePart zeros(replacing(awq(), repeated("a.qzeros", {1, 1}, 0x88888808)), kAwq, 8, 32);
  EXPECT_EQ(zeros.row(2, 1)[0], 1.5);
  EXPECT_EQ(zeros.row(1, 1)[0], -3);
}

TEST(QuantizedTensor, MapsPackedInt4InPlace) {
  OnePart part(packed(), kPacked, 2, 32);
  EXPECT_THAT(part.row(0, 9), ElementsAre(-8, -7, -6, -5, -4, -3, -2, -1, -8));
  EXPECT_THAT(part.row(1, 2), ElementsAre(-4, -3.5));
  // Zero points are packed along outputs and stored plus 8.
  std::vector<TestTensor> asymmetric = packed();
  asymmetric.push_back(repeated("a.weight_zero_point", {1, 1}, 0x000000a6));
  EXPECT_THAT(OnePart(asymmetric, kPacked, 2, 32).row(0, 2), ElementsAre(-6, -5));
  EXPECT_THAT(OnePart(asymmetric, kPacked, 2, 32).row(1, 2), ElementsAre(-5, -4.5));
}

constexpr Quantization kInt8 = {.storage = WeightStorage::kInt8};
constexpr Quantization kPackedInt8 = {.storage = WeightStorage::kPackedInt8, .group_ins = 32};
constexpr Quantization kGptqInt8 = {
    .storage = WeightStorage::kGptqInt8, .group_ins = 32, .zeros_less_one = true};

std::vector<TestTensor> int8(const TestTensor& scale) {
  return {bytes("a.weight", "I8", {4, 64}, 0xfd), scale};
}
std::vector<TestTensor> packed_int8() {
  return {repeated("a.weight_packed", {4, 16}, 0x827f8100),
          floats("a.weight_scale", {4, 2}, {1, 2, 3, 4, 5, 6, 7, 8})};
}
std::vector<TestTensor> gptq_int8(uint32_t zeros = 0x7f7f7f7f) {
  return {repeated("a.qweight", {16, 4}, 0x827f8100), repeated("a.qzeros", {2, 1}, zeros),
          floats("a.scales", {2, 4}, {1, 2, 3, 4, 5, 6, 7, 8})};
}

TEST(QuantizedTensor, MapsInt8InPlace) {
  OnePart channels(int8(floats("a.weight_scale", {4, 1}, {1, 2, 3, 4})), kInt8, 4, 64);
  EXPECT_THAT(channels.row(2, 2), ElementsAre(-9, -9));
  EXPECT_EQ(channels.weight().group_outs, 1);
  EXPECT_THAT(OnePart(int8(floats("a.weight_scale", {4}, {1, 2, 3, 4})), kInt8, 4, 64).row(3, 1),
              ElementsAre(-12));
  OnePart one(int8(floats("a.weight_scale", {1}, {2})), kInt8, 4, 64);
  EXPECT_THAT(one.row(3, 1), ElementsAre(-6));
  EXPECT_EQ(one.weight().group_outs, 4);
  Quantization groups = kInt8;
  groups.group_ins = 32;
  // 1 and 2 in bfloat16.
  OnePart grouped(int8(tensor<uint16_t>("a.weight_scale", "BF16", {4, 2},
                                        {0x3f80, 0x4000, 0x3f80, 0x4000, 0x3f80, 0x4000, 0x3f80, 0x4000})),
                  groups, 4, 64);
  const std::vector<double> row = grouped.row(1, 64);
  EXPECT_EQ(row[31], -3);
  EXPECT_EQ(row[32], -6);
  std::vector<TestTensor> symmetric = int8(floats("a.weight_scale", {1}, {2}));
  symmetric.push_back(bytes("a.weight_zero_point", "I8", {1}, 0));
  EXPECT_NO_THROW(OnePart(symmetric, kInt8, 4, 64).weight());
}

TEST(QuantizedTensor, UnpacksInt8Words) {
  OnePart inputs(packed_int8(), kPackedInt8, 4, 64);
  EXPECT_THAT(inputs.row(1, 5), ElementsAre(-384, 3, -3, 6, -384));
  EXPECT_EQ(inputs.row(1, 64)[34], -4);
  OnePart rows(gptq_int8(), kGptqInt8, 4, 64);
  EXPECT_THAT(rows.row(1, 5), ElementsAre(-256, 2, -2, 4, -256));
  EXPECT_EQ(rows.row(3, 64)[35], 16);
  Quantization second = kGptqInt8;
  second.zeros_less_one = false;
  EXPECT_THAT(OnePart(gptq_int8(0x80808080), second, 4, 64).row(0, 2), ElementsAre(-128, 1));
  std::vector<TestTensor> zeros = packed_int8();
  zeros.push_back(repeated("a.weight_zero_point", {1, 2}, 0x80808080));
  EXPECT_NO_THROW(OnePart(zeros, kPackedInt8, 4, 64).weight());
  std::vector<int32_t> groups(64);
  for (size_t i = 32; i < 64; ++i) groups[i] = 1;
  std::vector<TestTensor> in_order = gptq_int8();
  in_order.push_back(tensor("a.g_idx", "I32", {64}, groups));
  EXPECT_NO_THROW(OnePart(in_order, kGptqInt8, 4, 64).weight());
}

TEST(QuantizedTensor, RejectsUnsupportedInt8) {
  std::vector<TestTensor> zeros = int8(floats("a.weight_scale", {1}, {2}));
  zeros.push_back(bytes("a.weight_zero_point", "I8", {4, 1}, 0));
  OnePart(zeros, kInt8, 4, 64)
      .expect_rejected(ErrorCode::kCorruptFile, {"\"a.weight_zero_point\": shape [4, 1]: expected [1]"});
  zeros = int8(floats("a.weight_scale", {4, 1}, {1, 2, 3, 4}));
  zeros.push_back(bytes("a.weight_zero_point", "I8", {4, 1}, 3));
  OnePart(zeros, kInt8, 4, 64)
      .expect_rejected(ErrorCode::kUnsupported,
                       {"\"a.weight_zero_point\": the zero point of output 0, group 0, is 3",
                        "symmetric weights in 8 bits"});
  zeros = packed_int8();
  zeros.push_back(tensor<uint32_t>("a.weight_zero_point", "I32", {1, 2}, {0x80808080, 0x80808180}));
  OnePart(zeros, kPackedInt8, 4, 64)
      .expect_rejected(ErrorCode::kUnsupported, {"the zero point of output 1, group 1, is 1"});
  OnePart(gptq_int8(0x7f7f7e7f), kGptqInt8, 4, 64)
      .expect_rejected(ErrorCode::kUnsupported, {"\"a.qzeros\": the zero point of output 1, group 0, is -1"});
  std::vector<int32_t> groups(64);
  for (size_t i = 0; i < 64; ++i) groups[i] = i % 2 == 0;
  std::vector<TestTensor> reordered = gptq_int8();
  reordered.push_back(tensor("a.g_idx", "I32", {64}, groups));
  OnePart(reordered, kGptqInt8, 4, 64)
      .expect_rejected(ErrorCode::kUnsupported, {"\"a.g_idx\"", "attend supports act-order only in 4 bits"});
  OnePart(int8(floats("a.weight_scale", {2}, {1, 1})), kInt8, 4, 64)
      .expect_rejected(ErrorCode::kCorruptFile, {"\"a.weight_scale\": shape [2]: expected [1] or [4, 1]"});
  OnePart({bytes("a.weight", "U8", {4, 64}, 0), floats("a.weight_scale", {1}, {1})}, kInt8, 4, 64)
      .expect_rejected(ErrorCode::kUnsupported, {"\"a.weight\": dtype uint8: attend supports int8"});
  OnePart(replacing(gptq_int8(), floats("a.scales", {1, 4}, {1, 1, 1, 1})), kGptqInt8, 4, 64)
      .expect_rejected(ErrorCode::kCorruptFile, {"\"a.scales\": shape [1, 4]: expected [2, 4]"});
  OnePart(int8(floats("a.weight_scale", {1}, {std::numeric_limits<float>::quiet_NaN()})), kInt8, 4, 64)
      .expect_rejected(ErrorCode::kCorruptFile, {"\"a.weight_scale\": element 0 is NaN"});
  Quantization wide = kPackedInt8;
  wide.group_ins = 128;
  OnePart(packed_int8(), wide, 4, 64)
      .expect_rejected(ErrorCode::kCorruptFile,
                       {"groups of 128 inputs: expected a divisor of its number of inputs 64"});
}

// Inputs 0, 2, 4, .. belong to group 1, which has scale 2.
TEST(QuantizedTensor, KeepsActOrderInputsInPlace) {
  std::vector<int32_t> groups(64);
  for (size_t i = 0; i < 64; ++i) groups[i] = i % 2 == 0;
  const TestTensor index = tensor("a.g_idx", "I32", {64}, groups);
  Quantization reorders = kGptq;
  reorders.reorders = true;
  OnePart part({repeated("a.qweight", {8, 8}, 0x87654321), repeated("a.qzeros", {2, 1}, 0x77777777),
                floats("a.scales", {2, 8}, {1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2}), index},
               reorders, 8, 64);
  EXPECT_THAT(part.row(0, 9), ElementsAre(-14, -6, -10, -4, -6, -2, -2, 0, -14));
  const View<const int32_t> order = part.weight().input_order.span<const int32_t>();
  EXPECT_EQ(order[0], 1);
  EXPECT_EQ(order[32], 0);

  Quantization packed_groups = kPacked;
  packed_groups.reorders = true;
  OnePart same({repeated("a.weight_packed", {1, 8}, 0x76543210), floats("a.weight_scale", {1, 2}, {1, 2}),
                tensor("a.weight_g_idx", "I32", {64}, groups)},
               packed_groups, 1, 64);
  EXPECT_THAT(same.row(0, 4), ElementsAre(-16, -7, -12, -5));
}

TEST(QuantizedTensor, ReadsFp8AndItsScales) {
  EXPECT_THAT(OnePart(fp8(floats("a.weight_scale", {}, {2})), kFp8, 4, 64).row(3, 1), ElementsAre(3));
  EXPECT_THAT(OnePart(fp8(floats("a.weight_scale", {1}, {2})), kFp8, 4, 64).row(3, 1), ElementsAre(3));
  OnePart channels(fp8(floats("a.weight_scale", {4, 1}, {1, 2, 3, 4})), kFp8, 4, 64);
  EXPECT_THAT(channels.row(2, 1), ElementsAre(4.5));
  // 2 and 4 in bfloat16.
  OnePart blocks(fp8(tensor<uint16_t>("a.weight_scale_inv", "BF16", {1, 2}, {0x4000, 0x4080})),
                 {.storage = WeightStorage::kFp8, .group_ins = 32, .group_outs = 128}, 4, 64);
  const std::vector<double> row = blocks.row(0, 64);
  EXPECT_EQ(row[31], 3);
  EXPECT_EQ(row[32], 6);
}

// Mistral's files use this name for the scale of a tensor.
TEST(QuantizedTensor, ReadsFp8WithAScaleNamedLikeBlockScales) {
  OnePart part(fp8(floats("a.weight_scale_inv", {}, {2})), kFp8, 4, 64);
  EXPECT_THAT(part.part().tensor_names(), ElementsAre("a.weight_scale_inv", "a.weight"));
  EXPECT_THAT(part.row(3, 1), ElementsAre(3));
}

TEST(QuantizedTensor, ReadsStackedFp8Experts) {
  OnePart one(shared_experts(floats("a_weight_scale", {}, {2})), kFp8, experts_slot());
  EXPECT_THAT(one.part().tensor_names(), ElementsAre("a_weight_scale", "a"));
  EXPECT_THAT(one.row(0, 2), ElementsAre(3, 3));
  EXPECT_THAT(one.row(3, 1), ElementsAre(24));
  EXPECT_THAT(one.row(6, 1), ElementsAre(24));
  OnePart each(shared_experts(floats("a_weight_scale", {2, 1, 1}, {2, 4})), kFp8, experts_slot());
  EXPECT_THAT(each.row(1, 1), ElementsAre(6));
  EXPECT_THAT(each.row(5, 1), ElementsAre(24));
  // fbgemm stores the scales of down_proj in the second shape.
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{2, 1, 4}, std::vector<int64_t>{2, 4, 1}}) {
    OnePart outputs(shared_experts(floats("a_scale", shape, {1, 2, 3, 4, 5, 6, 7, 8})), kFp8, experts_slot());
    EXPECT_THAT(outputs.row(2, 1), ElementsAre(18));
    EXPECT_THAT(outputs.row(7, 1), ElementsAre(192));
  }
  // Scales of blocks have inputs first: [experts, blocks of inputs, blocks of outputs].
  const TestTensor scales = floats("a_scale_inv", {2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  for (const int64_t outs : {2, 3}) {
    OnePart blocks(shared_experts(scales),
                   {.storage = WeightStorage::kFp8, .group_ins = 32, .group_outs = outs}, experts_slot());
    EXPECT_EQ(blocks.weight().group_outs, outs == 2 ? 2 : 1);  // 3 does not divide an expert's outputs
    const std::vector<double> row = blocks.row(7, 64);
    EXPECT_EQ(row[31], 24 * 6);
    EXPECT_EQ(row[32], 24 * 8);
    EXPECT_EQ(blocks.row(1, 64)[32], 3 * 3);
    EXPECT_EQ(blocks.row(4, 64)[0], 3 * 5);
  }
}

TEST(QuantizedTensor, RejectsMalformedStackedFp8Experts) {
  OnePart(shared_experts(floats("a_weight_scale", {2, 2, 1}, {1, 1, 1, 1})), kFp8, experts_slot())
      .expect_rejected(
          ErrorCode::kCorruptFile,
          {"\"a_weight_scale\": shape [2, 2, 1]: expected [1], [2, 1, 1], [2, 1, 4] or [2, 4, 1]"});
  OnePart(shared_experts(floats("a_scale_inv", {2, 1, 2}, {1, 1, 1, 1})),
          {.storage = WeightStorage::kFp8, .group_ins = 32, .group_outs = 2}, experts_slot())
      .expect_rejected(ErrorCode::kCorruptFile, {"expected [2, 2, 2] of blocks of 2 x 32"});
  WeightSlot wide = experts_slot();
  wide.columns = 32;
  OnePart(shared_experts(floats("a_scale", {}, {1})), kFp8, wide)
      .expect_rejected(ErrorCode::kCorruptFile, {"\"a\": shape [2, 64, 4]: expected [2, 32, 4]"});
  OnePart({floats("a", {2, 64, 4}, std::vector<float>(512)), floats("a_scale", {}, {1})}, kFp8,
          experts_slot())
      .expect_rejected(ErrorCode::kUnsupported,
                       {"\"a\": dtype float32: attend supports fp8_e4m3 with a method"});
  OnePart({bytes("a", "F8_E4M3", {2, 64, 4}, 0x7f), floats("a_scale", {}, {1})}, kFp8, experts_slot())
      .expect_rejected(ErrorCode::kCorruptFile, {"\"a\": element 0 is NaN"});
}

TEST(QuantizedTensor, ReadsMxFp4ExpertsAndLayers) {
  const std::vector<TestTensor> experts = {bytes("a_blocks", "U8", {2, 3, 2, 16}, 0x21),
                                           bytes("a_scales", "U8", {2, 3, 2}, 126)};
  const WeightSlot slot = {
      .parts = {{"a", 6}}, .columns = 64, .layout = StoredLayout::kExpertColumns, .num_experts = 2};
  OnePart stacked(experts, {.storage = WeightStorage::kMxFp4, .group_ins = 32}, slot);
  EXPECT_EQ(stacked.weight().out_features(), 6);
  EXPECT_THAT(stacked.row(5, 2), ElementsAre(0.25, 0.5));
  OnePart layer({bytes("a.weight_packed", "U8", {2, 16}, 0xf7), bytes("a.weight_scale", "U8", {2, 1}, 127)},
                {.storage = WeightStorage::kPackedMxFp4, .group_ins = 32}, 2, 32);
  EXPECT_THAT(layer.row(1, 2), ElementsAre(6, -6));
}

// Weights of several formats in one file are distinguished by names, shapes and dtypes.
TEST(QuantizedTensor, UsesTheFirstMatchingFormat) {
  Quantization kinds = kGptq;
  kinds.others = {kGptqInt8, {.storage = WeightStorage::kGptq, .group_ins = 64, .zeros_less_one = true}};
  OnePart first(gptq(), kinds, 8, 32);
  EXPECT_EQ(first.part().kind, 0u);
  EXPECT_THAT(first.row(0, 2), ElementsAre(-3.5, -3));
  OnePart bytes_of_words(gptq_int8(), kinds, 4, 64);
  EXPECT_EQ(bytes_of_words.part().kind, 1u);
  EXPECT_THAT(bytes_of_words.row(1, 2), ElementsAre(-256, 2));
  OnePart wide({repeated("a.qweight", {8, 8}, 0x87654321), repeated("a.qzeros", {1, 1}, 0x77777777),
                floats("a.scales", {1, 8}, std::vector<float>(8, 1))},
               kinds, 8, 64);
  EXPECT_EQ(wide.part().kind, 2u);
  EXPECT_EQ(wide.weight().group_ins, 64);
  // If no format matches, the error compares the tensors with the first one.
  OnePart(replacing(gptq(), floats("a.scales", {3, 8}, std::vector<float>(24))), kinds, 8, 32)
      .expect_rejected(ErrorCode::kCorruptFile, {"\"a.scales\": shape [3, 8]: expected [1, 8]"});
  // Fp8 has the same name for scales, but not for words.
  Quantization fp8_first = kFp8;
  fp8_first.others = {kPacked};
  OnePart(replacing(packed(), floats("a.weight_scale", {2, 2}, {1, 1, 1, 1})), fp8_first, 2, 32)
      .expect_rejected(ErrorCode::kCorruptFile, {"\"a.weight_scale\": shape [2, 2]: expected [2, 1]"});
  fp8_first.others.front().has_zeros = true;
  EXPECT_EQ(OnePart(packed(), fp8_first, 2, 32).part().kind, 1u);

  // Equal names with another dtype, and other names.
  Quantization mixed = kFp8;
  mixed.others = {kInt8, kPacked};
  EXPECT_EQ(OnePart(fp8(floats("a.weight_scale", {}, {2})), mixed, 4, 64).part().kind, 0u);
  EXPECT_EQ(OnePart(int8(floats("a.weight_scale", {}, {2})), mixed, 4, 64).part().kind, 1u);
  EXPECT_EQ(OnePart(packed(), mixed, 2, 32).part().kind, 2u);
  EXPECT_EQ(OnePart({floats("a.weight", {2, 32}, std::vector<float>(64))}, mixed, 2, 32).part().storage,
            WeightStorage::kPlain);
}

// A tensor that the format requires and the file lacks is reported by name (check_tensors.h).
TEST(QuantizedTensor, RequiresTheTensorsOfItsFormat) {
  Quantization reorders = kGptq;
  reorders.reorders = true;
  EXPECT_THAT(OnePart(gptq(), reorders, 8, 32).part().tensor_names(),
              ElementsAre("a.qweight", "a.qzeros", "a.scales", "a.g_idx"));
  EXPECT_THAT(OnePart(gptq(), kGptq, 8, 32).part().tensor_names(),
              ElementsAre("a.qweight", "a.qzeros", "a.scales"));
  EXPECT_THAT(OnePart({repeated("a.weight_packed", {2, 4}, 0)}, kPacked, 2, 32).part().tensor_names(),
              ElementsAre("a.weight_packed", "a.weight_scale"));
  Quantization asymmetric = kPacked;
  asymmetric.has_zeros = true;
  EXPECT_THAT(OnePart(packed(), asymmetric, 2, 32).part().tensor_names(),
              ElementsAre("a.weight_packed", "a.weight_scale", "a.weight_zero_point"));
  asymmetric.storage = WeightStorage::kInt8;
  EXPECT_THAT(OnePart(int8(floats("a.weight_scale", {1}, {2})), asymmetric, 4, 64).part().tensor_names(),
              ElementsAre("a.weight_scale", "a.weight", "a.weight_zero_point"));
  EXPECT_THAT(OnePart({floats("a.weight_scale", {}, {1})}, kFp8, 2, 32).part().tensor_names(),
              ElementsAre("a.weight_scale", "a.weight"));
  // The missing tensor is listed first.
  const auto codes = [](const std::string& dtype) { return bytes("a.weight", dtype, {4, 64}, 1); };
  EXPECT_THAT(OnePart({codes("F8_E4M3")}, kFp8, 4, 64).part().tensor_names(),
              ElementsAre("a.weight_scale", "a.weight"));
  EXPECT_THAT(OnePart({codes("I8")}, kInt8, 4, 64).part().tensor_names(),
              ElementsAre("a.weight_scale", "a.weight"));
  EXPECT_EQ(OnePart({codes("I8")}, kFp8, 4, 64).part().storage, WeightStorage::kPlain);
  EXPECT_THAT(OnePart({floats("a.scales", {1, 8}, std::vector<float>(8))}, kAwq, 8, 32).part().tensor_names(),
              ElementsAre("a.qweight", "a.qzeros", "a.scales"));
  EXPECT_THAT(
      OnePart({floats("a.weight_scale", {}, {1}), floats("a.weight", {2, 32}, std::vector<float>(64))},
              kPacked, 2, 32)
          .part()
          .storage,
      WeightStorage::kPlain);
}

// Copied formats need memory in addition to the mapped file.
TEST(QuantizedTensor, ReportsWhichFormatsAreCopied) {
  EXPECT_FALSE(OnePart(fp8(floats("a.weight_scale", {}, {2})), kFp8, 4, 64).is_copied());
  EXPECT_TRUE(OnePart(shared_experts(floats("a_scale", {}, {2})), kFp8, experts_slot()).is_copied());
  EXPECT_FALSE(OnePart(int8(floats("a.weight_scale", {1}, {2})), kInt8, 4, 64).is_copied());
  EXPECT_TRUE(OnePart(packed_int8(), kPackedInt8, 4, 64).is_copied());
  EXPECT_TRUE(OnePart(gptq_int8(), kGptqInt8, 4, 64).is_copied());
  EXPECT_FALSE(OnePart(packed(), kPacked, 2, 32).is_copied());
  std::vector<TestTensor> reordered = packed();
  reordered.push_back(tensor("a.weight_g_idx", "I32", {32}, std::vector<int32_t>(32)));
  EXPECT_TRUE(OnePart(reordered, kPacked, 2, 32).is_copied());
  EXPECT_TRUE(OnePart(awq(), kAwq, 8, 32).is_copied());
}

// make_dummy_tensor() creates weights that kernels accept, distributed like other dummy weights.
TEST(QuantizedTensor, DummyWeightsExistInEachFormat) {
  for (const char* name : {"fp8", "fp8-block", "int8", "int4", "int4-g32", "mxfp4"}) {
    const Quantization quantization = dummy_quantization(name);
    std::vector<WeightSlot> slots = {
        {.parts = {{"a.weight", 200}}, .columns = 256},
        {.parts = {{"norm.weight", 256}}, .use = WeightUse::kNorm},
        {.parts = {{"gate.weight", 8}}, .columns = 256, .use = WeightUse::kRouter}};
    quantize_dummy_tensors(slots, quantization);
    EXPECT_EQ(slots[1].parts[0].storage, WeightStorage::kPlain);
    EXPECT_EQ(slots[2].parts[0].storage, WeightStorage::kPlain);
    const LoadedPart made = make_dummy_tensor(slots[0], slots[0].parts[0], quantization);
    Stream stream;
    kernels::require_weight_on(stream, name, made.weight);
    double squares = 0.0;
    for (const int64_t out : {0, 130, 199})
      for (const double weight : kernels::reference::weight_row(made.weight, out)) squares += weight * weight;
    const double deviation = std::sqrt(squares / (3 * 256));
    EXPECT_GT(deviation, 0.005) << name;
    EXPECT_LT(deviation, 0.08) << name;
  }
  expect_error(ErrorCode::kInvalidArgument,
               {"weight format 'int3'", "fp8, fp8-block, int8, int4, int4-g32, mxfp4"},
               [] { dummy_quantization("int3"); });
  std::vector<WeightSlot> narrow = {{.parts = {{"a.weight", 8}}, .columns = 96}};
  expect_error(ErrorCode::kUnsupported,
               {"a.weight has 96 inputs: expected a multiple of 128; weight format int4-g32 uses"},
               [&] { quantize_dummy_tensors(narrow, dummy_quantization("int4")); });
  quantize_dummy_tensors(narrow, dummy_quantization("int4-g32"));
  std::vector<WeightSlot> experts = {{.parts = {{"experts.up", 2 * 192}},
                                      .columns = 256,
                                      .layout = StoredLayout::kExpertColumns,
                                      .num_experts = 2}};
  expect_error(ErrorCode::kUnsupported, {"experts.up has experts of 192 outputs: expected a multiple of 128"},
               [&] { quantize_dummy_tensors(experts, dummy_quantization("fp8-block")); });
  quantize_dummy_tensors(experts, dummy_quantization("fp8"));
}

TEST(QuantizedTensor, RejectsTensorsOfAWrongShapeOrDType) {
  OnePart(replacing(gptq(), repeated("a.qweight", {8, 8}, 0)), kGptq, 8, 32)
      .expect_rejected(ErrorCode::kCorruptFile,
                       {"tensor \"a.qweight\": shape [8, 8]: expected [4, 8] according to config.json"});
  OnePart(replacing(gptq(), floats("a.scales", {2, 8}, std::vector<float>(16))), kGptq, 8, 32)
      .expect_rejected(ErrorCode::kCorruptFile, {"\"a.scales\": shape [2, 8]: expected [1, 8]"});
  OnePart(replacing(awq(), repeated("a.qzeros", {1, 2}, 0)), kAwq, 8, 32)
      .expect_rejected(ErrorCode::kCorruptFile, {"\"a.qzeros\": shape [1, 2]: expected [1, 1]"});
  OnePart(replacing(awq(), bytes("a.qweight", "U8", {32, 1}, 0)), kAwq, 8, 32)
      .expect_rejected(ErrorCode::kUnsupported, {"\"a.qweight\": dtype uint8: attend supports int32"});
  OnePart(replacing(packed(), floats("a.weight_scale", {2, 2}, {1, 1, 1, 1})), kPacked, 2, 32)
      .expect_rejected(ErrorCode::kCorruptFile, {"\"a.weight_scale\": shape [2, 2]: expected [2, 1]"});
  OnePart(fp8(floats("a.weight_scale", {2}, {1, 1})), kFp8, 4, 64)
      .expect_rejected(ErrorCode::kCorruptFile,
                       {"\"a.weight_scale\": shape [2]: expected [1] or [4, 1] according to config.json"});
  OnePart(fp8(floats("a.weight_scale_inv", {1, 1}, {1})),
          {.storage = WeightStorage::kFp8, .group_ins = 32, .group_outs = 32}, 4, 64)
      .expect_rejected(ErrorCode::kCorruptFile, {"shape [1, 1]: expected [1, 2] of blocks of 32 x 32"});
  std::vector<TestTensor> shaped = packed();
  shaped.push_back(tensor<int64_t>("a.weight_shape", "I64", {2}, {2, 40}));
  OnePart(shaped, kPacked, 2, 32)
      .expect_rejected(ErrorCode::kCorruptFile, {"\"a.weight_shape\": [2, 40]: expected [2, 32]"});
}

TEST(QuantizedTensor, RejectsMxFp4WithAWrongNumberOfExperts) {
  const WeightSlot three = {
      .parts = {{"a", 6}}, .columns = 64, .layout = StoredLayout::kExpertColumns, .num_experts = 3};
  OnePart({bytes("a_blocks", "U8", {2, 3, 2, 16}, 0), bytes("a_scales", "U8", {2, 3, 2}, 127)},
          {.storage = WeightStorage::kMxFp4, .group_ins = 32}, three)
      .expect_rejected(
          ErrorCode::kCorruptFile,
          {"\"a_blocks\": shape [2, 3, 2, 16]: expected [3, 2, 2, 16] according to config.json"});
}

TEST(QuantizedTensor, RejectsGroupsThatDoNotDivideTheInputs) {
  Quantization wide = kPacked;
  wide.group_ins = 64;
  OnePart(packed(), wide, 2, 32)
      .expect_rejected(
          ErrorCode::kCorruptFile,
          {"\"a.weight_packed\": groups of 64 inputs: expected a divisor of its number of inputs 32"});
  OnePart(packed(), kPacked, 2, 40)
      .expect_rejected(ErrorCode::kUnsupported, {"40 inputs: attend supports multiples of 32"});
}

TEST(QuantizedTensor, RejectsInvalidGroupIndices) {
  Quantization reorders = kGptq;
  reorders.reorders = true;
  const auto with_index = [&](std::vector<int32_t> groups) {
    std::vector<TestTensor> tensors = gptq();
    tensors.push_back(tensor("a.g_idx", "I32", {32}, groups));
    return tensors;
  };
  std::vector<int32_t> groups(32);
  EXPECT_NO_THROW(OnePart(with_index(groups), reorders, 8, 32).weight());
  groups[5] = 1;
  OnePart(with_index(groups), reorders, 8, 32)
      .expect_rejected(ErrorCode::kCorruptFile,
                       {"\"a.g_idx\": element 5 is 1: expected a group from 0 to 0"});
  Quantization two = {.storage = WeightStorage::kPackedInt4, .group_ins = 32, .reorders = true};
  OnePart({repeated("a.weight_packed", {1, 8}, 0), floats("a.weight_scale", {1, 2}, {1, 1}),
           tensor("a.weight_g_idx", "I32", {64}, std::vector<int32_t>(64))},
          two, 1, 64)
      .expect_rejected(ErrorCode::kCorruptFile, {"\"a.weight_g_idx\": group 0 has 64 inputs: expected 32"});
}

TEST(QuantizedTensor, RejectsNonFiniteValues) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  OnePart(replacing(packed(), floats("a.weight_scale", {2, 1}, {1, kNaN})), kPacked, 2, 32)
      .expect_rejected(ErrorCode::kCorruptFile, {"\"a.weight_scale\": element 1 is NaN"});
  OnePart(fp8(floats("a.weight_scale", {}, {std::numeric_limits<float>::infinity()})), kFp8, 4, 64)
      .expect_rejected(ErrorCode::kCorruptFile, {"\"a.weight_scale\": element 0 is infinite"});
  OnePart({bytes("a.weight", "F8_E4M3", {4, 64}, 0xff), floats("a.weight_scale", {}, {1})}, kFp8, 4, 64)
      .expect_rejected(ErrorCode::kCorruptFile, {"\"a.weight\": element 0 is NaN"});
  OnePart({bytes("a_blocks", "U8", {2, 1, 16}, 0), bytes("a_scales", "U8", {2, 1}, 255)},
          {.storage = WeightStorage::kMxFp4, .group_ins = 32}, 2, 32, "a")
      .expect_rejected(ErrorCode::kCorruptFile, {"\"a_scales\": element 0 is 255, which is NaN"});
  // 15 is ambiguous in the first format: some readers use 16, some writers mean 0.
  OnePart(gptq(0x7777f777), kGptq, 8, 32)
      .expect_rejected(ErrorCode::kUnsupported,
                       {"\"a.qzeros\": the zero point of output 3, group 0, is stored as 15"});
}

}  // namespace
}  // namespace attend
