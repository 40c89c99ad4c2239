// Rows of fp8 for MLA on sm_90a: the producer warps read them to registers, and write them to shared memory
// in the dtype of the queries.
#pragma once

#include <type_traits>

#include "attend/kernels/attention/cuda/common/fp8_convert.cuh"
#include "attend/kernels/attention/cuda/common/warp_rows.cuh"
#include "attend/kernels/attention/cuda/sm90/mla/mla_schedule.cuh"
#include "attend/kernels/attention/cuda/sm90/mla/mla_shared.cuh"
#include "attend/kernels/common/cuda/ptx/global_read.cuh"
#include "attend/kernels/common/cuda/ptx/thread.cuh"

namespace attend::kernels::cuda::sm90 {

// Each of the producer warps has 16 rows of a KV tile, and of the queries; the first publishes the work
// tiles. `T`: of the queries.
//
// Rows go from memory to L2 two KV tiles before they are converted, from there to registers a third of a tile
// before: six times 16 bytes a lane are under way while the six before become 32 bytes each.
template <class T, class Plan, bool kPlain>
class MlaConverter {
  static constexpr int kRows = kMlaKeys / MlaTile::kProducerWarps;  // of a warp
  // Four lanes have 64 bytes of a row, the columns of a panel; a warp eight rows at once.
  static constexpr int kLanesOfRow = kMlaPanelColumns / 16, kRowsAtOnce = 32 / kLanesOfRow;
  static constexpr int kHalves = kRows / kRowsAtOnce;
  static constexpr int kPieces = MlaTile::kPanelsOfThird * kHalves;  // 16 bytes of a lane, of a third
  static constexpr int kThirdColumns = MlaTile::kPanelsOfThird * kMlaPanelColumns;

 public:
  __device__ MlaConverter(const MlaParams& params, const MlaShared& shared)
      : mla_(params), params_(params.attention), shared_(shared) {}

  // Registers are short: stages and parities of pipelines follow from counts, what follows from the lane is
  // computed anew, and the work tile is read where it is wanted.
  __device__ void run(const Plan& cta_plan) {
    if (publishes()) MlaWalk<Plan, kPlain>(mla_, cta_plan, shared_.walk()).begin();
#pragma unroll 1
    for (int num_work_tiles = 0;; ++num_work_tiles) {
      const PipelineState place{num_work_tiles % MlaTile::kScheduleStages,
                                static_cast<uint32_t>(num_work_tiles / MlaTile::kScheduleStages & 1)};
      if (publishes()) MlaWalk<Plan, kPlain>(mla_, cta_plan, shared_.walk()).publish(shared_, place);
      ptx::mbarrier_wait(shared_.schedule_full(place.stage), place.parity);
      const MlaWorkTile& work_tile = shared_.work_tile(place.stage);
      if (work_tile.num_tiles < 0) return;
      if (params_.kv_element == Element::kF8E4M3)
        load<Element::kF8E4M3>(work_tile, static_cast<uint32_t>(num_work_tiles & 1));
      else
        load<Element::kF8E5M2>(work_tile, static_cast<uint32_t>(num_work_tiles & 1));
      arrive_as_warp(shared_.schedule_empty(num_work_tiles % MlaTile::kScheduleStages));
    }
  }

 private:
  using Bytes = uint4[kPieces];
  // Where this lane's 16 bytes of a panel begin in its rows; 0: the row becomes zero.
  struct Rows {
    uint64_t address[kHalves];
  };

  __device__ static int lane() { return ptx::tid_x() % 32; }
  __device__ static bool publishes() { return ptx::tid_x() == 0; }

  // The position of the row of a KV tile that this lane looks up. Lanes beyond the warp's rows do as those
  // before them.
  __device__ __forceinline__ int position_of(const MlaWorkTile& work_tile, int tile) const {
    const int thread = ptx::tid_x();
    return work_tile.first_key + tile * kMlaKeys + thread / 32 * kRows + thread % kRows;
  }
  // Its page; -1: it is not the work tile's.
  __device__ __forceinline__ int look_up(const MlaWorkTile& work_tile, int tile) const {
    const int position = position_of(work_tile, tile);
    if (position < work_tile.keys.begin || position >= work_tile.keys.end) return -1;
    return page_of(params_.index, work_tile.tile.request, position);
  }
  __device__ __forceinline__ uint64_t address_of(const MlaWorkTile& work_tile, int page, int tile) const {
    return mla_row_address(params_, page, position_of(work_tile, tile), 1);
  }

  template <Element kElement>
  __device__ __forceinline__ void load(const MlaWorkTile& work_tile, uint32_t parity) {
    Rows rows;
    int next_page;
    {
      const int page = look_up(work_tile, 0);
      next_page = look_up(work_tile, 1);
      // Rows may come to L2 before the kernel before has written those of new tokens.
      prefetch(address_of(work_tile, page, 0));
      prefetch(address_of(work_tile, next_page, 1));
      MlaQueries<MlaTile::kProducerWarps, kPlain>(mla_, shared_, ptx::tid_x() / 32).copy(work_tile, parity);
      rows = rows_at(address_of(work_tile, page, 0));
    }
    Bytes bytes;
#pragma unroll
    for (int i = 0; i < kPieces; ++i) bytes[i] = read(rows, 0, i);
#pragma unroll 1
    for (int tile = 0; tile < work_tile.num_tiles; ++tile, ++num_tiles_) {
      const int later_page = look_up(work_tile, tile + 2);
#pragma unroll 1
      for (int third = 0; third < MlaTile::kThirds; ++third) {
        const bool ends = third + 1 == MlaTile::kThirds;
        if (ends) {
          // Behind the last KV tile there are no pages.
          rows = rows_at(address_of(work_tile, next_page, tile + 1));
          prefetch(address_of(work_tile, later_page, tile + 2));
        }
        convert<kElement>(bytes, rows, third, ends ? 0 : (third + 1) * kThirdColumns);
      }
      next_page = later_page;
    }
  }

  // Writes a third of a stage out of `bytes`, which the pieces of `rows` from `next_column` on replace.
  template <Element kElement>
  __device__ __forceinline__ void convert(Bytes& bytes, const Rows& rows, int third, int next_column) const {
    const int stage = num_tiles_ % MlaTile::kStages;
    ptx::mbarrier_wait(shared_.empty(stage, MlaTile::part_of_third(third)),
                       static_cast<uint32_t>(num_tiles_ / MlaTile::kStages & 1) ^ 1);
    const int thread = ptx::tid_x();
    const int row = thread / 32 * kRows + thread % 32 / kLanesOfRow, piece = 2 * (thread % kLanesOfRow);
    const uint32_t to = shared_.stage(stage) + third * MlaTile::kPanelsOfThird * MlaTile::kPanelBytes +
                        mla_swizzled(row, piece);
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      // Rows eight further are swizzled alike; the second piece of two lies beside the first.
      const uint32_t to_piece =
          to + i / kHalves * MlaTile::kPanelBytes + i % kHalves * kRowsAtOnce * kMlaPanelRowBytes;
      ptx::st_shared_16(to_piece, converted<kElement>(bytes[i].x, bytes[i].y));
      ptx::st_shared_16(to_piece ^ 16, converted<kElement>(bytes[i].z, bytes[i].w));
      bytes[i] = read(rows, next_column, i);
    }
    ptx::fence_proxy_async();
    arrive_as_warp(shared_.full(stage, third));
  }

  // From the addresses of the rows that the lanes have looked up.
  __device__ __forceinline__ Rows rows_at(uint64_t lane_address) const {
    const int lane = this->lane();
    Rows rows;
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      const uint64_t row = __shfl_sync(0xffffffffu, lane_address, half * kRowsAtOnce + lane / kLanesOfRow);
      rows.address[half] = row == 0 ? 0 : row + static_cast<uint64_t>(lane % kLanesOfRow * 16);
    }
    return rows;
  }

  // Piece i: of a row of one half and a panel from `first_column` on.
  __device__ __forceinline__ uint4 read(const Rows& rows, int first_column, int i) const {
    const int column = first_column + i / kHalves * kMlaPanelColumns;
    const uint64_t address = rows.address[i % kHalves];
    // 16 bytes of a lane begin at a multiple of 16, and rows are as long.
    return ptx::ld_global_16_past_l1(address + static_cast<uint64_t>(column),
                                     address != 0 && column < params_.head_dim_qk - lane_column());
  }
  __device__ static int lane_column() { return static_cast<int>(threadIdx.x) % kLanesOfRow * 16; }

  // By the lanes of the warp's rows.
  __device__ __forceinline__ void prefetch(uint64_t lane_address) const {
    if (lane() < kRows && lane_address != 0)
      ptx::cp_async_bulk_prefetch_l2(lane_address, static_cast<uint32_t>(params_.head_dim_qk));
  }

  // Eight elements as those of q.
  template <Element kElement>
  __device__ __forceinline__ static uint4 converted(uint32_t low, uint32_t high) {
    return make_uint4(as_query(low_pair<kElement>(low)), as_query(high_pair<kElement>(low)),
                      as_query(low_pair<kElement>(high)), as_query(high_pair<kElement>(high)));
  }
  // Two of f16. bf16 holds every value of fp8 too.
  __device__ __forceinline__ static uint32_t as_query(uint32_t pair) {
    if constexpr (std::is_same_v<T, __half>) return pair;
    const float2 values = __half22float2(*reinterpret_cast<const __half2*>(&pair));
    return pack(values.x, values.y, T());
  }

  const MlaParams& mla_;
  const AttentionParams& params_;
  const MlaShared& shared_;
  int num_tiles_ = 0;  // that were converted
};

}  // namespace attend::kernels::cuda::sm90
