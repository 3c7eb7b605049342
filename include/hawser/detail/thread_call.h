#pragma once

#include <atomic>
#include <coroutine>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "hawser/detail/call_channel.h"
#include "hawser/loop.h"
#include "hawser/task.h"

// Work that threads without a loop give to a loop in the background. Not for users.
namespace hawser {

class ClientPool;

namespace detail {

class BlockingSite;
class CallEnd;
struct BlockingState;

// One piece of work. The thread that submits it keeps it until done().
class ThreadWork : public Posted {
 public:
  ThreadWork(const ThreadWork&) = delete;
  ThreadWork& operator=(const ThreadWork&) = delete;

  // Gives the work to its loop. Any thread, once.
  void submit();
  bool done() const noexcept { return word_.load(std::memory_order_acquire) == ended; }
  // Waits until done(). An error: this thread must not or cannot wait, and the reason.
  std::optional<Error> wait() noexcept;
  // Waits for at most `limit`. Returns done().
  bool wait_for(Duration limit) noexcept;
  // The error for a thread that must not block, because it runs a loop.
  static std::optional<Error> refuse_to_block(std::string_view function);
  static Error closed_error();

 protected:
  // `site`: the loop of an earlier work; null: one of the state's loops.
  explicit ThreadWork(std::shared_ptr<BlockingState> state, BlockingSite* site = nullptr);
  ~ThreadWork() override;

  void release() noexcept override {}
  // Both are called on the loop's thread at the end of the tick in which the work has ended. notify() is the last use
  // of this object there. It is not called if settle() returns false: the work has begun again.
  virtual bool settle() noexcept { return true; }
  virtual void notify() noexcept;

  const std::shared_ptr<BlockingState> state_;
  BlockingSite& site_;

 private:
  friend class BlockingSite;
  static constexpr std::uint32_t running = 0;
  static constexpr std::uint32_t awaited = 1;  // A thread sleeps until the word changes.
  static constexpr std::uint32_t ended = 2;

  std::atomic<std::uint32_t> word_{running};
  ThreadWork* next_ended_ = nullptr;
};

// One call. The operation lies beside it and refers to link().
class ThreadCall : public ThreadWork {
 public:
  explicit ThreadCall(const std::shared_ptr<BlockingState>& state);
  ~ThreadCall() override;

  ClientLink& link() noexcept { return link_; }
  // `options` may be null, and must exist until the call has ended. Called before submit().
  void set(CallOperation& operation, const CallOptions* options) noexcept {
    operation_ = &operation;
    operation.thread_call_ = this;
    operation.request_.options = options;
    operation.request_.arguments_last = true;
  }
  // Submits a call that the loop owns too, until it has ended.
  static void submit_shared(const std::shared_ptr<ThreadCall>& call);
  // Cancels the call. Any thread.
  static void cancel(const std::shared_ptr<ThreadCall>& call);
  // Calls `work` when a shared call has ended, on the thread of its loop; in a child process at once, if the call has
  // ended. An error: it will not be called.
  static std::optional<Error> at_end(const std::shared_ptr<ThreadCall>& call, std::function<void()> work);

  // ---- Loop's thread ----
  void on_complete() noexcept;

 protected:
  void run() override;
  void notify() noexcept override;
  bool settle() noexcept override;
  // The call has ended and nobody waits for it.
  virtual void call_back() noexcept {}

 private:
  friend class BlockingSite;
  friend class CallEnd;
  struct Waiting;

  void start(CallChannel* channel);
  const CallOptions*& options() noexcept { return operation_->request_.options; }
  void set_error(Error error) noexcept;
  void fail(Error error) noexcept;
  void cancel_here() noexcept;

  CallOperation* operation_ = nullptr;
  ClientLink link_;
  std::unique_ptr<Waiting> waiting_;    // Not null while the call waits for a connection.
  std::shared_ptr<ThreadCall> shared_;  // This object, while the loop owns it too.
  bool repeatable_ = true;              // Another connection may be tried.
  bool listed_ = false;                 // The site has the call in its list of ended work.
  std::mutex end_mutex_;                // Guards the following members.
  std::function<void()> at_end_;
  Loop* waiting_on_ = nullptr;  // The loop of the coroutine that waits. Null: none does.
  std::coroutine_handle<> coroutine_;
};

// Waits in a coroutine for the end of a shared call, and resumes it on its loop. Used and destroyed on the thread of
// that loop; with the coroutine, if it is destroyed while it waits.
class CallEnd {
 public:
  // `call` may be null: it counts as ended.
  explicit CallEnd(std::shared_ptr<ThreadCall> call);
  CallEnd(const CallEnd&) = delete;
  CallEnd& operator=(const CallEnd&) = delete;
  ~CallEnd();

  bool await_ready() const noexcept { return refused_ || call_ == nullptr || call_->done(); }
  bool await_suspend(std::coroutine_handle<> waiting);

 protected:
  std::optional<Error> refused_;  // The coroutine cannot wait, and the reason.

 private:
  const std::shared_ptr<ThreadCall> call_;
};

// One task of a thread, which runs on a loop in the background.
class ThreadTask : public ThreadWork {
 public:
  using ThreadWork::ThreadWork;
  BlockingSite& site() const noexcept { return site_; }

 protected:
  void run() override;
  // Starts the work. The task may be destroyed before it ends.
  virtual Task<void> begin(ClientPool& pool) = 0;
  // The work cannot begin.
  virtual void refuse(Error error) = 0;

 private:
  friend class BlockingSite;
};

}  // namespace detail

}  // namespace hawser
