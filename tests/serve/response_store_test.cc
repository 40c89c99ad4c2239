// The store of responses: limits, shared items, and pages of input items.
#include "attend/serve/protocols/responses/response_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <random>

#include "attend/serve/json/fields.h"
#include "attend/serve/protocols/responses/stored_responses.h"

namespace attend::serve {
namespace {

using testing::HasSubstr;

std::vector<ResponseItem> new_items(const std::vector<std::string>& ids) {
  std::vector<ResponseItem> all;
  for (const std::string& id : ids)
    all.push_back({.id = id, .json = R"({"id":")" + id + R"("})", .has_server_id = true});
  return all;
}

TEST(ResponseStore, DropsTheLeastRecentlyUsedResponse) {
  ResponseStore store({.max_responses = 2});
  store.add("a", "{}", new_items({"1"}), {});
  store.add("b", "{}", new_items({"2"}), {});
  EXPECT_TRUE(store.find("a"));
  store.add("c", "{}", new_items({"3"}), {});
  EXPECT_TRUE(store.find("a"));
  EXPECT_FALSE(store.find("b"));
  EXPECT_FALSE(store.find_item("2"));
  EXPECT_EQ(store.find_item("3")->json, R"({"id":"3"})");
  EXPECT_TRUE(store.erase("a"));
  EXPECT_FALSE(store.erase("a"));
  EXPECT_EQ(store.num_responses(), 1u);
}

TEST(ResponseStore, SharesItemsOfAConversation) {
  ResponseStore store({});
  std::vector<std::string> ids;
  const std::string text(10000, 'x');
  for (int i = 0; i < 50; ++i) {
    std::vector<ResponseItem> conversation;
    for (const std::string& id : ids) conversation.push_back({id, text + id});
    store.add("r" + std::to_string(i), "{}", conversation,
              {{"new" + std::to_string(i), text + "new" + std::to_string(i)}});
    ids.push_back("new" + std::to_string(i));
  }
  EXPECT_EQ(store.num_responses(), 50u);
  EXPECT_LT(store.num_bytes(), 50 * (text.size() + 2000));
}

TEST(ResponseStore, KeepsOthersIfAResponseIsTooLarge) {
  ResponseStore store({.max_responses = 9, .max_bytes = 4000});
  store.add("a", "{}", new_items({"1"}), {});
  store.add("b", std::string(4000, 'x'), new_items({"1"}), {});
  EXPECT_TRUE(store.find("a"));
  EXPECT_FALSE(store.find("b"));
  EXPECT_TRUE(store.find_item("1"));
  ResponseStore none({.max_responses = 0});
  none.add("a", "{}", new_items({"1"}), {});
  EXPECT_FALSE(none.find("a"));
  EXPECT_EQ(none.num_bytes(), 0u);
}

// A conversation that continues an erased response keeps its items, which are not found by their ids.
TEST(ResponseStore, ForgetsTheOutputOfAnErasedResponse) {
  ResponseStore store({});
  store.add("a", "{}", new_items({"1"}), new_items({"2"}));
  store.add("b", "{}", new_items({"1", "2", "3"}), new_items({"4"}));
  EXPECT_TRUE(store.find_item("2"));
  store.erase("a");
  EXPECT_FALSE(store.find_item("2"));
  EXPECT_TRUE(store.find_item("4"));
  EXPECT_EQ(store.find("b")->items[1]->id, "2");
  store.add("c", "{}", new_items({"1", "2", "3", "4", "5"}), new_items({"6"}));
  EXPECT_FALSE(store.find_item("2"));
}

// A list of ids in order of use is the specification.
TEST(ResponseStoreProperty, MatchesAListOfResponses) {
  std::mt19937 random(3);
  for (int round = 0; round < 20; ++round) {
    const size_t limit = 1 + random() % 6;
    ResponseStore store({.max_responses = limit});
    std::deque<std::string> order;  // the most recently used first
    std::map<std::string, std::vector<std::string>> contents;
    const auto use = [&](const std::string& id) {
      std::erase(order, id);
      order.push_front(id);
    };
    for (int step = 0; step < 200; ++step) {
      const std::string id = std::to_string(random() % 10);
      const bool is_known = std::ranges::find(order, id) != order.end();
      switch (random() % 3) {
        case 0: {
          std::vector<std::string> ids;
          for (size_t i = random() % 4; i > 0; --i) ids.push_back("i" + std::to_string(random() % 6));
          contents[id] = ids;
          store.add(id, "{}", new_items(ids), {});
          use(id);
          if (order.size() > limit) order.pop_back();
          break;
        }
        case 1: {
          const auto found = store.find(id);
          ASSERT_EQ(found != nullptr, is_known);
          if (!found) break;
          use(id);
          ASSERT_EQ(found->items.size(), contents[id].size());
          for (size_t i = 0; i < found->items.size(); ++i) ASSERT_EQ(found->items[i]->id, contents[id][i]);
          break;
        }
        case 2:
          ASSERT_EQ(store.erase(id), is_known);
          std::erase(order, id);
          break;
      }
      ASSERT_EQ(store.num_responses(), order.size());
      for (int i = 0; i < 6; ++i) {
        const std::string item = "i" + std::to_string(i);
        const bool is_used = std::ranges::any_of(
            order, [&](const std::string& each) { return std::ranges::count(contents[each], item) > 0; });
        ASSERT_EQ(store.find_item(item) != nullptr, is_used);
      }
    }
    while (!order.empty()) {
      store.erase(order.front());
      order.pop_front();
    }
    EXPECT_EQ(store.num_bytes(), 0u);
  }
}

std::string store_error(const std::function<void()>& task) {
  try {
    task();
  } catch (const ApiError& error) {
    return std::to_string(error.status) + " " + error.message;
  }
  return "";
}

TEST(StoredResponses, ListInputItemsInPages) {
  ResponseStore store({});
  store.add("r", "{}", new_items({"a", "b", "c"}), new_items({"d"}));
  const auto page = [&](const std::string& query) { return Json::parse(input_item_list(store, "r", query)); };
  const auto ids = [](const Json& list) {
    std::string all;
    for (const Json& item : list["data"]) all += item["id"].get<std::string>();
    return all;
  };
  EXPECT_EQ(ids(page("")), "cba");
  EXPECT_EQ(ids(page("order=asc&include%5B%5D=x")), "abc");
  const Json first = page("order=asc&limit=2");
  EXPECT_EQ(ids(first), "ab");
  EXPECT_EQ(first["has_more"], true);
  EXPECT_EQ(first["last_id"], "b");
  const Json rest = page("order=asc&limit=2&after=b");
  EXPECT_EQ(ids(rest), "c");
  EXPECT_EQ(rest["has_more"], false);
  EXPECT_EQ(page("after=a")["first_id"], nullptr);
  EXPECT_THAT(store_error([&] { page("limit=0"); }),
              HasSubstr("400 limit \"0\": expected an integer from 1 to 100"));
  EXPECT_THAT(store_error([&] { page("limit=9x"); }), HasSubstr("400 limit"));
  EXPECT_THAT(store_error([&] { page("order=up"); }), HasSubstr("400 order \"up\""));
  EXPECT_THAT(store_error([&] { page("after=d"); }), HasSubstr("400 after \"d\": no input item"));
}

TEST(StoredResponses, AreReturnedAndDeletedOnce) {
  ResponseStore store({});
  store.add("r", R"({"id":"r"})", {}, {});
  EXPECT_EQ(stored_response(store, "r", ""), R"({"id":"r"})");
  EXPECT_THAT(store_error([&] { stored_response(store, "r", "stream=true"); }), HasSubstr("400 stream: "));
  EXPECT_THAT(store_error([&] { cancel_response(store, "r"); }), HasSubstr("400 response \"r\": has ended"));
  EXPECT_EQ(delete_response(store, "r"), R"({"id":"r","object":"response","deleted":true})");
  for (const auto& task : {std::function<void()>([&] { stored_response(store, "r", ""); }),
                           std::function<void()>([&] { delete_response(store, "r"); }),
                           std::function<void()>([&] { cancel_response(store, "r"); })})
    EXPECT_EQ(store_error(task), "404 response \"r\": not stored");
}

}  // namespace
}  // namespace attend::serve
