#include "attend/grammar/worker/messages.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace attend::grammar_worker {
namespace {

void add_number(uint64_t number, std::string& text) {
  text.append(reinterpret_cast<const char*>(&number), sizeof number);
}
void add_text(std::string_view part, std::string& text) {
  add_number(part.size(), text);
  text += part;
}
uint64_t take_number(std::string_view& text) {
  uint64_t number = 0;
  std::memcpy(&number, text.data(), sizeof number);
  text.remove_prefix(sizeof number);
  return number;
}
std::string take_text(std::string_view& text) {
  const uint64_t size = take_number(text);
  std::string part(text.substr(0, size));
  text.remove_prefix(size);
  return part;
}

// Reads exactly `num_bytes`. A file descriptor that is attached to them is stored in `file`.
bool read_bytes(int socket, char* bytes, size_t num_bytes, int* file) {
  while (num_bytes > 0) {
    iovec part{.iov_base = bytes, .iov_len = num_bytes};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t num_read = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    if (num_read < 0 && errno == EINTR) continue;
    if (num_read <= 0) return false;
    const cmsghdr* const attached = CMSG_FIRSTHDR(&message);
    if (file != nullptr && attached != nullptr && attached->cmsg_type == SCM_RIGHTS)
      std::memcpy(file, CMSG_DATA(attached), sizeof(int));
    bytes += num_read;
    num_bytes -= static_cast<size_t>(num_read);
  }
  return true;
}

}  // namespace

std::string Setup::to_text() const {
  std::string text;
  add_text(tvm_ffi, text);
  add_text(bindings, text);
  add_number(static_cast<uint64_t>(vocab_size), text);
  add_number(max_bytes, text);
  add_number(stop_ids.size(), text);
  for (const int32_t id : stop_ids) add_number(static_cast<uint64_t>(id), text);
  add_number(tokens.size(), text);
  for (const std::string& token : tokens) add_text(token, text);
  return text;
}

Setup Setup::parse(std::string_view text) {
  Setup setup;
  setup.tvm_ffi = take_text(text);
  setup.bindings = take_text(text);
  setup.vocab_size = static_cast<int64_t>(take_number(text));
  setup.max_bytes = take_number(text);
  for (uint64_t left = take_number(text); left > 0; --left)
    setup.stop_ids.push_back(static_cast<int32_t>(take_number(text)));
  for (uint64_t left = take_number(text); left > 0; --left) setup.tokens.push_back(take_text(text));
  return setup;
}

std::vector<int32_t> Message::tokens() const {
  std::vector<int32_t> tokens(text.size() / sizeof(int32_t));
  if (!tokens.empty()) std::memcpy(tokens.data(), text.data(), tokens.size() * sizeof(int32_t));
  return tokens;
}

std::string to_text(std::span<const int32_t> tokens) {
  return {reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes()};
}

std::string to_bytes(Header header, std::string_view text) {
  header.num_bytes = text.size();
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  bytes += text;
  return bytes;
}

bool write_bytes(int socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t num_written = send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (num_written < 0 && errno == EINTR) continue;
    if (num_written <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(num_written));
  }
  return true;
}

bool read_message(int socket, Message& message, int* file) {
  if (!read_bytes(socket, reinterpret_cast<char*>(&message.header), sizeof message.header, file))
    return false;
  message.text.resize(message.header.num_bytes);
  return read_bytes(socket, message.text.data(), message.text.size(), nullptr);
}

bool take_message(std::string& received, Message& message) {
  if (received.size() < sizeof message.header) return false;
  std::memcpy(&message.header, received.data(), sizeof message.header);
  const size_t num_bytes = sizeof message.header + message.header.num_bytes;
  if (received.size() < num_bytes) return false;
  message.text = received.substr(sizeof message.header, message.header.num_bytes);
  received.erase(0, num_bytes);
  return true;
}

}  // namespace attend::grammar_worker
