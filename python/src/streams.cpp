#include "streams.h"

#include <nanobind/stl/shared_ptr.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "convert.h"
#include "engine.h"
#include "hawser/detail/const_buffers.h"
#include "method.h"

namespace hawser::python {
namespace {

std::size_t queue_bytes(const Encoded& item) noexcept {
  return item.body.size() + item.payload + detail::StreamCore::item_overhead_bytes;
}

Error ended_error() {
  return Error::of_call(ErrorCode::cancelled, "the call has ended before its streams: no further items are sent");
}

}  // namespace

// Items that have been received, for Python.
class ItemsEvent final : public Event {
 public:
  explicit ItemsEvent(std::shared_ptr<CallStreams> to) noexcept : streams(std::move(to)) {}
  bool deliver() override {
    if (!streams->on_items_) return true;
    nb::list made;
    nb::object failure = nb::none();
    try {
      for (detail::StreamCore::Item& item : items) made.append(object_of(item));
      if (error) failure = exception_of(*error);
    } catch (nb::python_error& thrown) {
      failure = nb::borrow(thrown.value());
      ended = true;
    }
    const Reference done(PyObject_CallFunctionObjArgs(streams->on_items_.get(), made.ptr(), ended ? Py_True : Py_False,
                                                      failure.ptr(), nullptr));
    return static_cast<bool>(done);
  }

  const std::shared_ptr<CallStreams> streams;
  std::vector<detail::StreamCore::Item> items;
  bool ended = false;
  std::optional<Error> error;

 private:
  nb::object object_of(detail::StreamCore::Item& item) const {
    nb::object keeper;
    if (!item.payload.empty()) keeper = memory_object(item.payload);
    const Message message{.body = item.body.bytes(), .payload = item.payload.bytes(), .keeper = keeper.ptr()};
    Error failed;
    nb::object made = nb::steal(decode_value(*streams->plan_, *streams->received_, message, failed));
    if (!made.is_valid() && failed.code == ErrorCode::ok) throw nb::python_error();
    if (!made.is_valid()) raise(failed);
    return made;
  }
};

// The queue has room, or sending has failed. It also makes the thread of Python drop references to sent memory.
class SentEvent final : public Event {
 public:
  SentEvent(std::shared_ptr<CallStreams> to, std::optional<Error> why) noexcept
      : streams_(std::move(to)), error_(std::move(why)) {}
  bool deliver() override {
    if (!streams_->on_sent_) return true;
    const nb::object failure = error_ ? exception_of(*error_) : nb::none();
    const Reference done(PyObject_CallFunctionObjArgs(streams_->on_sent_.get(), failure.ptr(), nullptr));
    return static_cast<bool>(done);
  }

 private:
  const std::shared_ptr<CallStreams> streams_;
  const std::optional<Error> error_;
};

// Stores the handle of a coroutine while it runs, so that detach() can destroy it.
struct CallStreams::Begun {
  std::coroutine_handle<>& place;
  bool await_ready() const noexcept { return false; }
  bool await_suspend(std::coroutine_handle<> handle) const noexcept {
    place = handle;
    return false;
  }
  void await_resume() const noexcept {}
};

CallStreams::CallStreams(std::shared_ptr<const Plan> plan, std::optional<std::uint32_t> received,
                         std::optional<std::uint32_t> sent, std::shared_ptr<Hub> hub)
    : plan_(std::move(plan)),
      received_(received),
      sent_(sent),
      hub_(std::move(hub)),
      generation_(process_generation()) {}

bool CallStreams::own_process() const noexcept { return generation_ == process_generation(); }

// ---- Python ----

void CallStreams::set_sinks(nb::object on_items, nb::object on_sent) {
  on_items_ = Reference(on_items.release().ptr());
  on_sent_ = Reference(on_sent.release().ptr());
}

void CallStreams::release() {
  on_items_.reset();
  on_sent_.reset();
  if (!own_process()) return;  // A thread of the parent may hold the mutex.
  std::deque<Encoded> dropped;
  const std::lock_guard lock(mutex_);
  // An attached stream is detached on the loop, which may be sending the first item.
  if (state_ == State::attached) return;
  state_ = State::ended;
  dropped.swap(queue_);
}

void CallStreams::require(const std::optional<std::uint32_t>& type) const {
  if (type) return;
  PyErr_Format(PyExc_TypeError, "hawser: %s has no stream in this direction", plan_->description().name.c_str());
  throw nb::python_error();
}

void CallStreams::ask() {
  require(received_);
  require_own_process(generation_, "call");
  const std::lock_guard lock(mutex_);
  asked_ = true;
  wake();
}

bool CallStreams::write(nb::handle item) {
  require(sent_);
  require_own_process(generation_, "call");
  Encoded encoded;
  if (!encode_value(*plan_, *sent_, item.ptr(), encoded)) throw nb::python_error();
  const std::size_t bytes = queue_bytes(encoded);
  const char* refused = nullptr;
  std::optional<Error> failed;
  {
    const std::lock_guard lock(mutex_);
    if (ending_) {
      refused = "hawser: write() after end()";
    } else if (state_ == State::ended || write_error_) {
      failed = write_error_.value_or(ended_error());
    } else {
      queue_.push_back(std::move(encoded));
      queued_bytes_ += bytes;
      full_ = queued_bytes_ >= queue_bytes_max;
      wake();
      return !full_;
    }
  }
  // Exceptions are made without the mutex: making them may let another thread of Python run.
  if (failed) raise(*failed);
  PyErr_SetString(PyExc_RuntimeError, refused);
  throw nb::python_error();
}

bool CallStreams::full() noexcept {
  if (!own_process()) return false;  // A thread of the parent may hold the mutex.
  const std::lock_guard lock(mutex_);
  return full_;
}

bool CallStreams::flush() {
  require_own_process(generation_, "call");
  std::optional<Error> failed;
  {
    const std::lock_guard lock(mutex_);
    flushing_ = !queue_.empty() && state_ != State::ended;
    if (!lost_) return !flushing_;
    failed = write_error_;
  }
  raise(failed.value_or(ended_error()));
}

void CallStreams::end() {
  require_own_process(generation_, "call");
  const std::lock_guard lock(mutex_);
  if (!sent_ || std::exchange(ending_, true)) return;
  wake();
}

void CallStreams::wake() {
  if (state_ != State::attached || std::exchange(woken_, true)) return;
  loop_->post([self = shared_from_this()] { self->run(); });
}

// ---- Loop's thread ----

CallStreams::Attached::Attached(std::shared_ptr<CallStreams> streams, std::shared_ptr<detail::StreamCore> core)
    : streams_(core == nullptr ? nullptr : std::move(streams)) {
  if (streams_ == nullptr) return;
  {
    const std::lock_guard lock(streams_->mutex_);
    streams_->state_ = State::attached;
    streams_->loop_ = &core->channel().stream_loop();
  }
  streams_->core_ = std::move(core);
  streams_->run();
}

CallStreams::Attached::~Attached() {
  if (streams_ != nullptr) streams_->detach();
}

void CallStreams::detach() {
  if (reading_) std::exchange(reading_, nullptr).destroy();
  if (sending_) std::exchange(sending_, nullptr).destroy();
  std::deque<Encoded> dropped;
  std::optional<Error> error;
  bool notify = false;
  {
    const std::lock_guard lock(mutex_);
    state_ = State::ended;
    loop_ = nullptr;
    dropped.swap(queue_);
    if (!dropped.empty()) lost_ = true;
    if (!write_error_) write_error_ = ending_ ? ended_error() : core_->write_error().value_or(ended_error());
    error = write_error_;
    notify = full_ || flushing_ || !dropped.empty();
  }
  if (received_) take_items(true);
  core_.reset();
  dropped.clear();  // Before the event, with which Python drops what is left behind.
  if (notify) hub_->push(std::make_shared<SentEvent>(shared_from_this(), std::move(error)));
}

void CallStreams::run() {
  bool asked = false;
  bool sends = false;
  {
    const std::lock_guard lock(mutex_);
    woken_ = false;
    if (state_ != State::attached) return;
    asked = asked_ && received_;
    sends = sent_ && (!queue_.empty() || ending_);
  }
  if (asked && !reading_) read(shared_from_this());
  if (sends && !sending_ && !send_failed_) send(shared_from_this());
}

detail::Serving CallStreams::read(std::shared_ptr<CallStreams> streams) {
  Begun begun{streams->reading_};
  co_await begun;
  detail::StreamCore::Waiter readable = streams->core_->until_readable();
  co_await readable;
  streams->reading_ = nullptr;
  streams->take_items(false);
}

void CallStreams::take_items(bool all) {
  {
    const std::lock_guard lock(mutex_);
    asked_ = false;
  }
  auto event = std::make_shared<ItemsEvent>(shared_from_this());
  std::size_t bytes = 0;
  while (core_->readable()) {
    if (!all && (event->items.size() >= batch_items_max || bytes >= batch_bytes_max))
      return hub_->push(std::move(event));
    Result<std::optional<detail::StreamCore::Item>> item = core_->take();
    if (!item) event->error = std::move(item.error());
    event->ended = !item || !*item;
    if (event->ended) return hub_->push(std::move(event));
    // The batch is limited in place of these charges, which belong to the loop.
    (*item)->body_charge.reset();
    (*item)->payload_charge.reset();
    bytes += (*item)->body.size() + (*item)->payload.size() + detail::StreamCore::item_overhead_bytes;
    event->items.push_back(std::move(**item));
  }
  if (all) {
    event->ended = true;
    event->error = Error::of_call(ErrorCode::cancelled, "the call was ended before its stream of items");
  }
  hub_->push(std::move(event));
}

const Encoded* CallStreams::next_to_send() {
  const std::lock_guard lock(mutex_);
  return queue_.empty() ? nullptr : &queue_.front();  // A deque does not move its elements when it grows.
}

void CallStreams::on_item_sent() {
  Encoded sent;
  bool notify = false;
  {
    const std::lock_guard lock(mutex_);
    sent = std::move(queue_.front());
    queue_.pop_front();
    queued_bytes_ -= queue_bytes(sent);
    notify = (full_ && queued_bytes_ < queue_bytes_low) || (queue_.empty() && (flushing_ || !sent.kept.empty()));
    if (notify) full_ = flushing_ = false;
  }
  sent = {};  // Before the event, with which Python drops what is left behind.
  if (notify) hub_->push(std::make_shared<SentEvent>(shared_from_this(), std::nullopt));
}

void CallStreams::on_send_failed(Error error) {
  send_failed_ = true;
  std::deque<Encoded> dropped;
  {
    const std::lock_guard lock(mutex_);
    dropped.swap(queue_);
    lost_ = true;
    write_error_ = error;
    queued_bytes_ = 0;
    full_ = flushing_ = false;
  }
  dropped.clear();  // Before the event, with which Python drops what is left behind.
  hub_->push(std::make_shared<SentEvent>(shared_from_this(), std::move(error)));
}

detail::Serving CallStreams::send(std::shared_ptr<CallStreams> streams) {
  Begun begun{streams->sending_};
  co_await begun;
  detail::StreamCore& core = *streams->core_;
  std::optional<Error> failed;
  while (!failed) {
    const Encoded* const item = streams->next_to_send();
    if (item == nullptr) break;
    // Credit, or room in the backlog, may be used up again before this is resumed.
    do {
      detail::StreamCore::Waiter writable = core.until_writable();
      co_await writable;
    } while (!core.writable());
    failed = core.write_error();
    if (failed) break;
    const codec::EncodedSize size{.body = item->body.size(), .payload = item->payload, .pieces = item->pieces.size()};
    std::byte* const body = core.begin_item(size);
    if (body == nullptr) {
      failed =
          Error::of_call(ErrorCode::limit_exceeded, "the item passes message_bytes_max or the connection has ended");
      break;
    }
    if (!item->body.empty()) std::memcpy(body, item->body.data(), item->body.size());
    if (item->pieces.empty()) {
      core.end_item({}, nullptr);
    } else {
      detail::ConstBuffers pieces(item->pieces.size());
      std::ranges::copy(item->pieces, pieces.data());
      detail::ItemLoan loan(core.channel());
      core.end_item(pieces.span(), &loan);
      co_await loan;
      failed = core.write_error();  // The loan also ends when the item is lost with the connection.
    }
    if (!failed) streams->on_item_sent();
  }
  streams->sending_ = nullptr;
  if (failed) {
    streams->on_send_failed(std::move(*failed));
    co_return;
  }
  bool ends = false;
  {
    const std::lock_guard lock(streams->mutex_);
    ends = streams->ending_ && streams->queue_.empty();  // An item of just now goes first: run() follows.
  }
  if (ends) core.end();
}

// ---- Bindings ----

void bind_streams(nb::module_& module) {
  nb::class_<CallStreams>(module, "CallStreams")
      .def("set_sinks", &CallStreams::set_sinks)
      .def("release", &CallStreams::release)
      .def_prop_ro("own_process", &CallStreams::own_process)
      .def("ask", &CallStreams::ask)
      .def_prop_ro("full", &CallStreams::full)
      .def("write", &CallStreams::write, nb::arg("item").none())
      .def("flush", &CallStreams::flush)
      .def("end", &CallStreams::end);
  // The client's side.
  module.def(
      "make_streams",
      [](const Method& method, const std::shared_ptr<Hub>& hub) {
        const schema::Description& types = method.description();
        return std::make_shared<CallStreams>(method.plan, types.outgoing, types.incoming, hub);
      },
      nb::arg("method"), nb::arg("hub"));
}

}  // namespace hawser::python
