#pragma once

#include <nanobind/nanobind.h>

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>

#include "hawser/detail/reply_sink.h"
#include "hawser/detail/stream_core.h"
#include "hub.h"
#include "plan.h"
#include "references.h"

namespace hawser::python {

namespace nb = nanobind;

// The streams of one call, of a client or of a server. Python asks for received items and gets what there is, as a
// batch: what it does not ask for stays in the connection's stream, whose credit stops the sender. Items to be sent
// wait in a queue of limited bytes.
class CallStreams final : public std::enable_shared_from_this<CallStreams> {
 public:
  // A batch of received items ends with the item that reaches one of these.
  static constexpr std::size_t batch_items_max = 256;
  static constexpr std::size_t batch_bytes_max = 256 * 1024;
  // Python waits with the next item from the first number of bytes on, until fewer than the second are left.
  static constexpr std::size_t queue_bytes_max = 256 * 1024;
  static constexpr std::size_t queue_bytes_low = queue_bytes_max / 2;

  // `received` and `sent` are types of `plan`. Empty: there is no stream in this direction.
  CallStreams(std::shared_ptr<const Plan> plan, std::optional<std::uint32_t> received,
              std::optional<std::uint32_t> sent, std::shared_ptr<Hub> hub);
  CallStreams(const CallStreams&) = delete;
  CallStreams& operator=(const CallStreams&) = delete;

  // ---- Python ----
  // Functions that receive what happens: on_items(list, ended, exception or None), and on_sent(exception or None) when
  // the queue has room again, or is empty after flush() was false.
  void set_sinks(nb::object on_items, nb::object on_sent);
  // Drops the functions, and all items that are not sent.
  void release();
  // Asks for a batch of items. One at a time.
  void ask();
  // False in a child of fork(), where ask(), write(), flush() and end() throw.
  bool own_process() const noexcept;
  // True if the caller waits with the next item: on_sent() follows when this has changed.
  bool full() noexcept;
  // Appends an item to the queue. Returns !full().
  bool write(nb::handle item);
  // True if all items have been sent, and their memory is not used any more. Throws if some were dropped.
  bool flush();
  // Ends the stream of this side after the items of the queue.
  void end();

  // ---- Loop's thread ----
  // Connects `streams` with the streams of a call while it exists. Both may be null. The rest of the received items is
  // passed to Python at the end.
  class Attached {
   public:
    Attached(std::shared_ptr<CallStreams> streams, std::shared_ptr<detail::StreamCore> core);
    Attached(const Attached&) = delete;
    Attached& operator=(const Attached&) = delete;
    ~Attached();

   private:
    const std::shared_ptr<CallStreams> streams_;
  };

 private:
  friend class ItemsEvent;
  friend class SentEvent;
  struct Begun;
  enum class State : std::uint8_t {
    opening,   // The call has not begun: items wait in the queue.
    attached,  // loop_ and core_ exist.
    ended,     // The call has ended, or Python does not use it any more.
  };

  // Throws an exception of Python if there is no stream in this direction.
  void require(const std::optional<std::uint32_t>& type) const;
  void wake();  // With mutex_.
  void run();
  void detach();
  // Takes items of the core, at most a batch unless it takes `all`, and passes them to Python.
  void take_items(bool all);
  static detail::Serving read(std::shared_ptr<CallStreams> streams);
  static detail::Serving send(std::shared_ptr<CallStreams> streams);
  const Encoded* next_to_send();
  void on_item_sent();
  void on_send_failed(Error error);

  const std::shared_ptr<const Plan> plan_;
  const std::optional<std::uint32_t> received_;
  const std::optional<std::uint32_t> sent_;
  const std::shared_ptr<Hub> hub_;
  const std::uint64_t generation_;
  Reference on_items_;  // With the GIL, like on_sent_. Null after release().
  Reference on_sent_;

  std::mutex mutex_;  // Protects the members up to the empty line.
  State state_ = State::opening;
  Loop* loop_ = nullptr;
  bool woken_ = false;   // The loop will call run().
  bool asked_ = false;   // Python waits for items.
  bool ending_ = false;  // end() was called.
  bool full_ = false;    // Python waits for room.
  bool flushing_ = false;
  std::size_t queued_bytes_ = 0;
  std::deque<Encoded> queue_;         // The first item may be on its way.
  std::optional<Error> write_error_;  // Why no further item is sent.
  bool lost_ = false;                 // Items of the queue were dropped because of write_error_.

  // Loop's thread.
  std::shared_ptr<detail::StreamCore> core_;
  std::coroutine_handle<> reading_;  // Waits for items. Null: nobody does.
  std::coroutine_handle<> sending_;  // Sends the queue. Null: it is empty, or sending has failed.
  bool send_failed_ = false;
};

void bind_streams(nb::module_& module);

}  // namespace hawser::python
