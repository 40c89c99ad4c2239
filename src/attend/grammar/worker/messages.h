// Messages between GrammarProcesses and the grammar program (grammar_program.cc), over Unix sockets.
//
// The program's first process, the launcher, loads the libraries and the vocabulary once. For each grammar it
// forks a process, which compiles the grammar and returns its token masks. A process can be limited in memory
// and killed, a thread cannot.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace attend::grammar_worker {

inline constexpr int kSocket = 3;  // file descriptor of the launcher's socket

enum class Order : uint32_t {
  // To the launcher.
  kStart,  // `text`: a Setup; once
  kFork,   // `id`: of the new process; its socket is attached to the message
  kKill,   // `id`
  // To a process.
  kCompile,  // `number`: a GrammarKind, `text`: the grammar; once
  // `id`: of a mask, `text`: tokens (int32) that follow the first `number` tokens of its text; tokens after
  // those are dropped. A mask begins with its first token. There is a reply for each token.
  kAccept,
  kDrop,  // `id`: of a mask
};

enum class Status : uint32_t {
  kMasked,   // `text`: words of the mask of the next token
  kAny,      // every token may follow
  kRefused,  // the token is not allowed, or follows one that is not
  kFailed,   // `text`: the message of an error, `number`: its ErrorCode
  kOutOfMemory,
};

struct Header {
  uint32_t kind = 0;  // an Order or a Status
  uint32_t id = 0;
  int64_t number = 0;         // in the reply to kCompile: bytes of the compiled grammar
  uint64_t memory_bytes = 0;  // in the reply to kCompile: memory of the process
  uint64_t num_bytes = 0;     // of the text that follows
};
struct Message {
  Header header;
  std::string text;

  std::vector<int32_t> tokens() const;
};
// Returns the text of kAccept.
std::string to_text(std::span<const int32_t> tokens);

// Memory of a process for masks, after its grammar has been compiled: a part of its limit.
constexpr uint64_t mask_bytes(uint64_t max_bytes) { return max_bytes / 8; }

// Contents of kStart.
struct Setup {
  std::string tvm_ffi, bindings;  // paths of the libraries
  int64_t vocab_size = 0;
  uint64_t max_bytes = 0;  // memory of a process
  std::vector<int32_t> stop_ids;
  std::vector<std::string> tokens;

  std::string to_text() const;
  static Setup parse(std::string_view text);
};

// Returns the bytes of a message.
std::string to_bytes(Header header, std::string_view text);
// Writes all bytes. Returns false if the other end is closed.
bool write_bytes(int socket, std::string_view bytes);
// Waits for a message. `file`: receives a file descriptor that is attached to it, if not null. Returns false
// if the other end is closed.
bool read_message(int socket, Message& message, int* file = nullptr);
// Removes and returns the first message of received bytes, if it is complete.
bool take_message(std::string& received, Message& message);

}  // namespace attend::grammar_worker
