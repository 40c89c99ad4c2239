// Input: bytes that are cut into tokens anywhere and streamed as chat chunks. Each chunk has whole
// characters, all chunks together are the text of all bytes, and a stop string ends the text. The first four
// bytes select the tokenizer, position and length of the stop string, and where the bytes are cut.
#include <array>
#include <map>
#include <unordered_map>

#include "attend/checkpoint/parse_json.h"
#include "attend/engine/output/stop_matcher.h"
#include "attend/serve/protocols/openai/replies.h"
#include "attend/text/tokenizer/tokenizer.h"
#include "attend/text/tokenizer/utf8.h"
#include "tests/fuzz/fuzz.h"

namespace attend::fuzz {
namespace {

// One or two bytes of each UTF-8 class. All their pairs and triples are tokens.
constexpr std::string_view kJoined = "a \n\"\x7f\x80\xbf\xa0\x9f\xc2\xc3\xe0\xe2\xed\xef\xf0\xf4";
constexpr size_t kLongestToken = 3;

// Spelling of bytes in byte-level tokenizers: printable bytes are themselves, the others start at U+0100.
std::array<std::string, 256> byte_level_spelling() {
  std::array<std::string, 256> spelling;
  char32_t next = 0x100;
  for (size_t byte = 0; byte < 256; ++byte) {
    const bool seen = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    tokenizer::append_char(spelling[byte], seen ? static_cast<char32_t>(byte) : next++);
  }
  return spelling;
}

struct ByteTokenizer {
  Tokenizer tokenizer;
  std::unordered_map<std::string, int32_t> ids;  // keyed by the token's bytes
};

ByteTokenizer make_tokenizer(const std::map<std::string, std::string>& spellings, const Json& rest) {
  Json vocab = Json::object();
  ByteTokenizer made{Tokenizer::from_path(ATTEND_SOURCE_DIR "/models/attend-tiny"), {}};
  for (const auto& [bytes, spelling] : spellings) {
    const auto id = static_cast<int32_t>(vocab.size());
    vocab[spelling] = id;
    made.ids[bytes] = id;
  }
  Json file = rest;
  file["version"] = "1.0";
  file["model"]["type"] = "BPE";
  file["model"]["vocab"] = vocab;
  file["model"]["merges"] = Json::array();
  write_file("tokenizer.json", file.dump());
  made.tokenizer = Tokenizer::from_path(folder() / "tokenizer.json");
  return made;
}

// Tokens of arbitrary bytes, like Llama 3.
ByteTokenizer byte_level() {
  const auto spelling = byte_level_spelling();
  std::map<std::string, std::string> tokens;
  const auto add = [&](const std::string& bytes) {
    std::string spelled;
    for (const char byte : bytes) spelled += spelling[static_cast<unsigned char>(byte)];
    tokens[bytes] = spelled;
  };
  for (int byte = 0; byte < 256; ++byte) add(std::string(1, static_cast<char>(byte)));
  for (const char a : kJoined)
    for (const char b : kJoined) {
      add({a, b});
      for (const char c : kJoined) add({a, b, c});
    }
  return make_tokenizer(
      tokens, {{"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}},
               {"decoder", {{"type", "ByteLevel"}}}});
}

// Tokens of whole characters and one token per byte, like Llama 2.
ByteTokenizer byte_fallback() {
  std::map<std::string, std::string> tokens;
  constexpr const char* kDigits = "0123456789ABCDEF";
  for (int byte = 0; byte < 256; ++byte)
    tokens[std::string(1, static_cast<char>(byte))] =
        std::string("<0x") + kDigits[byte / 16] + kDigits[byte % 16] + ">";
  for (const char* text : {"\u00e2", "\u00ef", "\u20ac", "a\u00e2", "\u00e2\n", "aa", "\"\""})
    tokens[text] = text;
  return make_tokenizer(
      tokens,
      {{"decoder",
        {{"type", "Sequence"}, {"decoders", Json::array({{{"type", "ByteFallback"}}, {{"type", "Fuse"}}})}}},
       {"model", {{"byte_fallback", true}}}});
}

std::vector<int32_t> cut(const ByteTokenizer& made, std::string_view bytes, uint8_t seed) {
  std::vector<int32_t> ids;
  for (size_t at = 0; at < bytes.size(); ++seed) {
    size_t length = std::min<size_t>(1 + (seed * 37u >> 4) % kLongestToken, bytes.size() - at);
    auto token = made.ids.find(std::string(bytes.substr(at, length)));
    while (token == made.ids.end()) token = made.ids.find(std::string(bytes.substr(at, --length)));
    ids.push_back(token->second);
    at += length;
  }
  return ids;
}

// Parser of the chunks that a client receives. Chunks differ only in their texts. One chunk of each kind is
// parsed completely; the texts of an input are parsed together, since parsing JSON takes most of the time.
class ChatStream {
 public:
  void send(const std::string& text) {
    expect(tokenizer::is_valid_utf8(text));
    event_.clear();
    const bool first = num_sent_ == 0;
    replies().add_plain_event(0, text, first, event_);
    static const Frame frames[] = {make_frame(true), make_frame(false)};
    const auto& [head, tail] = frames[first ? 0 : 1];
    expect(event_.starts_with(head) && event_.ends_with(tail) && event_.size() >= head.size() + tail.size());
    if (!first) texts_ += ',';
    texts_.append(event_, head.size(), event_.size() - head.size() - tail.size());
    ++num_sent_;
  }
  // Returns the concatenated texts.
  std::string joined() const {
    const std::string list = "[" + texts_ + "]";
    expect(tokenizer::is_valid_utf8(list) && list.find('\n') == list.npos);
    const Json texts = parse_json(list, "the texts");
    expect(texts.size() == num_sent_);
    std::string joined;
    for (const Json& text : texts) joined += text.get_ref<const std::string&>();
    return joined;
  }

 private:
  // Parts of a chunk before and after its text.
  struct Frame {
    std::string head, tail;
  };

  static const serve::OpenAiReplies& replies() {
    static const serve::GenerationJob job;
    static const serve::OpenAiReplies the_replies{
        serve::OpenAiReplies::Kind::kChat, {"id \"1\"", "tiny", 5}, job};
    return the_replies;
  }
  static Frame make_frame(bool first) {
    constexpr std::string_view kData = "data: ", kEnd = "\n\n", kText = "\"a text\"";
    std::string event;
    replies().add_plain_event(0, "a text", first, event);
    expect(event.starts_with(kData) && event.find('\n') == event.size() - kEnd.size());
    const Json json = parse_json(std::string_view(event).substr(kData.size()), "a chunk");
    const Json& delta = json["choices"][0]["delta"];
    expect(json["id"] == "id \"1\"" && delta.contains("role") == first && delta["content"] == "a text");
    const size_t at = event.find(kText);
    return {event.substr(0, at), event.substr(at + kText.size())};
  }

  std::string event_, texts_;
  size_t num_sent_ = 0;
};

// Returns some characters of `text`, or an empty string.
std::string stop_string(std::string_view text, uint8_t at, uint8_t length) {
  size_t start = text.size() * at / 256;
  while (start < text.size() && (text[start] & 0xc0) == 0x80) ++start;
  size_t end = start;
  for (int i = 0; i < length % 8 && end < text.size(); ++i) end += tokenizer::char_bytes(text[end]);
  return std::string(text.substr(start, end - start));
}

}  // namespace
}  // namespace attend::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace attend;
  using namespace attend::fuzz;
  static const ByteTokenizer made[] = {byte_level(), byte_fallback()};
  if (size < 4) return 0;
  const ByteTokenizer& chosen = made[data[0] % 2];
  const bool keeps_stop = (data[0] & 2) != 0;
  const std::string_view bytes = text_of(data + 4, size - 4);
  const std::vector<int32_t> ids = cut(chosen, bytes, data[3]);
  const std::string whole = chosen.tokenizer.decode(ids);
  expect(tokenizer::is_valid_utf8(whole));
  std::string repaired;
  tokenizer::Utf8Repair repair;
  repair.append(bytes, repaired);
  repair.finish(repaired);
  if (data[0] % 2 == 0 || repaired == bytes) expect(whole == repaired);

  const std::string stop = stop_string(whole, data[1], data[2]);
  StopMatcher stops(stop.empty() ? std::vector<std::string>{} : std::vector{stop}, keeps_stop);
  StreamDecoder decoder(chosen.tokenizer);
  ChatStream stream;
  for (const int32_t id : ids) stream.send(stops.push(decoder.push(id)));
  stream.send(stops.push(decoder.flush()));
  if (stops.matched() == nullptr) stream.send(stops.flush());
  const size_t end = stop.empty() ? whole.npos : whole.find(stop);
  expect((stops.matched() != nullptr) == (end != whole.npos));
  expect(stream.joined() ==
         (end == whole.npos ? whole : whole.substr(0, end + (keeps_stop ? stop.size() : 0))));
  return 0;
}
