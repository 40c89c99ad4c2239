#include <atomic>

#include "attend/base/parallel.h"
#include "attend/kernels/common/decode_blocks.h"
#include "attend/model/weights/part_reader.h"
#include "attend/model/weights/quantized/part_readers.h"

namespace attend {
namespace {

class BlockTensorReader : public PartReader {
 public:
  BlockTensorReader(const WeightSlot& slot, const WeightPart& part, const Quantization& quantization,
                    const CheckpointTensors& files)
      : PartReader(slot, part, quantization, files, slot.layout != StoredLayout::kRows),
        format_(*files.entry(part.name).block_format) {}

  void check() const override {
    if (slot_.layout != StoredLayout::kRows && slot_.layout != StoredLayout::kExpertRows)
      fail(ErrorCode::kUnsupported, where(part_.name), ": type ", layout().name,
           ": attend supports tensors with inputs first only as F32, F16 and BF16");
    if (slot_.columns == 0)
      fail(ErrorCode::kUnsupported, where(part_.name), ": type ", layout().name,
           ": attend supports vectors in F32, F16 and BF16");
    require_tensor(part_.name, {DType::kU8});
  }
  LoadedPart read() const override {
    const Tensor blocks = tensor(part_.name);
    const int64_t row_bytes = num_ins_ / layout().elements * layout().bytes;
    LoadedPart result{.weight = {}, .tensors = {blocks}};
    result.weight.format = WeightFormat::kBlocks;
    result.weight.block_format = format_;
    result.weight.data = TensorView::contiguous(blocks.view().data, DType::kU8, {num_outs_, row_bytes});
    check_scales(result.weight.data);
    return result;
  }

 private:
  BlockLayout layout() const { return block_layout(format_); }
  StoredAxes axes(std::string_view) const override {
    StoredAxes axes;
    if (slot_.layout != StoredLayout::kRows) axes.push_back(experts_axis());
    axes.push_back(outs_axis());
    axes.push_back(ins_axis(layout().elements));
    axes.push_back(other_axis(layout().bytes));
    return axes;
  }
  void check_scales(const TensorView& rows) const {
    std::atomic<int64_t> first = rows.shape[0];
    parallel_for_rows(rows.shape[0], rows.shape[1], [&](int64_t row) {
      const uint8_t* const blocks = rows[row].as<const uint8_t>();
      for (int64_t i = 0; i < rows.shape[1]; i += layout().bytes) {
        if (kernels::has_finite_scales(format_, blocks + i)) continue;
        int64_t lowest = first;
        while (row < lowest && !first.compare_exchange_weak(lowest, row)) {
        }
        return;
      }
    });
    if (first < rows.shape[0])
      fail(ErrorCode::kCorruptFile, where(part_.name), ": output ", first.load(),
           " has a scale that is NaN or infinite: expected finite numbers");
  }

  BlockFormat format_;
};

}  // namespace

std::unique_ptr<PartReader> make_block_reader(const WeightSlot& slot, const WeightPart& part,
                                              const Quantization& quantization,
                                              const CheckpointTensors& files) {
  return std::make_unique<BlockTensorReader>(slot, part, quantization, files);
}

}  // namespace attend
