#include "attend/tensor/dlpack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <numeric>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/support/error_message.h"

namespace attend {
namespace {

using ::testing::HasSubstr;
using testing_support::error_message;

// The offsets of the C structs are part of the ABI shared with other libraries.
static_assert(sizeof(dlpack::DLTensor) == 48 && offsetof(dlpack::DLTensor, shape) == 24 &&
              offsetof(dlpack::DLTensor, byte_offset) == 40);
static_assert(sizeof(dlpack::DLManagedTensor) == 64 && offsetof(dlpack::DLManagedTensor, deleter) == 56);
static_assert(sizeof(dlpack::DLManagedTensorVersioned) == 80 &&
              offsetof(dlpack::DLManagedTensorVersioned, flags) == 24 &&
              offsetof(dlpack::DLManagedTensorVersioned, dl_tensor) == 32);

// Foreign int32 tensor [2, 3, 4] with elements 0 to 23, which counts how often it was deleted.
template <class Managed>
struct Producer {
  std::vector<int32_t> values = std::vector<int32_t>(24);
  std::array<int64_t, 3> shape{2, 3, 4};
  std::array<int64_t, 3> strides{12, 4, 1};
  int num_deleted = 0;
  Managed managed{};

  Producer() {
    std::iota(values.begin(), values.end(), 0);
    managed.dl_tensor = {.data = values.data(),
                         .device = {dlpack::kCpu, 0},
                         .ndim = 3,
                         .dtype = {dlpack::kInt, 32, 1},
                         .shape = shape.data(),
                         .strides = strides.data(),
                         .byte_offset = 0};
    managed.manager_ctx = this;
    managed.deleter = [](Managed* self) { ++static_cast<Producer*>(self->manager_ctx)->num_deleted; };
    if constexpr (std::is_same_v<Managed, dlpack::DLManagedTensorVersioned>) managed.version = {1, 1};
  }
  Producer(const Producer&) = delete;
};

template <class Managed>
Managed* export_as(const Tensor& tensor) {
  if constexpr (std::is_same_v<Managed, dlpack::DLManagedTensorVersioned>)
    return to_dlpack_versioned(tensor);
  else
    return to_dlpack(tensor);
}

std::string unsupported_message(const dlpack::DLTensor& tensor) {
  return error_message(ErrorCode::kUnsupported, [&] { to_view(tensor); });
}

template <class Managed>
class DLPack : public testing::Test {};
struct ManagedName {
  template <class Managed>
  static std::string GetName(int) {
    return std::is_same_v<Managed, dlpack::DLManagedTensor> ? "unversioned" : "versioned";
  }
};
using BothStructs = testing::Types<dlpack::DLManagedTensor, dlpack::DLManagedTensorVersioned>;
TYPED_TEST_SUITE(DLPack, BothStructs, ManagedName);

TYPED_TEST(DLPack, ImportsWithoutACopyAndDeletesOnceWithTheLastTensor) {
  Producer<TypeParam> producer;
  {
    Tensor first = from_dlpack(&producer.managed);
    EXPECT_EQ(first.view().to_string(), "int32[2, 3, 4] on cpu");
    EXPECT_EQ(first.as<int32_t>(), producer.values.data());
    const Tensor second = first;
    first = Tensor();
    EXPECT_EQ(producer.num_deleted, 0);
  }
  EXPECT_EQ(producer.num_deleted, 1);
}

TYPED_TEST(DLPack, ImportsATensorWithoutADeleter) {
  Producer<TypeParam> producer;
  producer.managed.deleter = nullptr;
  { EXPECT_EQ(from_dlpack(&producer.managed).view().num_elements(), 24); }
  EXPECT_EQ(producer.num_deleted, 0);
}

TYPED_TEST(DLPack, TreatsNullStridesAsRowMajor) {
  Producer<TypeParam> producer;
  producer.managed.dl_tensor.strides = nullptr;
  EXPECT_TRUE(to_view(producer.managed.dl_tensor).is_contiguous());
  producer.strides = {4, 8, 1};  // transposed view: rows of two matrices alternate
  producer.managed.dl_tensor.strides = producer.strides.data();
  const TensorView view = to_view(producer.managed.dl_tensor);
  EXPECT_EQ(*view[1][2][3].template as<int32_t>(), 1 * 4 + 2 * 8 + 3);
}

TYPED_TEST(DLPack, AddsTheByteOffset) {
  Producer<TypeParam> producer;
  producer.shape = {2, 2, 4};
  producer.managed.dl_tensor.strides = nullptr;
  producer.managed.dl_tensor.byte_offset = 8 * sizeof(int32_t);
  const Tensor tensor = from_dlpack(&producer.managed);
  EXPECT_EQ(tensor.as<int32_t>(), producer.values.data() + 8);
}

TYPED_TEST(DLPack, SupportsScalars) {
  Producer<TypeParam> producer;
  producer.managed.dl_tensor.ndim = 0;
  producer.managed.dl_tensor.shape = nullptr;
  producer.managed.dl_tensor.strides = nullptr;
  EXPECT_EQ(to_view(producer.managed.dl_tensor).num_elements(), 1);
}

TYPED_TEST(DLPack, DoesNotAcquireOwnershipOnRejection) {
  Producer<TypeParam> producer;
  producer.managed.dl_tensor.dtype = {dlpack::kInt, 16, 1};
  EXPECT_THROW(from_dlpack(&producer.managed), Error);
  EXPECT_EQ(producer.num_deleted, 0);
}

TYPED_TEST(DLPack, ExportsShapeAndStridesAndKeepsTheStorageUntilDeleted) {
  TypeParam* managed = nullptr;
  std::weak_ptr<void> storage;
  {
    const Tensor tensor = Tensor::zeros({4, 6}, DType::kBF16);
    storage = tensor.storage();
    managed = export_as<TypeParam>(Tensor(tensor.view().transpose(0, 1), tensor.storage()));
    EXPECT_EQ(managed->dl_tensor.data, tensor.view().data);
  }
  const dlpack::DLTensor& out = managed->dl_tensor;
  EXPECT_EQ(out.ndim, 2);
  EXPECT_EQ(out.shape[0], 6);
  EXPECT_EQ(out.shape[1], 4);
  EXPECT_EQ(out.strides[0], 1);
  EXPECT_EQ(out.strides[1], 6);
  EXPECT_EQ(out.dtype.code, dlpack::kBfloat);
  EXPECT_EQ(out.dtype.bits, 16);
  EXPECT_EQ(out.dtype.lanes, 1);
  EXPECT_EQ(out.device.device_type, dlpack::kCpu);
  EXPECT_EQ(out.byte_offset, 0u);
  EXPECT_FALSE(storage.expired());
  managed->deleter(managed);
  EXPECT_TRUE(storage.expired());
}

TYPED_TEST(DLPack, EveryDtypeSurvivesTheRoundTrip) {
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kF8E5M2, DType::kI32,
                      DType::kI64, DType::kU8, DType::kU64, DType::kI8}) {
    const Tensor tensor = Tensor::zeros({3, 5}, dtype);
    const Tensor back = from_dlpack(export_as<TypeParam>(tensor));
    EXPECT_EQ(back.dtype(), dtype);
    EXPECT_EQ(back.view().data, tensor.view().data);
    EXPECT_EQ(back.view().to_string(), tensor.view().to_string());
  }
}

TEST(DLPackVersioned, ExportsAVersionThatItAccepts) {
  dlpack::DLManagedTensorVersioned* managed = to_dlpack_versioned(Tensor::zeros({1}, DType::kF32));
  EXPECT_EQ(managed->version.major, 1u);
  EXPECT_EQ(managed->flags, 0u);
  EXPECT_EQ(from_dlpack(managed).view().num_elements(), 1);
}

TEST(DLPackVersioned, RejectsAnotherMajorVersionWithoutAcquiringOwnership) {
  Producer<dlpack::DLManagedTensorVersioned> producer;
  producer.managed.version = {2, 0};
  EXPECT_EQ(error_message(ErrorCode::kUnsupported, [&] { from_dlpack(&producer.managed); }),
            "DLPack version 2.0: expected 1.x");
  EXPECT_EQ(producer.num_deleted, 0);
}

TEST(DLPackVersioned, RejectsReadOnlyMemoryWithoutAcquiringOwnership) {
  Producer<dlpack::DLManagedTensorVersioned> producer;
  producer.managed.flags = dlpack::kFlagReadOnly;
  EXPECT_THAT(error_message(ErrorCode::kUnsupported, [&] { from_dlpack(&producer.managed); }),
              HasSubstr("read-only"));
  EXPECT_EQ(producer.num_deleted, 0);
}

TEST(DLPackView, NamesTheDtypeThatItRejects) {
  Producer<dlpack::DLManagedTensor> producer;
  dlpack::DLTensor& tensor = producer.managed.dl_tensor;
  tensor.dtype = {dlpack::kFloat, 64, 1};
  EXPECT_THAT(unsupported_message(tensor),
              HasSubstr("DLPack dtype float64: expected bfloat16, int32, float32, "));
  tensor.dtype = {dlpack::kFloat, 32, 4};
  EXPECT_THAT(unsupported_message(tensor), HasSubstr("DLPack dtype float32 in vectors of 4: expected"));
  tensor.dtype = {6, 8, 1};  // kDLBool
  EXPECT_THAT(unsupported_message(tensor), HasSubstr("DLPack dtype bool: expected"));
  tensor.dtype = {8, 8, 1};  // kDLFloat8_e4m3: IEEE-like, not the OCP type
  EXPECT_THAT(unsupported_message(tensor), HasSubstr("DLPack dtype code 8 of 8 bits: expected"));
}

TEST(DLPackView, AcceptsHostAndCudaMemoryAndRejectsOtherDevices) {
  Producer<dlpack::DLManagedTensor> producer;
  dlpack::DLTensor& tensor = producer.managed.dl_tensor;
  tensor.device = {dlpack::kCuda, 3};
  EXPECT_EQ(to_view(tensor).device, (Device{DeviceType::kCuda, 3}));
  tensor.device = {dlpack::kCudaManaged, 1};
  EXPECT_EQ(to_view(tensor).device, (Device{DeviceType::kCuda, 1}));
  tensor.device = {dlpack::kCudaHost, 1};
  EXPECT_EQ(to_view(tensor).device, Device{});
  tensor.device = {10, 0};  // kDLROCM
  EXPECT_EQ(
      unsupported_message(tensor),
      "DLPack device type 10: expected memory of the CPU (1), CUDA (2), CUDA host (3) or CUDA managed (13)");
}

TEST(DLPackView, RejectsMoreDimensionsThanAViewHas) {
  Producer<dlpack::DLManagedTensor> producer;
  producer.managed.dl_tensor.ndim = 6;
  EXPECT_EQ(unsupported_message(producer.managed.dl_tensor), "DLPack tensor of rank 6: at most 5");
}

}  // namespace
}  // namespace attend
