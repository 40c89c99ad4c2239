// Chain: things that wait in a row, each once. Nothing of it takes memory.
#pragma once

#include <memory>
#include <utility>

namespace attend::serve {

template <class T>
class Chain;

// What a T derives from to be in one Chain<T> at a time.
template <class T>
class Link {
 private:
  friend class Chain<T>;
  std::shared_ptr<T> next_;
  bool in_chain_ = false;
};

// Of one thread, or under the owner's lock.
template <class T>
class Chain {
 public:
  Chain() = default;
  ~Chain() {
    while (take_first()) {
    }
  }
  Chain(const Chain&) = delete;

  bool empty() const { return first_ == nullptr; }
  // At the end, unless it waits already.
  void add(std::shared_ptr<T> item) noexcept {
    Link<T>& link = *item;
    if (std::exchange(link.in_chain_, true)) return;
    T* const last = item.get();
    (last_ ? static_cast<Link<T>*>(last_)->next_ : first_) = std::move(item);
    last_ = last;
  }
  void swap(Chain& other) noexcept {
    first_.swap(other.first_);
    std::swap(last_, other.last_);
  }
  // Null: none waits.
  std::shared_ptr<T> take_first() noexcept {
    if (!first_) return nullptr;
    std::shared_ptr<T> item = std::move(first_);
    Link<T>& link = *item;
    first_ = std::move(link.next_);
    link.in_chain_ = false;
    if (!first_) last_ = nullptr;
    return item;
  }

 private:
  std::shared_ptr<T> first_;
  T* last_ = nullptr;
};

}  // namespace attend::serve
