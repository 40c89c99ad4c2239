// IntrusiveList: queue in which each item is at most once. It allocates no memory.
#pragma once

#include <memory>
#include <utility>

namespace attend::serve {

template <class T>
class IntrusiveList;

// Base class of a T that can be in one IntrusiveList<T> at a time.
template <class T>
class ListHook {
 private:
  friend class IntrusiveList<T>;
  std::shared_ptr<T> next_;
  bool in_list_ = false;
};

// Used by one thread, or under the owner's lock.
template <class T>
class IntrusiveList {
 public:
  IntrusiveList() = default;
  ~IntrusiveList() {
    while (pop_front()) {
    }
  }
  IntrusiveList(const IntrusiveList&) = delete;

  bool empty() const { return first_ == nullptr; }
  // Appends the item, unless it is already in the list.
  void add(std::shared_ptr<T> item) noexcept {
    ListHook<T>& hook = *item;
    if (std::exchange(hook.in_list_, true)) return;
    T* const last = item.get();
    (last_ ? static_cast<ListHook<T>*>(last_)->next_ : first_) = std::move(item);
    last_ = last;
  }
  void swap(IntrusiveList& other) noexcept {
    first_.swap(other.first_);
    std::swap(last_, other.last_);
  }
  // Returns null if the list is empty.
  std::shared_ptr<T> pop_front() noexcept {
    if (!first_) return nullptr;
    std::shared_ptr<T> item = std::move(first_);
    ListHook<T>& hook = *item;
    first_ = std::move(hook.next_);
    hook.in_list_ = false;
    if (!first_) last_ = nullptr;
    return item;
  }

 private:
  std::shared_ptr<T> first_;
  T* last_ = nullptr;
};

}  // namespace attend::serve
