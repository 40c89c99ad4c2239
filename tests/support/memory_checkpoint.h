// Checkpoint in memory, an example of a reader of another format.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "attend/base/error.h"
#include "attend/checkpoint/checkpoint.h"
#include "attend/checkpoint/json.h"

namespace attend::test {

class MemoryTensors : public CheckpointTensors {
 public:
  explicit MemoryTensors(const std::map<std::string, Tensor>& tensors) : CheckpointTensors("memory") {
    for (const auto& [name, tensor] : tensors) {
      const TensorView& view = tensor.view();
      entries_.emplace(name, Named{{.name = name,
                                    .dtype_name = std::string(to_string(view.dtype)),
                                    .dtype = view.dtype,
                                    .shape = {view.shape.begin(), view.shape.begin() + view.rank},
                                    .begin = 0,
                                    .end = view.num_bytes()},
                                   tensor});
    }
  }

  bool contains(std::string_view name) const override { return entries_.contains(std::string(name)); }
  std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const auto& [name, named] : entries_) names.push_back(name);
    return names;
  }
  const TensorEntry& entry(std::string_view name) const override { return at(name).entry; }
  Tensor tensor(std::string_view name) const override { return at(name).tensor; }
  std::string read(std::string_view name) const override {
    const TensorView& view = at(name).tensor.view();
    return {static_cast<const char*>(view.data), view.num_bytes()};
  }
  std::string where(std::string_view name) const override { return "memory: " + std::string(name); }
  void fetch(std::string_view, uint64_t begin, uint64_t end,
             const std::function<void(size_t bytes)>& fetched) const override {
    fetched(end - begin);
  }
  void prefetch_all(const std::atomic<bool>&) const override {}
  void check_unchanged() const override {}

 private:
  struct Named {
    TensorEntry entry;
    Tensor tensor;
  };
  const Named& at(std::string_view name) const {
    const auto found = entries_.find(std::string(name));
    if (found == entries_.end()) fail(ErrorCode::kNotFound, "memory: no tensor \"", name, "\"");
    return found->second;
  }

  std::map<std::string, Named> entries_;
};

struct MemoryCheckpoint : Checkpoint {
  MemoryCheckpoint() : Checkpoint("memory") {}

  JsonNode config() const override { return JsonNode(parse_json(config_text, "config"), "config"); }
  std::optional<JsonNode> find(CheckpointDocument document) const override {
    const auto found = documents.find(document);
    if (found == documents.end()) return std::nullopt;
    return JsonNode(parse_json(found->second, "document"), "document");
  }
  std::optional<CheckpointText> chat_template() const override {
    if (template_text.empty()) return std::nullopt;
    return CheckpointText{.where = "template", .text = template_text};
  }
  bool has_tensors() const override { return !tensors.empty(); }
  std::shared_ptr<const CheckpointTensors> open_tensors() const override {
    return std::make_shared<MemoryTensors>(tensors);
  }

  std::string config_text, template_text;
  std::map<CheckpointDocument, std::string> documents;
  std::map<std::string, Tensor> tensors;
};

}  // namespace attend::test
