#include "attend/kv/tier/page_transfers.h"

#include <algorithm>
#include <utility>

#include "attend/base/error.h"

namespace attend {
namespace {

// A step that must wait for a batch waits for all of it. At the rate of a PCIe 5 link this is about a
// millisecond.
constexpr size_t kMaxBatchBytes = 64 << 20;

}  // namespace

PageTransfers::PageTransfers(const CacheBytes& bytes, Stream model)
    : tiles_(make_cache_tiles(bytes, model.device)) {
  for (size_t kind = 0; kind < kNumPageDataKinds; ++kind) {
    data_bytes_[kind] = bytes[kind].num_bytes();
    ensure(bytes[kind].parts().empty() || bytes[kind].device() == model.device, "page data on ",
           bytes[kind].device(), ": the model is on ", model.device);
  }
  for (const Direction direction : {Direction::kToHost, Direction::kToCache})
    lane(direction).queue = std::make_unique<CopyQueue>(tiles_, direction, model);
}

PageTransfers::~PageTransfers() {
  try {
    drain();
  } catch (const Error&) {  // the device is lost: nothing accesses the memory
  }
}

int64_t PageTransfers::add(Direction direction, PageDataKind kind, int index, std::byte* host,
                           int64_t after) {
  Lane &own = lane(direction), &others = lane(other(direction));
  if (const auto found = others.busy.find(key(kind, index)); found != others.busy.end())
    after = std::max(after, found->second);
  // Batches only wait for batches that are started, so no two of them wait for each other.
  if (others.next && after == others.next->number) start_next(other(direction));
  int64_t& last = own.busy[key(kind, index)];
  // The copies of a batch are in no order.
  if (own.next && (last == own.next->number || own.next->num_bytes >= kMaxBatchBytes)) start_next(direction);
  if (!own.next) {
    own.next = std::make_shared<CopyBatch>();
    own.next->number = ++own.num_batches;
  }
  own.next->copies[static_cast<size_t>(kind)].push_back({.page = index, .host = host});
  own.next->num_bytes += data_bytes_[static_cast<size_t>(kind)];
  own.next->after = std::max(own.next->after, after);
  last = own.next->number;
  return last;
}

void PageTransfers::reuse(PageDataKind kind, int index) {
  for (Lane& lane : lanes_)
    if (const auto found = lane.busy.find(key(kind, index)); found != lane.busy.end())
      lane.held = std::max(lane.held, found->second);
}

void PageTransfers::start() {
  for (const Direction direction : {Direction::kToHost, Direction::kToCache})
    if (lane(direction).next) start_next(direction);
  for (Lane& lane : lanes_)
    if (const auto batch = find_started(lane, std::exchange(lane.held, 0)); batch != nullptr)
      batch->ended.wait(false);
}

void PageTransfers::start_next(Direction direction) {
  Lane& own = lane(direction);
  const std::shared_ptr<CopyBatch> batch = own.started.emplace_back(std::exchange(own.next, nullptr));
  own.queue->start(batch, find_started(lane(other(direction)), batch->after));
}

std::shared_ptr<CopyBatch> PageTransfers::find_started(const Lane& lane, int64_t number) {
  if (number <= lane.num_ended) return nullptr;
  return lane.started.at(static_cast<size_t>(number - lane.num_ended - 1));
}

void PageTransfers::update(Lane& lane) {
  lane.queue->check();
  while (!lane.started.empty() && lane.started.front()->ended) {
    const std::shared_ptr<CopyBatch> batch = std::move(lane.started.front());
    lane.started.pop_front();
    lane.num_ended = batch->number;
    for (size_t kind = 0; kind < kNumPageDataKinds; ++kind)
      for (const kernels::PageCopy& copy : batch->copies[kind]) {
        const auto found = lane.busy.find(key(static_cast<PageDataKind>(kind), copy.page));
        if (found != lane.busy.end() && found->second == batch->number) lane.busy.erase(found);
      }
  }
}

int64_t PageTransfers::num_ended(Direction direction) {
  update(lane(direction));
  return lane(direction).num_ended;
}

int64_t PageTransfers::batch_of(Direction direction, PageDataKind kind, int index) const {
  const auto found = lane(direction).busy.find(key(kind, index));
  return found == lane(direction).busy.end() ? 0 : found->second;
}

void PageTransfers::drain() {
  start();
  for (Lane& lane : lanes_) {
    if (!lane.started.empty()) lane.started.back()->ended.wait(false);
    update(lane);
  }
}

}  // namespace attend
