#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "hawser/bytes.h"
#include "hawser/detail/stream_core.h"
#include "hawser/loop.h"
#include "hawser/protobuf_stream.h"
#include "hawser/scope.h"
#include "hawser/sync.h"
#include "hawser/task.h"

namespace hawser::pb {

// A stream of StreamCreate() or StreamAccept(): the messages that wait to be sent, and the handler. Any thread, except
// where stated. Found by its id until it has ended.
class StreamState : public std::enable_shared_from_this<StreamState> {
 public:
  static std::shared_ptr<StreamState> make(const StreamOptions& options);
  // Null if there is no such stream, or it has ended.
  static std::shared_ptr<StreamState> find(StreamId id);
  StreamState(const StreamOptions& options, StreamId id) : id_(id), options_(options) {}

  StreamId id() const noexcept { return id_; }
  bool has_handler() const noexcept { return options_.handler != nullptr; }
  bool closing() const;

  int write(const IOBuf& message);
  int wait(const timespec* due);
  void wait(const timespec* due, void (*on_writable)(StreamId, void*, int), void* argument);
  int close();
  // The stream has ended. Calls on_closed(), or leaves it to the thread that runs another function of the handler.
  void finish() noexcept;

  // ---- Loop's thread ----
  // Carries the messages over `core` until either side has closed the stream. If this side has, the peer gets `linger`
  // to close it too. Whoever awaits or destroys the task calls finish() afterwards.
  Task<void> carry(Loop& loop, std::shared_ptr<detail::StreamCore> core, Duration linger);
  // Gives messages to the handler, unless the stream is closed.
  Task<void> deliver(Loop& loop, std::vector<Buffer> batch);
  // Ends the stream at once, and makes the calls of finish() on a thread that may block.
  Task<void> finish_on(Loop& loop);

 private:
  struct WritableCall {
    void (*on_writable)(StreamId, void*, int) = nullptr;
    void* argument = nullptr;
    std::optional<std::chrono::system_clock::time_point> due;
  };
  using WritableCalls = std::list<WritableCall>;
  struct LastCalls {
    WritableCalls waiting;  // They end with ECONNRESET.
    bool on_closed = false;
  };
  struct Attached;

  // With the mutex.
  bool full() const noexcept {
    return options_.max_buf_size > 0 && queued_bytes_ >= static_cast<std::size_t>(options_.max_buf_size);
  }
  bool writes() const noexcept { return !finished_ && !close_wanted_ && !peer_closed_; }
  void wake();
  // Marks the end and wakes the threads that wait. Returns the functions to be called; nothing if it has ended before.
  std::optional<LastCalls> end() noexcept;
  void make(const LastCalls& calls) noexcept;
  void handle(const std::function<void()>& work);
  static Task<void> on_other_thread(Loop& loop, std::function<void()> work, bool always = false);
  Task<void> read_all(Loop& loop, std::shared_ptr<detail::StreamCore> core, Attached& attached);
  Task<void> send_all(std::shared_ptr<detail::StreamCore> core, Attached& attached);
  Task<void> attend(Loop& loop, Attached& attached);
  Task<void> watch_idle(Loop& loop, Attached& attached);

  const StreamId id_;
  const StreamOptions options_;

  mutable std::mutex mutex_;  // Guards the following members.
  std::condition_variable changed_;
  std::deque<Buffer> queue_;
  std::size_t queued_bytes_ = 0;
  bool close_wanted_ = false;
  bool peer_closed_ = false;  // Nothing can be sent any more.
  bool finished_ = false;
  bool handling_ = false;  // A function of the handler runs.
  WritableCalls waiting_;
  Loop* loop_ = nullptr;          // Not null while carry() runs.
  Attached* attached_ = nullptr;  // Likewise. Its members belong to the loop's thread.
  bool woken_ = false;            // The loop is about to look at the members above.
};

// Ends a stream when it is destroyed. Movable.
class OwnedStream {
 public:
  OwnedStream() noexcept = default;
  explicit OwnedStream(std::shared_ptr<StreamState> stream) noexcept : stream_(std::move(stream)) {}
  static std::vector<OwnedStream> all_of(std::vector<std::shared_ptr<StreamState>> streams);
  OwnedStream(OwnedStream&& other) noexcept = default;
  OwnedStream& operator=(OwnedStream&& other) noexcept {
    std::swap(stream_, other.stream_);
    return *this;
  }
  ~OwnedStream() {
    if (stream_ != nullptr) stream_->finish();
  }
  StreamState* operator->() const noexcept { return stream_.get(); }
  StreamState& operator*() const noexcept { return *stream_; }
  explicit operator bool() const noexcept { return stream_ != nullptr; }

 private:
  std::shared_ptr<StreamState> stream_;
};

}  // namespace hawser::pb
