#include "attend/checkpoint/gguf/gguf_tokenizer.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <unordered_map>
#include <vector>

#include "attend/base/error.h"
#include "attend/base/log.h"

namespace attend {
namespace {

// Values of tokenizer.ggml.token_type.
enum TokenType : int64_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

constexpr const char* kModelKey = "tokenizer.ggml.model";
constexpr const char* kPreKey = "tokenizer.ggml.pre";
constexpr const char* kTokensKey = "tokenizer.ggml.tokens";
constexpr const char* kTypesKey = "tokenizer.ggml.token_type";
constexpr const char* kScoresKey = "tokenizer.ggml.scores";
constexpr const char* kMergesKey = "tokenizer.ggml.merges";

// Patterns that split a text before BPE, as in the published tokenizers with these names.
constexpr const char* kGpt2Pattern = "";  // part of ByteLevel
constexpr const char* kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kO200kPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kTekkenPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kDeepseekPattern =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kThreeDigits = R"(\p{N}{1,3})";
constexpr const char* kCjk = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+";

struct PreTokenizerRow {
  std::string_view name;
  std::vector<std::string_view> patterns;  // applied in turn
  bool normalizes = false;                 // NFC
  bool splits_digits = false;              // each digit separately, before the patterns
  bool ignores_merges = false;             // words that are tokens are not merged
  bool adds_bos = false;                   // unless the metadata decides
};

const std::vector<PreTokenizerRow>& pre_tokenizers() {
  static const std::vector<PreTokenizerRow> rows = {
      {.name = "gpt-2", .patterns = {kGpt2Pattern}},
      {.name = "gpt2", .patterns = {kGpt2Pattern}},
      {.name = "olmo", .patterns = {kGpt2Pattern}},
      {.name = "mpt", .patterns = {kGpt2Pattern}},
      {.name = "llama-bpe", .patterns = {kLlama3Pattern}, .ignores_merges = true, .adds_bos = true},
      {.name = "llama3", .patterns = {kLlama3Pattern}, .ignores_merges = true, .adds_bos = true},
      {.name = "llama-v3", .patterns = {kLlama3Pattern}, .ignores_merges = true, .adds_bos = true},
      {.name = "lfm2", .patterns = {kLlama3Pattern}, .ignores_merges = true, .adds_bos = true},
      {.name = "dbrx", .patterns = {kLlama3Pattern}},
      {.name = "smaug-bpe", .patterns = {kLlama3Pattern}},
      {.name = "glm4", .patterns = {kLlama3Pattern}},
      {.name = "chatglm-bpe", .patterns = {kLlama3Pattern}},
      {.name = "qwen2", .patterns = {kQwen2Pattern}, .normalizes = true},
      {.name = "deepseek-r1-qwen", .patterns = {kQwen2Pattern}, .normalizes = true},
      {.name = "gpt-4o", .patterns = {kO200kPattern}},
      {.name = "llama4", .patterns = {kO200kPattern}},
      {.name = "tekken", .patterns = {kTekkenPattern}, .ignores_merges = true, .adds_bos = true},
      {.name = "deepseek-v3", .patterns = {kThreeDigits, kCjk, kDeepseekPattern}},
      {.name = "smollm", .patterns = {kGpt2Pattern}, .splits_digits = true},
      {.name = "starcoder", .patterns = {kGpt2Pattern}, .splits_digits = true},
      {.name = "refact", .patterns = {kGpt2Pattern}, .splits_digits = true},
      {.name = "command-r", .patterns = {kGpt2Pattern}, .splits_digits = true},
  };
  return rows;
}

const PreTokenizerRow& find_pre_tokenizer(const GgufFile& file) {
  const std::string_view name = file.find_text(kPreKey).value_or("default");
  const auto& rows = pre_tokenizers();
  if (name == "default") {
    log_warning(file.name(), ": no pre-tokenizer in the metadata: the one of GPT-2 is used");
    return rows.front();
  }
  const auto found = std::ranges::find(rows, name, &PreTokenizerRow::name);
  if (found != rows.end()) return *found;
  std::string known;
  for (const PreTokenizerRow& row : rows) known += (known.empty() ? "" : ", ") + std::string(row.name);
  fail(ErrorCode::kUnsupported, file.name(), ": metadata \"", kPreKey, "\" ", excerpt(std::string(name)),
       ": attend supports ", known);
}

Json byte_level(bool uses_regex) {
  return {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", uses_regex}};
}

Json pre_tokenizer(const PreTokenizerRow& row) {
  Json steps = Json::array();
  if (row.splits_digits) steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
  for (const std::string_view pattern : row.patterns)
    if (!pattern.empty())
      steps.push_back({{"type", "Split"},
                       {"pattern", {{"Regex", pattern}}},
                       {"behavior", "Isolated"},
                       {"invert", false}});
  steps.push_back(byte_level(row.patterns.front().empty()));
  return {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
}

// Returns whether all characters are complete and in their shortest form, without surrogates.
bool is_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto first = static_cast<unsigned char>(text[i]);
    const size_t size = first < 0x80       ? 1
                        : first >> 5 == 6  ? 2
                        : first >> 4 == 14 ? 3
                        : first >> 3 == 30 ? 4
                                           : 0;
    if (size == 0 || i + size > text.size()) return false;
    uint32_t code = size == 1 ? first : first & (0x7fu >> size);
    for (size_t j = 1; j < size; ++j) {
      const auto byte = static_cast<unsigned char>(text[i + j]);
      if (byte >> 6 != 2) return false;
      code = code << 6 | (byte & 0x3fu);
    }
    constexpr uint32_t kLowest[] = {0, 0, 0x80, 0x800, 0x10000};
    if (code < kLowest[size] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return false;
    i += size;
  }
  return true;
}

// The pipeline of a tokenizer reads texts as UTF-8 without further checks.
void require_utf8(const GgufFile& file, const char* key, const std::vector<std::string_view>& texts) {
  for (size_t i = 0; i < texts.size(); ++i)
    if (!is_utf8(texts[i]))
      fail(ErrorCode::kCorruptFile, file.name(), ": metadata \"", key, "\": element ", i, " ",
           excerpt(std::string(texts[i])), ": expected UTF-8 text");
}

// Tokens, their types and scores, with consistent sizes.
struct Tokens {
  const std::vector<std::string_view>& texts;
  std::vector<int64_t> types;
};

Tokens read_tokens(const GgufFile& file) {
  const auto* const texts = file.find_texts(kTokensKey);
  if (texts == nullptr || texts->empty()) file.reject(kTokensKey, "an array of tokens");
  require_utf8(file, kTokensKey, *texts);
  auto types = file.find_integers(kTypesKey);
  if (!types) types.emplace(texts->size(), kNormal);
  if (types->size() != texts->size())
    file.reject(kTypesKey, std::to_string(texts->size()) + " integers, one per token");
  return {*texts, *std::move(types)};
}

Json vocabulary(const GgufFile& file, const Tokens& tokens) {
  Json::object_t vocab;
  for (size_t id = 0; id < tokens.texts.size(); ++id)
    if (!vocab.emplace(tokens.texts[id], id).second)
      fail(ErrorCode::kCorruptFile, file.name(), ": metadata \"", kTokensKey, "\": token ",
           excerpt(std::string(tokens.texts[id])), " has ids ",
           vocab.at(std::string(tokens.texts[id])).dump(), " and ", id);
  return vocab;
}

Json added_tokens(const Tokens& tokens) {
  Json added = Json::array();
  for (size_t id = 0; id < tokens.texts.size(); ++id) {
    const int64_t type = tokens.types[id];
    if (type != kControl && type != kUserDefined && type != kUnknown) continue;
    added.push_back({{"id", id},
                     {"content", tokens.texts[id]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", type != kUserDefined}});
  }
  return added;
}

// Text of the token with this role, or no value.
std::optional<std::string> role_token(const GgufFile& file, const std::string& role) {
  const std::string key = "tokenizer.ggml." + role + "_token_id";
  const auto id = file.find_integer(key);
  if (!id) return std::nullopt;
  const auto* const texts = file.find_texts(kTokensKey);
  const size_t size = texts == nullptr ? 0 : texts->size();
  if (*id < 0 || static_cast<size_t>(*id) >= size)
    file.reject(key, "the id of one of " + std::to_string(size) + " tokens");
  return std::string((*texts)[static_cast<size_t>(*id)]);
}

// Adds BOS before and EOS after a text, if the metadata or the defaults of the tokenizer require it.
Json post_processor(const GgufFile& file, bool adds_bos, bool adds_eos) {
  adds_bos = file.find_boolean("tokenizer.ggml.add_bos_token").value_or(adds_bos);
  adds_eos = file.find_boolean("tokenizer.ggml.add_eos_token").value_or(adds_eos);
  const auto bos = adds_bos ? role_token(file, "bos") : std::nullopt;
  const auto eos = adds_eos ? role_token(file, "eos") : std::nullopt;
  if (!bos && !eos) return nullptr;
  Json special = Json::object();
  const auto add = [&](const std::string& token, const char* role, Json& steps) {
    steps.push_back({{"SpecialToken", {{"id", token}, {"type_id", 0}}}});
    const auto id =
        static_cast<uint64_t>(*file.find_integer(std::string("tokenizer.ggml.") + role + "_token_id"));
    special[token] = {{"id", token}, {"ids", {id}}, {"tokens", {token}}};
  };
  Json single = Json::array();
  if (bos) add(*bos, "bos", single);
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  if (eos) add(*eos, "eos", single);
  Json pair = single;
  pair.push_back({{"Sequence", {{"id", "B"}, {"type_id", 1}}}});
  return {{"type", "TemplateProcessing"},
          {"single", std::move(single)},
          {"pair", std::move(pair)},
          {"special_tokens", std::move(special)}};
}

Json read_byte_level(const GgufFile& file) {
  const PreTokenizerRow& row = find_pre_tokenizer(file);
  const Tokens tokens = read_tokens(file);
  const auto* const merges = file.find_texts(kMergesKey);
  if (merges == nullptr) file.reject(kMergesKey, "an array of merges");
  require_utf8(file, kMergesKey, *merges);
  Json model = {{"type", "BPE"}, {"ignore_merges", row.ignores_merges}};
  model["vocab"] = vocabulary(file, tokens);
  model["merges"] = *merges;
  return {{"model", std::move(model)},
          {"normalizer", row.normalizes ? Json{{"type", "NFC"}} : Json(nullptr)},
          {"pre_tokenizer", pre_tokenizer(row)},
          {"post_processor", post_processor(file, row.adds_bos, false)},
          {"decoder", byte_level(true)},
          {"added_tokens", added_tokens(tokens)}};
}

bool is_first_byte(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) != 0x80; }

// SentencePiece merges the pair whose token has the highest score. As BPE: all pairs of tokens whose
// concatenation is a token, by descending score; longer left parts first where scores are equal.
Json merges_by_score(const GgufFile& file, const Tokens& tokens) {
  const auto scores = file.find_numbers(kScoresKey);
  if (!scores || scores->size() != tokens.texts.size())
    file.reject(kScoresKey, std::to_string(tokens.texts.size()) + " numbers, one per token");
  std::unordered_map<std::string_view, size_t> ids;
  for (size_t id = 0; id < tokens.texts.size(); ++id)
    if (tokens.types[id] == kNormal || tokens.types[id] == kUserDefined) ids.emplace(tokens.texts[id], id);
  struct Merge {
    size_t token, left_bytes;
  };
  std::vector<Merge> merges;
  constexpr size_t kMaxMergedBytes = 512;  // each position of a token is a candidate
  for (size_t id = 0; id < tokens.texts.size(); ++id) {
    const std::string_view text = tokens.texts[id];
    if (!ids.contains(text)) continue;
    if (text.size() > kMaxMergedBytes)
      fail(ErrorCode::kUnsupported, file.name(), ": metadata \"", kTokensKey, "\": token ", id, " of ",
           text.size(), " bytes: attend supports at most ", kMaxMergedBytes);
    for (size_t cut = 1; cut < text.size(); ++cut)
      if (is_first_byte(text[cut]) && ids.contains(text.substr(0, cut)) && ids.contains(text.substr(cut)))
        merges.push_back({id, cut});
  }
  std::ranges::sort(merges, [&](const Merge& a, const Merge& b) {
    const double score = (*scores)[a.token], other = (*scores)[b.token];
    if (score != other) return score > other;
    if (a.token != b.token) return a.token < b.token;
    return a.left_bytes > b.left_bytes;
  });
  Json pairs = Json::array();
  for (const auto& [token, left] : merges)
    pairs.push_back({tokens.texts[token].substr(0, left), tokens.texts[token].substr(left)});
  return pairs;
}

Json replace(const char* from, const char* to) {
  return {{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
}

Json read_sentence_piece(const GgufFile& file) {
  constexpr const char* kSpace = "\u2581";
  const Tokens tokens = read_tokens(file);
  const bool adds_space = file.find_boolean("tokenizer.ggml.add_space_prefix").value_or(true);
  Json model = {{"type", "BPE"}, {"byte_fallback", true}, {"fuse_unk", true}};
  model["vocab"] = vocabulary(file, tokens);
  model["merges"] = merges_by_score(file, tokens);
  const auto unknown = std::ranges::find(tokens.types, kUnknown);
  if (unknown != tokens.types.end())
    model["unk_token"] = tokens.texts[static_cast<size_t>(unknown - tokens.types.begin())];
  Json normalizers = Json::array();
  if (adds_space) normalizers.push_back({{"type", "Prepend"}, {"prepend", kSpace}});
  normalizers.push_back(replace(" ", kSpace));
  Json decoders = {replace(kSpace, " "), {{"type", "ByteFallback"}}, {{"type", "Fuse"}}};
  if (adds_space) decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return {{"model", std::move(model)},
          {"normalizer", {{"type", "Sequence"}, {"normalizers", std::move(normalizers)}}},
          {"pre_tokenizer", nullptr},
          {"post_processor", post_processor(file, true, false)},
          {"decoder", {{"type", "Sequence"}, {"decoders", std::move(decoders)}}},
          {"added_tokens", added_tokens(tokens)}};
}

}  // namespace

std::optional<Json> gguf_tokenizer(const GgufFile& file) {
  const auto model = file.find_text(kModelKey);
  if (!model) return std::nullopt;
  if (*model == "gpt2") return read_byte_level(file);
  if (*model == "llama") return read_sentence_piece(file);
  fail(ErrorCode::kUnsupported, file.name(), ": metadata \"", kModelKey, "\" ", excerpt(std::string(*model)),
       ": attend supports gpt2 (byte-level BPE) and llama (SentencePiece BPE)");
}

Json gguf_tokenizer_config(const GgufFile& file) {
  constexpr std::pair<const char*, const char*> kRoles[] = {
      {"bos", "bos_token"},       {"eos", "eos_token"},     {"unknown", "unk_token"},
      {"seperator", "sep_token"}, {"padding", "pad_token"}, {"mask", "mask_token"}};
  Json config = Json::object();
  for (const auto& [gguf, hf] : kRoles)
    if (const auto token = role_token(file, gguf)) config[hf] = *token;
  const auto own = file.find_text("tokenizer.chat_template");
  const auto* const names = file.find_texts("tokenizer.chat_templates");
  if (own && names == nullptr) config["chat_template"] = *own;
  if (names == nullptr) return config;
  Json templates = Json::array();
  if (own) templates.push_back({{"name", "default"}, {"template", *own}});
  for (const std::string_view name : *names)
    templates.push_back(
        {{"name", name}, {"template", file.text("tokenizer.chat_template." + std::string(name))}});
  config["chat_template"] = std::move(templates);
  return config;
}

}  // namespace attend
