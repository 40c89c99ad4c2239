// The CTAs of MLA on sm_90a meet when they have left their partial results, and merge them together.
//
// None waits for ever: a CTA may run only when others have ended, since kernels of other streams hold SMs,
// and two such kernels could wait for one another. Who has waited too long goes, and the last to come does
// what is left.
#pragma once

#include "attend/kernels/attention/cuda/sm90/mla_merge.cuh"
#include "attend/kernels/attention/cuda/sm90/mla_shared.cuh"
#include "attend/kernels/common/cuda/ptx/atomic.cuh"
#include "attend/kernels/common/cuda/ptx/thread.cuh"

namespace attend::kernels::cuda::sm90 {

// Where all CTAs of a launch meet: a number in global memory, of which a launch leaves no trace but the count
// of meetings. By one thread of each CTA.
class MlaMeeting {
  // Bits of the number: CTAs that have come, those of them that have gone again, meetings before.
  static constexpr uint32_t kCtaBits = 12, kCtaMask = (1u << kCtaBits) - 1;
  static_assert(kCtaMask >= kMlaMostMeetingCtas);
  // Cycles that a CTA waits beyond those that it has run. CTA ranges cost the same, so who has not come by
  // then was late to start.
  static constexpr uint32_t kPatience = 1 << 18;

 public:
  using Outcome = MlaMeetingOutcome;

  __device__ MlaMeeting(uint32_t* at, int num_ctas) : at_(at), num_ctas_(static_cast<uint32_t>(num_ctas)) {}

  // What the CTA has written is there for all others that come together. `waits`: it has something to do
  // then. `begin`: when it began, by clock().
  __device__ Outcome come(bool waits, uint32_t begin) const {
    const auto before = static_cast<uint32_t>(ptx::atom_add_acq_rel(reinterpret_cast<int32_t*>(at_), 1));
    if (num_come(before) + 1 == num_ctas_) {
      ptx::st_release(at_, (meetings(before) + 1) << 2 * kCtaBits);
      return num_gone(before) > 0 ? Outcome::kLast : Outcome::kTogether;
    }
    return waits ? wait(meetings(before), begin) : Outcome::kGone;
  }

 private:
  __device__ static uint32_t num_come(uint32_t number) { return number & kCtaMask; }
  __device__ static uint32_t num_gone(uint32_t number) { return number >> kCtaBits & kCtaMask; }
  __device__ static uint32_t meetings(uint32_t number) { return number >> 2 * kCtaBits; }

  __device__ Outcome wait(uint32_t meeting, uint32_t begin) const {
    const uint32_t come = now(), patience = kPatience + (come - begin);
    for (;;) {
      const uint32_t number = ptx::ld_acquire(at_);
      if (meetings(number) != meeting || num_come(number) == num_ctas_) return Outcome::kTogether;
      if (now() - come > patience && ptx::atom_cas(at_, number, number + (1u << kCtaBits)) == number)
        return Outcome::kGone;
    }
  }

  __device__ static uint32_t now() { return static_cast<uint32_t>(clock()); }

  uint32_t* const at_;
  const uint32_t num_ctas_;
};

// By all math threads, whose results are written; the math warpgroups are the groups that merge.
// `walk`: where the CTA's range has ended. Named barriers: one of all of them, and one of each warpgroup.
class MlaMergeTogether {
  using RangeEnd = MlaRangeEnd<MlaTile::kMathWarpgroups>;
  static constexpr int kAllBarrier = 1, kGroupBarrier = 2;
  static_assert(MlaTile::kMathWarpgroups * sizeof(RangeEnd::Exchange) <= MlaTile::kQueryBytes);

 public:
  __device__ MlaMergeTogether(const MlaParams& params, const MlaShared& shared)
      : params_(params.attention), shared_(shared), meeting_(params.meeting, static_cast<int>(gridDim.x)) {}

  __device__ void run() const {
    const sm80::PlanStart& walk = shared_.walk();
    const CtaStart& at = walk.cta;
    if (meet(ends_within(at)) == MlaMeetingOutcome::kGone) return;
    const PlanLine& line = walk.header.line;
    const bool is_last = shared_.outcome() == MlaMeetingOutcome::kLast;
    int cta = is_last ? 0 : static_cast<int>(blockIdx.x);
    const int end = is_last ? static_cast<int>(gridDim.x) : cta + 1;
#pragma unroll 1
    for (; cta < end; ++cta) {
      // What others have done too is the same bits once more.
      if (is_last) look_up(cta);
      if (ends_within(at)) merge(at.tile, at.head, line, cta);
    }
  }

 private:
  __device__ static bool ends_within(const CtaStart& end) {
    return end.first > 0 && end.first < end.tile.num_kv_tiles;
  }

  __device__ MlaMeetingOutcome meet(bool waits) const {
    sync();
    if (math_thread() == 0) shared_.outcome() = meeting_.come(waits, shared_.begin());
    sync();
    return shared_.outcome();
  }
  __device__ static void sync() { ptx::barrier_sync(kAllBarrier, 32 * MlaTile::kMathWarps); }

  // Where the range of another CTA ends, to where the present one's was.
  __device__ void look_up(int cta) const {
    sync();
    if (math_thread() == 0) {
      sm80::PlanStart& walk = shared_.walk();
      const PlanLine& line = walk.header.line;
      const int heads = params_.plan.heads_at_once;
      const bool has_next = (cta / heads + 1) * line.cta_range < walk.header.line_length;
      walk.cta.first = 0;
      if (has_next) walk.cta = start_of(cta + heads);
    }
    sync();
  }
  // Reads past L1: other CTAs may have written it.
  __device__ CtaStart start_of(int cta) const {
    CtaStart start;
    constexpr int kPieces = sizeof(CtaStart) / sizeof(int4);
#pragma unroll
    for (int i = 0; i < kPieces; ++i)
      reinterpret_cast<int4*>(&start)[i] =
          __ldcg(reinterpret_cast<const int4*>(params_.plan.cta_starts + cta) + i);
    return start;
  }

  __device__ __forceinline__ void merge(const RowTile& tile, int head, const PlanLine& line, int cta) const {
    const int group = math_thread() / kMlaMergeThreads;
    auto* const exchanges = reinterpret_cast<RangeEnd::Exchange*>(shared_.base + MlaShared::kQueriesAt);
    RangeEnd(params_, tile, head, line, cta, {group, kGroupBarrier + group, math_thread() % kMlaMergeThreads},
             exchanges[group])
        .merge();
  }
  __device__ static int math_thread() { return ptx::tid_x() - 32 * MlaTile::kProducerWarps; }

  const AttentionParams& params_;
  const MlaShared& shared_;
  const MlaMeeting meeting_;
};

}  // namespace attend::kernels::cuda::sm90
