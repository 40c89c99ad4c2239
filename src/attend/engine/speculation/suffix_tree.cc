#include "attend/engine/speculation/suffix_tree.h"

#include <algorithm>

#include "attend/base/error.h"

namespace attend {

SuffixTree::SuffixTree(int max_depth) : max_depth_(max_depth), nodes_(1) {
  ensure(max_depth >= 1, "suffix tree of depth ", max_depth);
}

int64_t SuffixTree::begin() {
  sequences_.emplace_back();
  return end_sequence() - 1;
}

void SuffixTree::append(int64_t sequence, int32_t token) {
  ensure(has(sequence), "suffix tree: no sequence ", sequence);
  auto& [tokens, ends] = sequences_[static_cast<size_t>(sequence - first_sequence_)];
  const auto position = static_cast<int32_t>(tokens.size());
  tokens.push_back(token);
  ends.push_back(kRoot);
  ++num_tokens_;
  for (auto start = std::max(0, position + 1 - max_depth_); start <= position; ++start) {
    int32_t& end = ends[static_cast<size_t>(start)];
    end = extend(end, sequence, position, token);
  }
}

void SuffixTree::remove_oldest() {
  ensure(!sequences_.empty(), "suffix tree: no sequence to remove");
  for (const int32_t end : sequences_.front().ends) remove_suffix(end);
  num_tokens_ -= std::ssize(sequences_.front().tokens);
  sequences_.pop_front();
  ++first_sequence_;
}

int32_t SuffixTree::extend(int32_t from, int64_t sequence, int32_t position, int32_t token) {
  // The only suffix of a leaf takes the leaf along.
  if (from != kRoot && node(from).count == 1) {
    ++node(from).length;
    return from;
  }
  if (from != kRoot) --node(from).num_ends;
  const Node label{.sequence = sequence, .start = position, .length = 1, .token = token};
  int32_t to = children_.find(from, token);
  if (to == kNone) {
    add_leaf(from, label, to);
  } else {
    if (node(to).length > 1) to = split(to);
    increment(to);
    if (sequence >= node(to).sequence) {
      node(to).sequence = sequence;
      node(to).start = position;
    }
  }
  ++node(to).num_ends;
  merge_into_child(from);
  return to;
}

void SuffixTree::remove_suffix(int32_t end) {
  --node(end).num_ends;
  int32_t lowest = kNone;  // lowest remaining node of the path
  for (int32_t id = end; id != kRoot;) {
    const int32_t parent = node(id).parent;
    if (node(id).count == 1) {
      remove_leaf(id);
    } else {
      decrement(id);
      if (lowest == kNone) lowest = id;
    }
    id = parent;
  }
  if (lowest != kNone) merge_into_child(lowest);
}

int32_t SuffixTree::split(int32_t id) {
  Node upper = node(id);
  upper.length = 1;
  upper.num_ends = 0;
  upper.first_child = id;
  const int32_t upper_id = add_node(upper);
  replace(id, upper_id);
  Node& lower = node(id);
  lower.token = label_token(lower, 1);
  ++lower.start;
  --lower.length;
  lower.parent = upper_id;
  lower.prev = id;
  lower.next = kNone;
  lower.run = add_run(id);
  children_.set(upper.parent, upper.token, upper_id);
  children_.set(upper_id, lower.token, id);
  return upper_id;
}

void SuffixTree::merge_into_child(int32_t id) {
  const Node upper = node(id);
  if (id == kRoot || upper.num_ends > 0 || !has_one_child(upper)) return;
  const int32_t child = upper.first_child;
  Node& lower = node(child);
  children_.remove(id, lower.token);
  free_runs_.push_back(lower.run);
  lower.token = upper.token;
  lower.start -= upper.length;
  lower.length += upper.length;
  replace(id, child);
  children_.set(upper.parent, upper.token, child);
  free_nodes_.push_back(id);
}

bool SuffixTree::has_one_child(const Node& node) const {
  return node.first_child != kNone && this->node(node.first_child).next == kNone;
}

int32_t SuffixTree::label_token(const Node& node, int32_t offset) const {
  return sequences_[static_cast<size_t>(node.sequence - first_sequence_)]
      .tokens[static_cast<size_t>(node.start + offset)];
}

int32_t SuffixTree::add_node(const Node& added) {
  if (free_nodes_.empty()) {
    nodes_.push_back(added);
    return static_cast<int32_t>(nodes_.size()) - 1;
  }
  const int32_t id = free_nodes_.back();
  free_nodes_.pop_back();
  node(id) = added;
  return id;
}

int32_t SuffixTree::add_run(int32_t id) {
  if (free_runs_.empty()) {
    runs_.push_back({id, id});
    return static_cast<int32_t>(runs_.size()) - 1;
  }
  const int32_t run_id = free_runs_.back();
  free_runs_.pop_back();
  run(run_id) = {id, id};
  return run_id;
}

void SuffixTree::add_leaf(int32_t parent, const Node& leaf, int32_t& id) {
  id = add_node(leaf);
  children_.set(parent, leaf.token, id);
  node(id).parent = parent;
  node(id).count = 1;
  const int32_t first = node(parent).first_child;
  if (first == kNone) {
    node(parent).first_child = node(id).prev = id;
    node(id).run = add_run(id);
    return;
  }
  const int32_t last = node(first).prev;
  if (node(last).count > 1) {
    link_after(id, last);
    node(id).run = add_run(id);
    return;
  }
  const int32_t run_id = node(last).run;
  link_before(id, run(run_id).first);
  node(id).run = run_id;
  run(run_id).first = id;
}

void SuffixTree::increment(int32_t id) {
  const int32_t count = node(id).count, first = run(node(id).run).first;
  const bool is_front = node(node(id).parent).first_child == first;
  const int32_t above = is_front ? kNone : node(first).prev;
  const bool joins = above != kNone && node(above).count == count + 1;
  const int32_t place = joins ? run(node(above).run).first : first;
  remove_from_run(id);
  if (place != id) {
    unlink(id);
    link_before(id, place);
  }
  node(id).count = count + 1;
  node(id).run = joins ? node(above).run : add_run(id);
  run(node(id).run).first = id;
}

void SuffixTree::decrement(int32_t id) {
  const int32_t count = node(id).count, last = run(node(id).run).last, below = node(last).next;
  const bool joins = below != kNone && node(below).count == count - 1;
  remove_from_run(id);
  if (last != id) {
    unlink(id);
    link_after(id, last);
  }
  node(id).count = count - 1;
  node(id).run = joins ? node(below).run : add_run(id);
  run(node(id).run).first = id;
}

void SuffixTree::remove_leaf(int32_t id) {
  children_.remove(node(id).parent, node(id).token);
  remove_from_run(id);
  unlink(id);
  free_nodes_.push_back(id);
}

void SuffixTree::remove_from_run(int32_t id) {
  Run& run = this->run(node(id).run);
  if (run.first == run.last)
    free_runs_.push_back(node(id).run);
  else if (run.first == id)
    run.first = node(id).next;
  else if (run.last == id)
    run.last = node(id).prev;
}

void SuffixTree::unlink(int32_t id) {
  const auto [prev, next] = std::pair(node(id).prev, node(id).next);
  int32_t& first = node(node(id).parent).first_child;
  if (first == id)
    first = next;
  else
    node(prev).next = next;
  if (next != kNone)
    node(next).prev = prev;
  else if (first != kNone)
    node(first).prev = prev;
}

void SuffixTree::link_before(int32_t id, int32_t place) {
  int32_t& first = node(node(place).parent).first_child;
  node(id).prev = node(place).prev;
  node(id).next = place;
  if (first == place)
    first = id;
  else
    node(node(place).prev).next = id;
  node(place).prev = id;
}

void SuffixTree::link_after(int32_t id, int32_t place) {
  const int32_t next = node(place).next;
  node(id).prev = place;
  node(id).next = next;
  node(place).next = id;
  node(next != kNone ? next : node(node(place).parent).first_child).prev = id;
}

void SuffixTree::replace(int32_t before, int32_t by) {
  const Node old = node(before);
  node(by).parent = old.parent;
  node(by).run = old.run;
  node(by).next = old.next;
  node(by).prev = old.prev == before ? by : old.prev;
  int32_t& first = node(old.parent).first_child;
  if (first == before)
    first = by;
  else
    node(old.prev).next = by;
  if (old.next != kNone)
    node(old.next).prev = by;
  else
    node(first).prev = by;
  Run& run = this->run(old.run);
  if (run.first == before) run.first = by;
  if (run.last == before) run.last = by;
}

bool SuffixTree::follow(Place& place, int32_t token) const {
  if (place.offset < node(place.node).length) {
    if (label_token(node(place.node), place.offset) != token) return false;
    ++place.offset;
    return true;
  }
  const int32_t child = children_.find(place.node, token);
  if (child == kNone) return false;
  place = {child, 1};
  return true;
}

double SuffixTree::follow_best(Place& place, int32_t& token) const {
  const Node& at = node(place.node);
  if (place.offset < at.length) {
    token = label_token(at, place.offset++);
    return 1.0;
  }
  if (at.first_child == kNone) return 0.0;
  place = {at.first_child, 1};
  token = node(place.node).token;
  return static_cast<double>(node(place.node).count) / (at.count - at.num_ends);
}

SuffixPrediction SuffixTree::predict(std::span<const int32_t> text, const SuffixLimits& limits) const {
  SuffixPrediction best;
  const auto longest = static_cast<int>(std::min(text.size(), static_cast<size_t>(max_depth_ - 1)));
  for (int num_matched = 1; num_matched <= longest; ++num_matched) {
    Place place;
    for (const int32_t token : text.last(static_cast<size_t>(num_matched)))
      if (!follow(place, token)) return best;  // longer runs do not occur either
    SuffixPrediction found{.tokens = {}, .num_matched = num_matched};
    const auto most = std::min<double>(limits.max_tokens, limits.max_match_factor * num_matched);
    double probability = 1.0;
    for (int32_t token = 0; static_cast<double>(found.tokens.size()) + 1.0 <= most;) {
      probability *= follow_best(place, token);
      if (probability <= 0.0 || probability < limits.min_probability) break;
      found.tokens.push_back(token);
      found.score += probability;
    }
    if (!found.tokens.empty() && found.score >= best.score) best = std::move(found);
  }
  return best;
}

int SuffixTree::count(std::span<const int32_t> tokens) const {
  Place place;
  for (const int32_t token : tokens)
    if (!follow(place, token)) return 0;
  return tokens.empty() ? static_cast<int>(num_tokens_) : node(place.node).count;
}

size_t SuffixTree::num_bytes() const {
  size_t bytes = nodes_.capacity() * sizeof(Node) + runs_.capacity() * sizeof(Run) + children_.num_bytes() +
                 (free_nodes_.capacity() + free_runs_.capacity()) * sizeof(int32_t);
  for (const Sequence& sequence : sequences_)
    bytes += sizeof sequence + (sequence.tokens.capacity() + sequence.ends.capacity()) * sizeof(int32_t);
  return bytes;
}

}  // namespace attend
