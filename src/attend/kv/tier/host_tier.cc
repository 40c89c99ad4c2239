#include "attend/kv/tier/host_tier.h"

#include <algorithm>
#include <string_view>

#include "attend/base/error.h"
#include "attend/base/math.h"
#include "attend/base/parallel.h"
#include "attend/tensor/arena.h"
#include "attend/tensor/cuda.h"

namespace attend {

size_t HostTier::Config::num_bytes() const {
  size_t bytes = 0;
  for (size_t kind = 0; kind < kNumPageDataKinds; ++kind)
    bytes += Arena::padded_bytes(static_cast<size_t>(num_cells[kind]) * cell_bytes[kind]);
  return bytes;
}

HostTier::HostTier(const Config& config) : config_(config) {
  constexpr std::string_view kOwner = "host tier of the prefix cache";
  Arena arena(config.num_bytes(), kOwner);
  for (size_t kind = 0; kind < kNumPageDataKinds; ++kind) {
    const int count = config.num_cells[kind];
    const size_t bytes = static_cast<size_t>(count) * config.cell_bytes[kind];
    if (bytes > 0) kinds_[kind].memory = arena.allocate({static_cast<int64_t>(bytes)}, DType::kU8);
    kinds_[kind].free.reserve(static_cast<size_t>(count));
    for (int cell = count - 1; cell >= 0; --cell) kinds_[kind].free.push_back(cell);
  }
  if (config.device.type == DeviceType::kCpu || config.num_bytes() == 0) return;
  // The first tensor is at the start of the arena. Threads touch the memory faster than the driver does.
  const auto first =
      std::ranges::find_if(kinds_, [](const Kind& kind) { return kind.memory.view().data != nullptr; });
  auto* const memory = static_cast<std::byte*>(first->memory.view().data);
  constexpr size_t kTouched = 2 << 20;
  parallel_for(static_cast<int64_t>(ceil_div(config.num_bytes(), kTouched)),
               [&](int64_t i, int) { memory[static_cast<size_t>(i) * kTouched] = std::byte{0}; });
  lock_ = cuda::lock_pages(memory, config.num_bytes(), config.device);
}

std::byte* HostTier::find(const PageHash& page, PageDataKind kind) const {
  const auto found = entries_.find(page);
  if (found == entries_.end() || found->second.cells[index(kind)] < 0) return nullptr;
  return address(index(kind), found->second.cells[index(kind)]);
}

std::byte* HostTier::add(const PageHash& page, PageDataKind kind) {
  ensure(!has(page, kind), "host tier: page ", page.hex(), " is already here");
  Kind& of_kind = kinds_[index(kind)];
  if (of_kind.free.empty()) {
    if (of_kind.by_age.empty()) return nullptr;
    // The added page itself may be the oldest one; it is then added again.
    Entry& oldest = *of_kind.by_age.front();
    if (kind == PageDataKind::kTokens)
      drop(oldest);
    else
      drop_cell(oldest, index(kind));
  }
  Entry& entry = entries_.try_emplace(page, Entry{.page = page}).first->second;
  const int cell = entry.cells[index(kind)] = of_kind.free.back();
  of_kind.free.pop_back();
  entry.is_stored = false;
  if (entry.num_pins > 0)
    ++of_kind.num_pinned;
  else
    entry.ages[index(kind)] = of_kind.by_age.insert(of_kind.by_age.end(), &entry);
  return address(index(kind), cell);
}

void HostTier::touch(const PageHash& page) {
  const auto found = entries_.find(page);
  if (found == entries_.end() || found->second.num_pins > 0) return;
  Entry& entry = found->second;
  for (size_t kind = 0; kind < kNumPageDataKinds; ++kind)
    if (entry.cells[kind] >= 0) {
      Age& by_age = kinds_[kind].by_age;
      by_age.splice(by_age.end(), by_age, entry.ages[kind]);
    }
}

void HostTier::pin(const PageHash& page) {
  Entry& entry = entries_.at(page);
  if (entry.num_pins++ > 0) return;
  for (size_t kind = 0; kind < kNumPageDataKinds; ++kind)
    if (entry.cells[kind] >= 0) {
      kinds_[kind].by_age.erase(entry.ages[kind]);
      ++kinds_[kind].num_pinned;
    }
}

void HostTier::unpin(const PageHash& page) {
  Entry& entry = entries_.at(page);
  ensure(entry.num_pins > 0, "host tier: page ", page.hex(), " is not pinned");
  if (--entry.num_pins > 0) return;
  for (size_t kind = 0; kind < kNumPageDataKinds; ++kind)
    if (entry.cells[kind] >= 0) {
      Age& by_age = kinds_[kind].by_age;
      entry.ages[kind] = by_age.insert(by_age.end(), &entry);
      --kinds_[kind].num_pinned;
    }
}

void HostTier::clear() {
  for (auto next = entries_.begin(); next != entries_.end();) {
    Entry& entry = (next++)->second;
    if (entry.num_pins == 0) drop(entry);
  }
}

bool HostTier::is_stored(const PageHash& page) const {
  const auto found = entries_.find(page);
  return found != entries_.end() && found->second.is_stored;
}

void HostTier::set_stored(const PageHash& page, bool is_stored) {
  if (const auto found = entries_.find(page); found != entries_.end()) found->second.is_stored = is_stored;
}

std::byte* HostTier::address(size_t kind, int cell) const {
  return static_cast<std::byte*>(kinds_[kind].memory.view().data) +
         static_cast<size_t>(cell) * config_.cell_bytes[kind];
}

// Entries without pins only.
void HostTier::drop_cell(Entry& entry, size_t kind) {
  kinds_[kind].free.push_back(std::exchange(entry.cells[kind], -1));
  kinds_[kind].by_age.erase(entry.ages[kind]);
  if (std::ranges::all_of(entry.cells, [](int cell) { return cell < 0; })) {
    const PageHash page = entry.page;
    entries_.erase(page);
  }
}

void HostTier::drop(Entry& entry) {
  for (size_t kind = 0; kind < kNumPageDataKinds; ++kind) {
    if (entry.cells[kind] < 0) continue;
    kinds_[kind].free.push_back(std::exchange(entry.cells[kind], -1));
    kinds_[kind].by_age.erase(entry.ages[kind]);
  }
  const PageHash page = entry.page;
  entries_.erase(page);
}

void HostTier::check() const {
  for (size_t kind = 0; kind < kNumPageDataKinds; ++kind) {
    const Kind& of_kind = kinds_[kind];
    std::vector<bool> seen(static_cast<size_t>(config_.num_cells[kind]), false);
    const auto see = [&](int cell) {
      ensure(cell >= 0 && cell < config_.num_cells[kind] && !seen[static_cast<size_t>(cell)],
             "host tier: cell ", cell, " of kind ", kind, " has two owners, or is not of the tier");
      seen[static_cast<size_t>(cell)] = true;
    };
    for (const int cell : of_kind.free) see(cell);
    size_t num_cached = 0;
    int num_pinned = 0;
    for (const auto& [page, entry] : entries_) {
      ensure(page == entry.page && std::ranges::any_of(entry.cells, [](int cell) { return cell >= 0; }),
             "host tier: page ", page.hex(), " has no data");
      if (entry.cells[kind] < 0) continue;
      see(entry.cells[kind]);
      num_cached += entry.num_pins == 0 ? 1 : 0;
      num_pinned += entry.num_pins > 0 ? 1 : 0;
    }
    ensure(num_cached == of_kind.by_age.size() && num_pinned == of_kind.num_pinned, "host tier: kind ", kind,
           " counts ", of_kind.by_age.size(), " cached and ", of_kind.num_pinned, " pinned cells, has ",
           num_cached, " and ", num_pinned);
    ensure(std::ranges::find(seen, false) == seen.end(), "host tier: ", of_kind.free.size(), " free, ",
           num_cached, " cached and ", num_pinned, " pinned cells of kind ", kind, "; expected a sum of ",
           config_.num_cells[kind]);
  }
}

}  // namespace attend
