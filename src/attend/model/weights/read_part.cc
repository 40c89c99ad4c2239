#include "attend/model/weights/read_part.h"

#include "attend/model/weights/check_finite.h"
#include "attend/model/weights/load_weights.h"
#include "attend/model/weights/part_reader.h"
#include "attend/model/weights/quantized/part_readers.h"
#include "attend/model/weights/quantized/quantized_tensor.h"

namespace attend {
namespace {

// Ranges of a file with at most this distance are fetched as one.
constexpr uint64_t kMaxGapBytes = 64u << 10;

// Reads elements without quantization: float32, float16 or bfloat16.
class PlainReader : public PartReader {
 public:
  PlainReader(const WeightSlot& slot, const WeightPart& part, const Quantization& quantization,
              const CheckpointTensors& files)
      : PartReader(slot, part, quantization, files, slot.layout != StoredLayout::kRows) {}

  void check() const override {
    require_shape(part_.name);
    const DType dtype = whole(part_.name).dtype();
    if (dtype != DType::kF32 && dtype != DType::kF16 && dtype != DType::kBF16)
      fail(ErrorCode::kUnsupported, where(part_.name), ": dtype ", dtype,
           ": attend supports weights in float32, float16, bfloat16, and quantized ones with the scales that "
           "quantization_config of config.json describes");
  }
  LoadedPart read() const override {
    const Tensor stored = tensor(part_.name);
    if (slot_.layout != StoredLayout::kScalar) check_finite(stored, where(part_.name));
    const Tensor placed = to_slot_layout(slot_, stored);
    const TensorView& view = placed.view();
    const Shape shape = slot_.columns > 0 ? Shape{num_outs_, num_ins_} : Shape{num_outs_};
    return {TensorView::contiguous(view.data, view.dtype, shape), {placed}};
  }

 private:
  StoredAxes axes(std::string_view) const override {
    switch (slot_.layout) {
      case StoredLayout::kRows:
        break;
      case StoredLayout::kColumns:
        if (slot_.columns == 0) break;
        return {ins_axis(), outs_axis()};
      case StoredLayout::kExpertRows:
        if (slot_.columns == 0) return {experts_axis(), outs_axis()};
        return {experts_axis(), outs_axis(), ins_axis()};
      case StoredLayout::kConvolution:
        return {outs_axis(), other_axis(1), ins_axis()};
      case StoredLayout::kScalar:
        return {};
      case StoredLayout::kOneRow:
        return {other_axis(1), outs_axis()};
      case StoredLayout::kBroadcast:
        return {other_axis(1), other_axis(1), outs_axis(), other_axis(1)};
      case StoredLayout::kPatches: {
        StoredAxes axes{outs_axis()};
        for (const int64_t extent : slot_.patch_axes) axes.push_back(other_axis(extent));
        return axes;
      }
      case StoredLayout::kExpertColumns:
        return {experts_axis(), ins_axis(), outs_axis()};
    }
    if (slot_.columns == 0) return {outs_axis()};
    return {outs_axis(), ins_axis()};
  }
};

std::unique_ptr<PartReader> make_reader(const WeightSlot& slot, const WeightPart& part,
                                        const Quantization& quantization, const CheckpointTensors& files) {
  if (part.storage == WeightStorage::kPlain)
    return std::make_unique<PlainReader>(slot, part, quantization, files);
  return make_quantized_reader(slot, part, weight_kind(quantization, part.kind), files);
}

}  // namespace

void PartReader::for_each_byte_range(
    const std::function<void(const std::string&, uint64_t, uint64_t)>& fn) const {
  for (const std::string& name : part_.tensor_names()) {
    const uint64_t element_bytes = size_of(*files_.entry(name).dtype);
    uint64_t begin = 0, end = 0;
    for_each_run(axes(name), range_, [&](int64_t first, int64_t count) {
      const uint64_t run_begin = static_cast<uint64_t>(first) * element_bytes;
      if (run_begin > end + kMaxGapBytes || end == 0) {
        if (end > begin) fn(name, begin, end);
        begin = run_begin;
      }
      end = run_begin + static_cast<uint64_t>(count) * element_bytes;
    });
    if (end > begin) fn(name, begin, end);
  }
}

void PartReader::require_dtypes(std::string_view ending, std::initializer_list<DType> accepted) const {
  const DType dtype = whole(ending).dtype();
  if (std::ranges::find(accepted, dtype) != accepted.end()) return;
  std::string names;
  for (const DType each : accepted) names += (names.empty() ? "" : ", ") + std::string(to_string(each));
  fail(ErrorCode::kUnsupported, where(ending), ": dtype ", dtype, ": attend supports ", names, " with ",
       quantization_.method);
}

void PartReader::require_shape(std::string_view ending) const {
  const Shape shape = view_shape(whole(ending)), expected = stored_shape(axes(name(ending)), range_);
  if (shape != expected)
    fail(ErrorCode::kCorruptFile, where(ending), ": shape ", shape_string(shape), ": expected ",
         shape_string(expected), " according to config.json");
  require_division(ending);
}

void PartReader::require_division(std::string_view ending) const {
  for (const StoredAxis& axis : axes(name(ending))) {
    if (axis.divides(range_)) continue;
    const bool outs = axis.kind == StoredAxis::Kind::kOuts;
    const Extent& extent = outs ? range_.outs : range_.ins;
    fail(ErrorCode::kUnsupported, where(ending), ": rank with ", outs ? "outputs " : "inputs ", extent.begin,
         " to ", extent.end, " of ", extent.total, ": expected multiples of ", axis.per_index);
  }
}

void PartReader::check_declared_shape() const {
  if (find(".weight_shape") == nullptr) return;
  require_tensor(".weight_shape", {DType::kI64, DType::kI32});
  const Tensor declared = whole(".weight_shape");
  const auto at = [&](int i) {
    return declared.dtype() == DType::kI64 ? declared.as<const int64_t>()[i]
                                           : declared.as<const int32_t>()[i];
  };
  const Shape expected = {range_.outs.total, range_.ins.total};
  if (at(0) != expected[0] || at(1) != expected[1])
    fail(ErrorCode::kCorruptFile, where(".weight_shape"), ": [", at(0), ", ", at(1), "]: expected ",
         shape_string(expected), " according to config.json");
}

uint64_t check_part(const WeightSlot& slot, const WeightPart& part, const Quantization& quantization,
                    const CheckpointTensors& files) {
  const auto reader = make_reader(slot, part, quantization, files);
  reader->check();
  uint64_t num_bytes = 0;
  reader->for_each_byte_range(
      [&](const std::string&, uint64_t begin, uint64_t end) { num_bytes += end - begin; });
  return num_bytes;
}

void fetch_part(const WeightSlot& slot, const WeightPart& part, const Quantization& quantization,
                const CheckpointTensors& files, const std::function<void(size_t bytes)>& fetched) {
  make_reader(slot, part, quantization, files)
      ->for_each_byte_range([&](const std::string& name, uint64_t begin, uint64_t end) {
        files.fetch(name, begin, end, fetched);
      });
}

LoadedPart read_part(const WeightSlot& slot, const WeightPart& part, const Quantization& quantization,
                     const CheckpointTensors& files) {
  LoadedPart read = make_reader(slot, part, quantization, files)->read();
  if (part.storage == WeightStorage::kPlain || !slot.dequantize_on_load) return read;
  const Tensor elements = dequantize(read.weight);
  return {elements, {elements}};
}

}  // namespace attend
