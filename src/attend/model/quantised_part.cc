#include "attend/model/quantised_part.h"

#include <algorithm>
#include <array>
#include <string>

#include "attend/base/error.h"
#include "attend/base/parallel.h"
#include "attend/kernels/gemm/weights.h"
#include "attend/model/check_finite.h"
#include "attend/model/four_bit_codes.h"
#include "attend/model/fp8_experts.h"
#include "attend/model/int8_part.h"
#include "attend/model/part_files.h"

namespace attend {
namespace {

// Inputs that kernels read at once.
constexpr int64_t kInputUnit = 32;
constexpr int kMxFp4GroupInputs = 32;
constexpr uint8_t kE8M0NaN = 255;

// Fp8, and codes of 4 bits.
class QuantisedPartFiles : PartFiles {
 public:
  QuantisedPartFiles(const WeightSlot& slot, const WeightPart& part, const Quantization& quantization,
                     const ModelWeights& files)
      : PartFiles(slot, part, quantization, files),
        num_experts_(slot.layout == StoredLayout::kRows ? 0 : slot.num_experts) {}

  void check() const {
    switch (part_.storage) {
      case WeightStorage::kPlain:
      case WeightStorage::kInt8:
      case WeightStorage::kPackedInt8:
      case WeightStorage::kGptqInt8:
        return;
      case WeightStorage::kFp8:
        return check_fp8();
      case WeightStorage::kPackedInt4:
        return check_packed();
      case WeightStorage::kGptq:
      case WeightStorage::kAwq:
        return check_words();
      case WeightStorage::kMxFp4:
      case WeightStorage::kPackedMxFp4:
        return check_mxfp4();
    }
  }

  QuantisedPart read() const {
    switch (part_.storage) {
      case WeightStorage::kPlain:
      case WeightStorage::kInt8:
      case WeightStorage::kPackedInt8:
      case WeightStorage::kGptqInt8:
        break;
      case WeightStorage::kFp8:
        return read_fp8();
      case WeightStorage::kPackedInt4:
        return read_packed();
      case WeightStorage::kGptq:
      case WeightStorage::kAwq:
        return read_words();
      case WeightStorage::kMxFp4:
      case WeightStorage::kPackedMxFp4:
        return read_mxfp4();
    }
    fail(ErrorCode::kInternal, "part ", part_.name, ": not quantised");
  }

 private:
  void check_groups(std::string_view ending) const {
    if (num_ins_ % kInputUnit != 0)
      fail(ErrorCode::kUnsupported, where(ending), ": ", num_ins_, " inputs: attend has multiples of ",
           kInputUnit, " in 4 bits");
    require_whole_groups(ending);
  }

  void check_fp8() const {
    require_tensor(".weight", {DType::kF8E4M3}, {num_outs_, num_ins_});
    require_dtypes(scale_name(), {DType::kF32, DType::kF16, DType::kBF16});
    fp8_groups();
  }
  std::string_view scale_name() const {
    return find("_inv") != nullptr ? ".weight_scale_inv" : ".weight_scale";
  }
  // Outputs and inputs that share a scale, by the scale's shape.
  std::array<int64_t, 2> fp8_groups() const {
    const Tensor scales = tensor(scale_name());
    const Shape shape = shape_of(scales);
    const int64_t outs = quantization_.group_outs, ins = quantization_.group_ins;
    const Shape one = {1, 1}, channels = {num_outs_, 1};
    std::string expected = "[1] or " + text_of(channels);
    if (outs > 0) {
      const Shape blocks = {(num_outs_ - 1) / outs + 1, (num_ins_ - 1) / ins + 1};
      if (shape == blocks) return {outs, ins};
      expected = text_of(blocks) + " of blocks of " + std::to_string(outs) + " x " + std::to_string(ins);
    } else {
      if (shape.empty() || shape == Shape{1} || shape == one) return {num_outs_, num_ins_};
      if (shape == channels || shape == Shape{num_outs_}) return {1, num_ins_};
    }
    fail(ErrorCode::kCorruptFile, where(scale_name()), ": shape ", text_of(shape), ": expected ", expected,
         " by config.json");
  }
  QuantisedPart read_fp8() const {
    const auto [outs, ins] = fp8_groups();
    const Tensor data = tensor(".weight"), stored = tensor(scale_name());
    check_finite(data, where(".weight"));
    check_finite(stored, where(scale_name()));
    const int64_t rows = (num_outs_ - 1) / outs + 1, columns = (num_ins_ - 1) / ins + 1;
    const Tensor scales = Tensor::empty({rows, columns}, DType::kF32);
    visit_float_dtype(stored.dtype(), [&]<class T>(TypeTag<T>) {
      std::transform(stored.as<const T>(), stored.as<const T>() + rows * columns, scales.as<float>(),
                     [](T scale) { return static_cast<float>(scale); });
    });
    Weight weight(data.view());
    weight.format = WeightFormat::kFp8;
    weight.scales = scales;
    weight.group_outs = outs;
    weight.group_ins = ins;
    return {weight, {data, scales}};
  }

  void check_packed() const {
    check_groups(".weight_packed");
    require_tensor(".weight_packed", {DType::kI32}, {num_outs_, num_ins_ / 8});
    require_tensor(".weight_scale", {DType::kF32, DType::kF16, DType::kBF16}, {num_outs_, num_groups()});
    if (find(".weight_zero_point") != nullptr)
      require_tensor(".weight_zero_point", {DType::kI32}, {(num_outs_ - 1) / 8 + 1, num_groups()});
    if (find(".weight_g_idx") != nullptr) require_tensor(".weight_g_idx", {DType::kI32}, {num_ins_});
    check_said_shape();
  }
  QuantisedPart read_packed() const {
    const Tensor words = tensor(".weight_packed"), scales = tensor(".weight_scale");
    check_finite(scales, where(".weight_scale"));
    QuantisedPart made = int4_weight(scales);
    set_order(".weight_g_idx", made);
    if (made.weight.input_order.empty()) {
      made.tensors.push_back(words);
      made.weight.data = TensorView::contiguous(words.view().data, DType::kU8, {num_outs_, num_ins_ / 2});
    } else {
      set_data(repacked_codes(words, CodePacking::kInputsInOrder, num_outs_, num_ins_, order_of(made)), made);
    }
    if (find(".weight_zero_point") != nullptr)
      set_zeros(unpacked_codes(tensor(".weight_zero_point"), CodePacking::kOutputsByRow, num_outs_,
                               num_groups(), 0),
                made);
    return made;
  }

  void check_words() const {
    check_groups(".qweight");
    if (num_outs_ % 8 != 0)
      fail(ErrorCode::kUnsupported, where(".qweight"), ": ", num_outs_, " outputs: expected a multiple of 8");
    const bool awq = part_.storage == WeightStorage::kAwq;
    require_tensor(".qweight", {DType::kI32},
                   awq ? Shape{num_ins_, num_outs_ / 8} : Shape{num_ins_ / 8, num_outs_});
    require_tensor(".qzeros", {DType::kI32}, {num_groups(), num_outs_ / 8});
    require_tensor(".scales", {DType::kF32, DType::kF16, DType::kBF16}, {num_groups(), num_outs_});
    if (find(".g_idx") != nullptr) require_tensor(".g_idx", {DType::kI32}, {num_ins_});
  }
  QuantisedPart read_words() const {
    const bool awq = part_.storage == WeightStorage::kAwq;
    const Tensor scales = tensor(".scales"), zeros = tensor(".qzeros");
    check_finite(scales, where(".scales"));
    QuantisedPart made = int4_weight(transposed(scales));
    set_order(".g_idx", made);
    set_data(repacked_codes(tensor(".qweight"), awq ? CodePacking::kOutputsMixed : CodePacking::kInputsByRow,
                            num_outs_, num_ins_, order_of(made)),
             made);
    const Tensor unpacked =
        unpacked_codes(zeros, awq ? CodePacking::kOutputsMixed : CodePacking::kOutputsInOrder, num_outs_,
                       num_groups(), !awq && quantization_.zeros_less_one ? 1 : 0);
    // Some writers let the zero point 0 wrap to 15, others mean 16 by it.
    const View<const uint8_t> values = unpacked.span<const uint8_t>();
    if (const auto wrapped = std::ranges::find(values, 16); wrapped != values.end())
      fail(ErrorCode::kUnsupported, where(".qzeros"), ": the zero point of output ",
           (wrapped - values.begin()) / num_groups(), ", group ", (wrapped - values.begin()) % num_groups(),
           ", is stored as 15, which stands for 0 or 16 in checkpoint_format gptq: expected gptq_v2");
    set_zeros(unpacked, made);
    return made;
  }

  // A weight of this scale per output and group, still without its data.
  QuantisedPart int4_weight(const Tensor& scales) const {
    QuantisedPart made{.weight = {}, .tensors = {scales}};
    made.weight.format = WeightFormat::kInt4;
    made.weight.scales = scales;
    made.weight.group_outs = 1;
    made.weight.group_ins = group();
    return made;
  }
  static void set_data(const Tensor& codes, QuantisedPart& made) {
    made.tensors.push_back(codes);
    made.weight.data = codes;
  }
  static void set_zeros(const Tensor& zeros, QuantisedPart& made) {
    if (std::ranges::all_of(zeros.span<const uint8_t>(), [](uint8_t zero) { return zero == 8; })) return;
    made.tensors.push_back(zeros);
    made.weight.zeros = zeros;
  }
  void set_order(std::string_view ending, QuantisedPart& made) const {
    if (find(ending) == nullptr) return;
    const std::vector<int32_t> order =
        order_by_group(tensor(ending).span<const int32_t>(), group(), where(ending));
    if (order.empty()) return;
    made.tensors.push_back(Tensor::from<int32_t>(order, {num_ins_}));
    made.weight.input_order = made.tensors.back();
  }
  static View<const int32_t> order_of(const QuantisedPart& made) {
    if (made.weight.input_order.empty()) return {};
    return made.weight.input_order.span<const int32_t>();
  }

  // Matrices of several experts stand one after another.
  void check_mxfp4() const {
    if (num_ins_ % kMxFp4GroupInputs != 0)
      fail(ErrorCode::kUnsupported, where(codes_name()), ": ", num_ins_, " inputs: expected a multiple of ",
           kMxFp4GroupInputs);
    const int64_t groups = num_ins_ / kMxFp4GroupInputs;
    Shape codes = {num_outs_, num_ins_ / 2}, scales = {num_outs_, groups};
    if (part_.storage == WeightStorage::kMxFp4) {
      codes = {num_outs_, groups, kMxFp4GroupInputs / 2};
      if (num_experts_ > 0) {
        codes = {num_experts_, num_outs_ / num_experts_, groups, kMxFp4GroupInputs / 2};
        scales = {num_experts_, num_outs_ / num_experts_, groups};
      }
    }
    require_tensor(codes_name(), {DType::kU8}, codes);
    require_tensor(exponents_name(), {DType::kU8}, scales);
  }
  std::string_view codes_name() const {
    return part_.storage == WeightStorage::kMxFp4 ? "_blocks" : ".weight_packed";
  }
  std::string_view exponents_name() const {
    return part_.storage == WeightStorage::kMxFp4 ? "_scales" : ".weight_scale";
  }
  QuantisedPart read_mxfp4() const {
    const Tensor codes = tensor(codes_name()), scales = tensor(exponents_name());
    const View<const uint8_t> exponents = scales.span<const uint8_t>();
    if (const auto nan = std::ranges::find(exponents, kE8M0NaN); nan != exponents.end())
      fail(ErrorCode::kCorruptFile, where(exponents_name()), ": element ", nan - exponents.begin(),
           " is 255, which is NaN: expected finite numbers");
    QuantisedPart made{.weight = {}, .tensors = {codes, scales}};
    made.weight.format = WeightFormat::kMxFp4;
    made.weight.data = TensorView::contiguous(codes.view().data, DType::kU8, {num_outs_, num_ins_ / 2});
    made.weight.scales =
        TensorView::contiguous(scales.view().data, DType::kU8, {num_outs_, num_ins_ / kMxFp4GroupInputs});
    made.weight.group_outs = 1;
    made.weight.group_ins = kMxFp4GroupInputs;
    return made;
  }

  int64_t num_experts_;  // that share a tensor; 0: it is one matrix
};

// What a quantised weight's tensors are called: the first one's presence says that it is one; the others have
// to be there too, or may be.
struct StorageNames {
  std::string_view first;
  std::vector<std::string_view> others, optional;
};

StorageNames names_of(const Quantization& quantization) {
  switch (quantization.storage) {
    case WeightStorage::kPlain:
      break;
    case WeightStorage::kFp8:
      return {quantization.group_outs > 0 ? ".weight_scale_inv" : ".weight_scale", {".weight"}, {}};
    case WeightStorage::kInt8:
      return {".weight_scale", {".weight"}, {".weight_zero_point"}};
    case WeightStorage::kPackedInt4:
    case WeightStorage::kPackedInt8: {
      StorageNames names = {".weight_packed", {".weight_scale"}, {".weight_shape", ".weight_zero_point"}};
      (quantization.reorders ? names.others : names.optional).push_back(".weight_g_idx");
      return names;
    }
    case WeightStorage::kGptq:
    case WeightStorage::kGptqInt8: {
      StorageNames names = {".qweight", {".qzeros", ".scales"}, {}};
      (quantization.reorders ? names.others : names.optional).push_back(".g_idx");
      return names;
    }
    case WeightStorage::kAwq:
      return {".qweight", {".qzeros", ".scales"}, {}};
    case WeightStorage::kMxFp4:
      return {"_blocks", {"_scales"}, {}};
    case WeightStorage::kPackedMxFp4:
      return {".weight_packed", {".weight_scale"}, {}};
  }
  return {};
}

// Sets how the part is stored, and the names of its tensors, if the files have some of a weight of this kind.
bool find_tensors(const WeightSlot& slot, const Quantization& kind, const ModelWeights& files,
                  WeightPart& part) {
  if (shares_fp8_experts(slot, kind)) {
    part.tensors = fp8_expert_tensors(part, files);
    if (part.tensors.empty()) return false;
    part.storage = kind.storage;
    return true;
  }
  const StorageNames names = names_of(kind);
  std::string stem = part.name;
  if (stem.ends_with(".weight")) stem.resize(stem.size() - std::string_view(".weight").size());
  const auto has = [&](std::string_view ending) { return files.contains(stem + std::string(ending)); };
  std::string_view first = names.first;
  // compressed-tensors calls the scales of blocks as those of the whole, and files of Mistral's those of
  // the whole as those of blocks.
  if (kind.storage == WeightStorage::kFp8 && !has(first))
    first = first == ".weight_scale" ? ".weight_scale_inv" : ".weight_scale";
  // Of one whose first tensor is missing alone that one is to be named.
  const bool has_others = !has(".weight") && std::ranges::any_of(names.others, has);
  if (!has(first) && !has_others) return false;
  part.storage = kind.storage;
  part.tensors = {stem + std::string(first)};
  for (const std::string_view ending : names.others) part.tensors.push_back(stem + std::string(ending));
  for (const std::string_view ending : names.optional)
    if (has(ending)) part.tensors.push_back(stem + std::string(ending));
  return true;
}

// Whether the tensors are there, in the shapes and dtypes of the part's kind.
bool fits_tensors(const WeightSlot& slot, const WeightPart& part, const Quantization& quantization,
                  const ModelWeights& files) {
  const auto has = [&](const std::string& name) { return files.contains(name); };
  if (!std::ranges::all_of(part.tensors, has)) return false;
  try {
    check_quantised_part(slot, part, quantization, files);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

void find_quantised_parts(std::span<WeightSlot> slots, const Quantization& quantization,
                          const ModelWeights& files) {
  if (quantization.storage == WeightStorage::kPlain) return;
  for (WeightSlot& slot : slots) {
    if (slot.use != WeightUse::kLinear && slot.use != WeightUse::kHead) continue;
    for (WeightPart& part : slot.parts) {
      const WeightPart plain = part;
      for (size_t kind = 0; kind < num_kinds(quantization); ++kind) {
        WeightPart tried = plain;
        tried.kind = kind;
        if (!find_tensors(slot, kind_of(quantization, kind), files, tried)) continue;
        const bool fits = num_kinds(quantization) == 1 || fits_tensors(slot, tried, quantization, files);
        // Where no kind fits, what is wrong is told of the first whose names are there.
        if (fits || part.storage == WeightStorage::kPlain) part = std::move(tried);
        if (fits) break;
      }
    }
  }
}

bool scales_activations(std::string_view name) {
  for (const std::string_view ending :
       {"input_scale", "activation_scale", ".q_scale", ".prob_scale", ".q_proj.output_scale"})
    if (name.ends_with(ending)) return true;
  return false;
}

void check_quantised_part(const WeightSlot& slot, const WeightPart& part, const Quantization& quantization,
                          const ModelWeights& files) {
  const Quantization& kind = kind_of(quantization, part.kind);
  if (shares_fp8_experts(slot, kind)) return check_fp8_experts(slot, part, kind, files);
  if (is_int8(part.storage)) return check_int8_part(slot, part, kind, files);
  QuantisedPartFiles(slot, part, kind, files).check();
}

QuantisedPart read_quantised_part(const WeightSlot& slot, const WeightPart& part,
                                  const Quantization& quantization, const ModelWeights& files) {
  const Quantization& kind = kind_of(quantization, part.kind);
  if (shares_fp8_experts(slot, kind)) return read_fp8_experts(slot, part, kind, files);
  if (is_int8(part.storage)) return read_int8_part(slot, part, kind, files);
  return QuantisedPartFiles(slot, part, kind, files).read();
}

Tensor elements_of(const Weight& weight) {
  const Tensor made = Tensor::empty({weight.out_features(), weight.in_features()}, DType::kF32);
  parallel_for(weight.out_features(), [&](int64_t out, int) {
    std::ranges::transform(kernels::reference::weight_row(weight, out),
                           made.as<float>() + out * weight.in_features(),
                           [](double element) { return static_cast<float>(element); });
  });
  return made;
}

}  // namespace attend
