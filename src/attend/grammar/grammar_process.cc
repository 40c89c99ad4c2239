#include "attend/grammar/grammar_process.h"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace attend {

using grammar_worker::Message;
using grammar_worker::Order;
using grammar_worker::Status;

GrammarHub::GrammarHub(const GrammarLimits& its_limits, grammar_worker::Setup setup)
    : limits(its_limits), setup_(std::move(setup)), wake_file_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

GrammarHub::~GrammarHub() { close(wake_file_); }

void GrammarHub::wake() const noexcept {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t num_written = write(wake_file_, &one, sizeof one);
}

bool GrammarHub::send_fork(uint32_t id, GrammarKind kind, int socket) {
  const std::string bytes = grammar_worker::to_bytes(
      {.kind = static_cast<uint32_t>(Order::kFork), .id = id, .number = static_cast<int64_t>(kind)}, "");
  iovec part{.iov_base = const_cast<char*>(bytes.data()), .iov_len = bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* const attached = CMSG_FIRSTHDR(&message);
  attached->cmsg_level = SOL_SOCKET;
  attached->cmsg_type = SCM_RIGHTS;
  attached->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(attached), &socket, sizeof socket);
  return sendmsg(program_->socket(), &message, MSG_NOSIGNAL) == std::ssize(bytes);
}

int GrammarHub::fork_process(uint32_t id, GrammarKind kind) {
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0)
    attend::fail(ErrorCode::kUnsupported, "grammars: no socket for their process: ", std::strerror(errno));
  bool sent = false;
  try {
    const std::lock_guard lock(program_mutex_);
    // The program may have been killed, for example by the system when memory ran out: it is started again.
    for (int attempt = 0; attempt < 2 && !sent; ++attempt) {
      if (!program_) {
        program_ = std::make_unique<GrammarProgram>();
        const std::string setup =
            grammar_worker::to_bytes({.kind = static_cast<uint32_t>(Order::kStart)}, setup_.to_text());
        sent = grammar_worker::write_bytes(program_->socket(), setup);
      }
      sent = send_fork(id, kind, sockets[1]);
      if (!sent) program_.reset();
    }
  } catch (...) {
    close(sockets[0]);
    close(sockets[1]);
    throw;
  }
  close(sockets[1]);
  if (sent) return sockets[0];
  close(sockets[0]);
  attend::fail(ErrorCode::kUnsupported, "grammars: their process ended unexpectedly");
}

void GrammarHub::kill_process(uint32_t id) noexcept {
  try {
    const std::lock_guard lock(program_mutex_);
    if (!program_) return;
    grammar_worker::write_bytes(
        program_->socket(),
        grammar_worker::to_bytes({.kind = static_cast<uint32_t>(Order::kKill), .id = id}, ""));
  } catch (const std::bad_alloc&) {  // it ends when it reads from its closed socket
  }
}

bool GrammarProcess::State::allows(int32_t token_id) const {
  const auto token = static_cast<size_t>(token_id);
  return any || (token / 32 < words.size() && (words[token / 32] >> (token % 32) & 1) != 0);
}

GrammarProcess::State* GrammarProcess::Text::next_reply() {
  if (num_dropped > 0) {
    --num_dropped;
    return nullptr;
  }
  if (!current.ready) return &current;
  const auto found = std::ranges::find_if(drafted, [](const Drafted& each) { return !each.state.ready; });
  return found == drafted.end() ? nullptr : &found->state;
}

void GrammarProcess::Text::drop_drafted() {
  num_dropped +=
      static_cast<int>(std::ranges::count_if(drafted, [](const Drafted& each) { return !each.state.ready; }));
  drafted.clear();
}

// Mask of one text.
class ProcessMask final : public TokenMask {
 public:
  ProcessMask(std::shared_ptr<GrammarProcess> process, uint32_t id) : process_(std::move(process)), id_(id) {}
  ~ProcessMask() override {
    const std::lock_guard lock(process_->hub_->mutex);
    process_->texts_.erase(id_);
    if (!begun_ || process_->error_) return;
    try {
      process_->send(Order::kDrop, id_, 0, {}, 0);
    } catch (const std::bad_alloc&) {  // the process keeps the state of a mask
    }
  }

  bool ready() override {
    const std::lock_guard lock(process_->hub_->mutex);
    return is_ready(text().current);
  }

  bool wait_for(std::chrono::microseconds timeout) override {
    std::unique_lock lock(process_->hub_->mutex);
    return process_->hub_->changed.wait_for(lock, timeout, [&] { return is_ready(text().current); });
  }

  bool fill(std::span<uint32_t> words) override {
    std::unique_lock lock(process_->hub_->mutex);
    return fill(text().current, words, lock);
  }

  void accept(int32_t token_id) override {
    std::unique_lock lock(process_->hub_->mutex);
    GrammarProcess::Text& text = this->text();
    wait(text.current, lock);
    if (!text.current.allows(token_id))
      attend::fail(ErrorCode::kInternal, "token ", token_id, " does not fit the grammar");
    ++text.num_tokens;
    if (!text.drafted.empty() && text.drafted.front().token == token_id) {
      text.current = std::move(text.drafted.front().state);
      text.drafted.pop_front();
      return;
    }
    text.drop_drafted();
    text.current.ready = false;
    send(text.num_tokens - 1, {&token_id, 1});
  }

  std::shared_ptr<TokenMask> fork() const override { return process_->make_mask(); }

  size_t draft(std::span<const int32_t> tokens) override {
    std::unique_lock lock(process_->hub_->mutex);
    GrammarProcess::Text& text = this->text();
    text.drop_drafted();
    wait(text.current, lock);
    if (tokens.empty() || !text.current.allows(tokens.front())) return 0;
    for (const int32_t token : tokens) text.drafted.push_back({token, {.ready = false, .words = {}}});
    send(text.num_tokens, tokens);
    return tokens.size();
  }

  bool fill_after(size_t num_tokens, std::span<uint32_t> words) override {
    std::unique_lock lock(process_->hub_->mutex);
    return fill(text().drafted.at(num_tokens - 1).state, words, lock);
  }

 private:
  GrammarProcess::Text& text() const { return process_->texts_.at(id_); }
  bool is_ready(const GrammarProcess::State& state) const { return process_->error_ || state.ready; }

  void wait(const GrammarProcess::State& state, std::unique_lock<std::mutex>& lock) const {
    process_->hub_->changed.wait(lock, [&] { return is_ready(state); });
    if (process_->error_) throw Error(*process_->error_);
  }

  bool fill(const GrammarProcess::State& state, std::span<uint32_t> words,
            std::unique_lock<std::mutex>& lock) const {
    wait(state, lock);
    if (state.any || state.refused) return false;
    std::ranges::fill(words, 0);
    std::copy_n(state.words.begin(), std::min(state.words.size(), words.size()), words.begin());
    return true;
  }

  void send(int64_t num_before, std::span<const int32_t> tokens) {
    begun_ = true;
    process_->send(Order::kAccept, id_, num_before, grammar_worker::to_text(tokens),
                   static_cast<int>(tokens.size()));
  }

  const std::shared_ptr<GrammarProcess> process_;
  const uint32_t id_;
  bool begun_ = false;  // the process has a state for it
};

GrammarProcess::GrammarProcess(std::shared_ptr<GrammarHub> hub, uint32_t id, const Grammar& grammar,
                               GrammarClock::time_point deadline)
    : hub_(std::move(hub)), id_(id), kind_(grammar.kind), compile_deadline_(deadline) {
  socket_ = hub_->fork_process(id_, grammar.kind);
  reserve(hub_->limits.memory_bytes);
  send(Order::kCompile, 0, static_cast<int64_t>(grammar.kind), grammar.text, 1);
}

GrammarProcess::~GrammarProcess() {
  if (socket_ < 0) return;
  close(socket_);
  hub_->kill_process(id_);
  reserve(0);
  hub_->wake();  // a grammar may wait for its memory
}

void GrammarProcess::reserve(size_t num_bytes) {
  hub_->reserved_bytes += num_bytes - reserved_bytes_;
  reserved_bytes_ = num_bytes;
}

std::shared_ptr<TokenMask> GrammarProcess::make_mask() {
  const std::lock_guard lock(hub_->mutex);
  const uint32_t id = hub_->next_id++;
  texts_[id].current = first_;
  return std::make_shared<ProcessMask>(shared_from_this(), id);
}

void GrammarProcess::send(Order order, uint32_t id, int64_t number, std::string_view text, int num_replies) {
  outgoing_ +=
      grammar_worker::to_bytes({.kind = static_cast<uint32_t>(order), .id = id, .number = number}, text);
  if (num_pending_ == 0) progress_ = GrammarClock::now();
  num_pending_ += num_replies;
  send_rest();
  // The thread that polls has to watch a time limit or the rest.
  hub_->wake();
}

void GrammarProcess::send_rest() {
  while (!outgoing_.empty() && socket_ >= 0) {
    const ssize_t num_sent = ::send(socket_, outgoing_.data(), outgoing_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (num_sent < 0 && errno == EINTR) continue;
    if (num_sent <= 0) return;  // receive() sees a closed socket
    outgoing_.erase(0, static_cast<size_t>(num_sent));
  }
}

void GrammarProcess::receive() {
  char bytes[64 << 10];
  while (socket_ >= 0) {
    const ssize_t num_read = recv(socket_, bytes, sizeof bytes, MSG_DONTWAIT);
    if (num_read < 0 && errno == EINTR) continue;
    if (num_read < 0 && errno == EAGAIN) break;
    if (num_read <= 0) {
      fail(Error(ErrorCode::kInvalidArgument,
                 std::string(to_string(kind_)) + ": its process ended: it needs more than " +
                     std::to_string(hub_->limits.memory_bytes >> 20) +
                     " MiB of memory, or is nested too deeply; expected a simpler one"));
      break;
    }
    incoming_.append(bytes, static_cast<size_t>(num_read));
  }
  for (Message message; grammar_worker::take_message(incoming_, message);) receive(message);
}

Error GrammarProcess::too_large() const {
  const size_t limit = hub_->limits.memory_bytes;
  const size_t num_bytes = compiled_ ? grammar_worker::mask_bytes(limit) : limit;
  return {ErrorCode::kInvalidArgument,
          std::string(to_string(kind_)) + ": needs more than " + std::to_string(num_bytes >> 20) +
              " MiB of memory" + (compiled_ ? " for token masks" : "") + "; expected a simpler one"};
}

Error GrammarProcess::to_error(const Message& message) const {
  if (static_cast<Status>(message.header.kind) == Status::kFailed)
    return {static_cast<ErrorCode>(message.header.number), message.text};
  return too_large();
}

void GrammarProcess::receive(const Message& message) {
  if (error_) return;
  --num_pending_;
  progress_ = GrammarClock::now();
  const auto status = static_cast<Status>(message.header.kind);
  if (status == Status::kFailed || status == Status::kOutOfMemory) return fail(to_error(message));
  const auto read = [&](State& state) {
    state.ready = true;
    state.any = status == Status::kAny;
    state.refused = status == Status::kRefused;
    state.words.resize(message.text.size() / sizeof(uint32_t));
    std::memcpy(state.words.data(), message.text.data(), state.words.size() * sizeof(uint32_t));
  };
  if (!std::exchange(compiled_, true)) {
    num_bytes_ = static_cast<size_t>(message.header.number);
    const size_t limit = hub_->limits.memory_bytes;
    reserve(std::min<size_t>(limit, message.header.memory_bytes + grammar_worker::mask_bytes(limit)));
    return read(first_);
  }
  if (const auto found = texts_.find(message.header.id); found != texts_.end())
    if (State* const state = found->second.next_reply()) read(*state);
  hub_->changed.notify_all();
}

void GrammarProcess::fail(const Error& error) {
  if (error_) return;
  error_ = error;
  num_pending_ = 0;
  outgoing_.clear();
  if (socket_ >= 0) close(std::exchange(socket_, -1));
  hub_->kill_process(id_);
  reserve(0);
  hub_->changed.notify_all();
}

std::optional<GrammarClock::time_point> GrammarProcess::deadline() const {
  if (num_pending_ == 0 || error_) return std::nullopt;
  return compiled_ ? progress_ + hub_->limits.mask_time : compile_deadline_;
}

void GrammarProcess::check_time(GrammarClock::time_point now) {
  const auto limit = deadline();
  if (!limit || now < *limit) return;
  if (!compiled_)
    return fail(Error(ErrorCode::kInvalidArgument, std::string(to_string(kind_)) + ": not compiled within " +
                                                       std::to_string(hub_->limits.compile_time.count()) +
                                                       " ms; expected a simpler one"));
  fail(Error(ErrorCode::kInvalidArgument,
             std::string(to_string(kind_)) + ": the mask of a token was not computed within " +
                 std::to_string(hub_->limits.mask_time.count()) + " ms; expected a simpler one"));
}

}  // namespace attend
