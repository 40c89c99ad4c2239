// Communicator: collective operations of one rank with the other ranks that run the same model.
#pragma once

#include <cstdint>
#include <span>

#include "attend/tensor/device.h"
#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend {

// Division of an axis into one range per rank, in rank order: rank r has [bounds[r], bounds[r + 1]).
struct RankRanges {
  int axis = 0;
  std::span<const int64_t> bounds;  // [num_ranks + 1], ascending, from 0 to the size of the axis
};

// Scaled copy of a stream, and its sums of squares, for a norm that is applied later.
struct DeferredScale {
  TensorView weight = {};  // [dim]; empty: no copy
  TensorView scaled = {};  // like the stream: stream * weight, rounded once
  TensorView partial_squares =
      {};  // f32 [num_rows, dim / 16]: sums of squares of neighboring elements of the stream
};

// All ranks call the same operations in the same order, with tensors of the same shape and dtype. Each works
// in place on tensors of the rank's device. Sums are computed in rank order and rounded once, so a number of
// ranks always gives the same bits. One thread uses a communicator.
//
// If a rank fails, operations of all ranks throw Error(kInternal) with its reason, those that already wait as
// well. The communicators are of no further use then.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int num_ranks() const = 0;

  // x = sum of all ranks' x. x: contiguous.
  virtual void all_reduce(const TensorView& x, Stream& stream) = 0;
  // GPUs: sum += sum of all ranks' x, rounded once; then sets `next`. x: contiguous, overwritten; may be
  // next.scaled.
  virtual void all_reduce_add(const TensorView& x, const TensorView& sum, const DeferredScale& next,
                              Stream& stream);
  // Each rank has its own range of x, and receives those of the others. x: 2-dimensional, last stride 1.
  virtual void all_gather(const TensorView& x, const RankRanges& ranges, Stream& stream) = 0;
  // The rank's range of x = sum of all ranks' x in this range; the rest is undefined. x: contiguous.
  virtual void reduce_scatter(const TensorView& x, const RankRanges& ranges, Stream& stream) = 0;
  // x = x of rank `root`. x: contiguous.
  virtual void broadcast(const TensorView& x, int root, Stream& stream) = 0;
};

}  // namespace attend
#pragma GCC visibility pop
