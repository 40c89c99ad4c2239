// ResponseStore: replies to POST /v1/responses with their conversations, for later requests that continue
// them. It has a limited size and drops what was used least recently.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace attend::serve {

struct ResponseStoreLimits {
  size_t max_responses = 1024;  // 0: nothing is stored
  size_t max_bytes = size_t{256} << 20;
};

// Item of a conversation.
struct ResponseItem {
  std::string id;
  std::string json;
  // The id is the server's, which other clients cannot guess. Ids of clients may be equal.
  bool has_server_id = false;
};

struct StoredResponse {
  std::string json;  // the response object
  // Items of the conversation: the input with all earlier items, then the output.
  std::vector<std::shared_ptr<const ResponseItem>> items;
  size_t num_input = 0;  // items of the input
};

// Responses of one conversation share their items. Thread-safe.
class ResponseStore {
 public:
  explicit ResponseStore(ResponseStoreLimits limits) : limits_(limits) {}

  const ResponseStoreLimits& limits() const { return limits_; }
  // Stores a response. If it exceeds max_bytes, nothing changes.
  void add(const std::string& id, std::string json, std::vector<ResponseItem> input,
           std::vector<ResponseItem> output);
  // Returns null if there is no response with this id. Counts as a use.
  std::shared_ptr<const StoredResponse> find(const std::string& id);
  // Returns null if no stored response contains an item with this id, if a client chose the id, or if the
  // response whose output it is was erased.
  std::shared_ptr<const ResponseItem> find_item(const std::string& id) const;
  // Returns false if there is no response with this id. Conversations that continue the response keep its
  // items.
  bool erase(const std::string& id);

  size_t num_responses() const;
  // Bytes of all responses and items. An item that several responses contain counts once.
  size_t num_bytes() const;

 private:
  struct Entry {
    std::string id;
    std::shared_ptr<const StoredResponse> response;
    size_t num_own_bytes = 0;  // without items
  };
  struct SharedItem {
    std::shared_ptr<const ResponseItem> item;
    size_t num_uses = 0;
    bool is_erased = false;  // the response whose output it is was erased
  };
  using Entries = std::list<Entry>;

  std::shared_ptr<const ResponseItem> share(ResponseItem item);
  void release(const ResponseItem& item);
  void drop(Entries::iterator entry);

  const ResponseStoreLimits limits_;
  mutable std::mutex mutex_;
  Entries entries_;                                                // the most recently used first
  std::unordered_map<std::string_view, Entries::iterator> by_id_;  // keys are ids of entries
  // Keys are ids of items. Items of clients may have equal ids.
  std::unordered_multimap<std::string_view, SharedItem> items_;
  size_t num_bytes_ = 0;
};

}  // namespace attend::serve
