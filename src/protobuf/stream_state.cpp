#include "protobuf/stream_state.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "hawser/with_timeout.h"

namespace hawser::pb {

namespace {

// Never destroyed: streams may be used while the process exits.
struct Streams {
  static Streams& get() {
    static Streams& only = *new Streams;
    return only;
  }
  std::mutex mutex;
  StreamId next_id = 1;
  std::unordered_map<StreamId, std::shared_ptr<StreamState>> open;
};

// A time that the clock cannot represent is the latest, or the earliest, second that it can.
std::chrono::system_clock::time_point time_of(const timespec& due) {
  using Clock = std::chrono::system_clock;
  constexpr auto latest = std::chrono::floor<std::chrono::seconds>(Clock::time_point::max().time_since_epoch()).count();
  if (due.tv_sec >= latest) return Clock::time_point(std::chrono::seconds(latest));
  if (due.tv_sec <= -latest) return Clock::time_point(std::chrono::seconds(-latest));
  return std::chrono::system_clock::time_point(std::chrono::duration_cast<std::chrono::system_clock::duration>(
      std::chrono::seconds(due.tv_sec) + std::chrono::nanoseconds(due.tv_nsec)));
}

}  // namespace

struct StreamState::Attached {
  Event to_send;    // There is a message, or the stream is to be closed.
  Event to_attend;  // A wait may have ended.
  Event over;       // The peer has closed the stream, or this side has, and everything has been sent.
  Event read;       // The peer has closed the stream.
  Mutex turn;       // Functions of the handler run one at a time.
  Time active{};    // Time at which the last message came.
  Scope parts;      // Last: its tasks use the members above.
};

std::shared_ptr<StreamState> StreamState::make(const StreamOptions& options) {
  Streams& streams = Streams::get();
  const std::lock_guard lock(streams.mutex);
  const auto made = std::make_shared<StreamState>(options, streams.next_id++);
  streams.open.emplace(made->id(), made);
  return made;
}

std::shared_ptr<StreamState> StreamState::find(StreamId id) {
  Streams& streams = Streams::get();
  const std::lock_guard lock(streams.mutex);
  const auto found = streams.open.find(id);
  return found == streams.open.end() ? nullptr : found->second;
}

bool StreamState::closing() const {
  const std::lock_guard lock(mutex_);
  return close_wanted_ || finished_;
}

// ---- Any thread ----

// Lets the loop look at the members, once for several changes.
void StreamState::wake() {
  if (loop_ == nullptr || std::exchange(woken_, true)) return;
  loop_->post([self = shared_from_this()] {
    const std::lock_guard lock(self->mutex_);
    self->woken_ = false;
    if (self->attached_ == nullptr) return;
    self->attached_->to_send.set();
    self->attached_->to_attend.set();
  });
}

int StreamState::write(const IOBuf& message) {
  Buffer copy = message.empty() ? Buffer() : Buffer::copy_of(message.bytes());
  const std::lock_guard lock(mutex_);
  if (!writes()) return EINVAL;
  if (full()) return EAGAIN;
  queued_bytes_ += copy.size();
  queue_.push_back(std::move(copy));
  wake();
  return 0;
}

int StreamState::wait(const timespec* due) {
  std::unique_lock lock(mutex_);
  if (!writes()) return EINVAL;
  if (!full()) return 0;
  if (Loop::current() != nullptr) return EDEADLK;
  const auto ready = [this] { return !writes() || !full(); };
  if (due == nullptr) {
    changed_.wait(lock, ready);
  } else if (!changed_.wait_until(lock, time_of(*due), ready)) {
    return ETIMEDOUT;
  }
  return writes() ? 0 : ECONNRESET;
}

void StreamState::wait(const timespec* due, void (*on_writable)(StreamId, void*, int), void* argument) {
  int result = 0;
  {
    const std::lock_guard lock(mutex_);
    if (!writes()) {
      result = EINVAL;
    } else if (full()) {
      waiting_.push_back({on_writable, argument, due == nullptr ? std::nullopt : std::optional(time_of(*due))});
      return wake();
    }
  }
  on_writable(id_, argument, result);
}

int StreamState::close() {
  {
    const std::lock_guard lock(mutex_);
    if (finished_ || close_wanted_) return EINVAL;
    close_wanted_ = true;
    changed_.notify_all();
    wake();
  }
  return 0;
}

std::optional<StreamState::LastCalls> StreamState::end() noexcept {
  LastCalls calls;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(finished_, true)) return std::nullopt;
    queue_.clear();
    queued_bytes_ = 0;
    calls.waiting.swap(waiting_);
    calls.on_closed = !handling_ && options_.handler != nullptr;
    changed_.notify_all();
  }
  Streams& streams = Streams::get();
  const std::lock_guard lock(streams.mutex);
  streams.open.erase(id_);
  return calls;
}

void StreamState::make(const LastCalls& calls) noexcept {
  for (const WritableCall& call : calls.waiting) call.on_writable(id_, call.argument, ECONNRESET);
  if (calls.on_closed) options_.handler->on_closed(id_);
}

void StreamState::finish() noexcept {
  const std::shared_ptr<StreamState> self = shared_from_this();
  if (const std::optional<LastCalls> calls = end()) make(*calls);
}

// ---- The handler's thread ----

// Runs a function of the handler, unless the stream has ended. The end that comes meanwhile is notified afterwards.
void StreamState::handle(const std::function<void()>& work) {
  {
    const std::lock_guard lock(mutex_);
    if (finished_) return;
    handling_ = true;
  }
  work();
  {
    const std::lock_guard lock(mutex_);
    handling_ = false;
    if (!finished_) return;
  }
  if (options_.handler != nullptr) options_.handler->on_closed(id_);
}

// ---- The loop's thread ----

// Runs `work` on a thread that may block. Waits while the loop's queue for such work is full.
Task<void> StreamState::on_other_thread(Loop& loop, std::function<void()> work, bool always) {
  // Work that must not be lost runs here if the pause ends with the loop's coroutines.
  struct Pause {
    const std::function<void()>& work;
    bool waits = false;
    ~Pause() {
      if (waits) work();
    }
  };
  Pause pausing{work};
  for (;;) {
    const Result<void> done = co_await loop.offload(work);
    if (done || done.error().code != hawser::ErrorCode::overloaded) co_return;
    pausing.waits = always;
    static_cast<void>(co_await loop.sleep(std::chrono::milliseconds(1)));
    pausing.waits = false;
  }
}

Task<void> StreamState::finish_on(Loop& loop) {
  // Ends the waits of threads at once: they may be all threads that could run `work`.
  std::optional<LastCalls> calls = end();
  if (!calls || (calls->waiting.empty() && !calls->on_closed)) co_return;
  std::function<void()> work = [self = shared_from_this(), last = std::move(*calls)] { self->make(last); };
  co_await on_other_thread(loop, std::move(work), true);
}

Task<void> StreamState::deliver(Loop& loop, std::vector<Buffer> batch) {
  if (options_.handler == nullptr || closing()) co_return;
  auto messages = std::make_shared<std::vector<IOBuf>>();
  messages->reserve(batch.size());
  for (Buffer& one : batch) messages->emplace_back(std::move(one));
  std::function<void()> work = [self = shared_from_this(), messages] {
    self->handle([&] {
      std::vector<IOBuf*> pointers;
      pointers.reserve(messages->size());
      for (IOBuf& one : *messages) pointers.push_back(&one);
      self->options_.handler->on_received_messages(self->id_, pointers.data(), pointers.size());
    });
  };
  co_await on_other_thread(loop, std::move(work));
}

Task<void> StreamState::carry(Loop& loop, std::shared_ptr<detail::StreamCore> core, Duration linger) {
  const std::shared_ptr<StreamState> self = shared_from_this();
  Attached attached;
  attached.active = loop.now();
  struct Detach {
    StreamState& state;
    ~Detach() {
      const std::lock_guard lock(state.mutex_);
      state.loop_ = nullptr;
      state.attached_ = nullptr;
    }
  };
  {
    const std::lock_guard lock(mutex_);
    loop_ = &loop;
    attached_ = &attached;
  }
  {
    const Detach detach{*this};
    attached.parts.spawn(send_all(core, attached));
    attached.parts.spawn(attend(loop, attached));
    attached.parts.spawn(read_all(loop, core, attached));
    if (options_.idle_timeout_ms >= 0 && options_.handler != nullptr) attached.parts.spawn(watch_idle(loop, attached));
    co_await attached.over.wait();
    if (closing()) {
      co_await finish_on(loop);
    }
    if (!attached.read.is_set() && linger > Duration::zero()) {
      const auto peer_closes = [&](std::stop_token token) { return attached.read.wait(std::move(token)); };
      static_cast<void>(co_await with_timeout(linger, peer_closes));
    }
  }
  attached.parts.clear();
}

Task<void> StreamState::read_all(Loop& loop, std::shared_ptr<detail::StreamCore> core, Attached& attached) {
  for (bool open = true; open;) {
    co_await core->until_readable();
    std::vector<Buffer> batch;
    while (core->readable() && batch.size() < std::max<std::size_t>(options_.messages_in_batch, 1)) {
      Result<std::optional<detail::StreamCore::Item>> item = core->take();
      open = item && *item;
      if (!open) break;
      batch.push_back(std::move((*item)->body));
    }
    if (batch.empty()) continue;
    attached.active = loop.now();
    const Permit turn = co_await attached.turn.lock();
    co_await deliver(loop, std::move(batch));
  }
  attached.read.set();
  attached.over.set();
}

Task<void> StreamState::send_all(std::shared_ptr<detail::StreamCore> core, Attached& attached) {
  for (;;) {
    std::optional<Buffer> next;
    bool last = false;
    {
      const std::lock_guard lock(mutex_);
      if (!queue_.empty()) {
        next = std::move(queue_.front());
        queue_.pop_front();
      }
      last = close_wanted_;
    }
    if (!next && last) break;
    if (!next) {
      attached.to_send.reset();
      co_await attached.to_send.wait();
      continue;
    }
    do {
      co_await core->until_writable();
    } while (!core->writable());
    if (core->write_error()) {
      // The reader notices the end, but the handler may be waiting for room.
      const std::lock_guard lock(mutex_);
      peer_closed_ = true;
      queue_.clear();
      queued_bytes_ = 0;
      changed_.notify_all();
      attached.to_attend.set();
      co_return;
    }
    codec::EncodedSize size;
    size.body = next->size();
    std::byte* const at = core->begin_item(size);
    if (at == nullptr) {
      const std::lock_guard lock(mutex_);
      close_wanted_ = true;  // The message is too large for the connection.
      queue_.clear();
      queued_bytes_ = 0;
      continue;
    }
    if (!next->empty()) std::memcpy(at, next->data(), next->size());
    core->end_item({}, nullptr);
    const std::lock_guard lock(mutex_);
    queued_bytes_ -= std::min(queued_bytes_, next->size());
    if (full()) continue;
    changed_.notify_all();
    if (!waiting_.empty()) attached.to_attend.set();
  }
  core->end();
  attached.over.set();
}

// Calls the functions of the waits that have ended.
Task<void> StreamState::attend(Loop& loop, Attached& attached) {
  for (;;) {
    std::vector<std::pair<WritableCall, int>> ended;
    Duration left = forever;
    {
      const std::lock_guard lock(mutex_);
      const auto now = std::chrono::system_clock::now();
      for (auto each = waiting_.begin(); each != waiting_.end();) {
        const bool late = each->due && *each->due <= now;
        if (late || !full() || !writes()) {
          ended.emplace_back(*each, !writes() ? ECONNRESET : !full() ? 0 : ETIMEDOUT);
          each = waiting_.erase(each);
          continue;
        }
        if (each->due) left = std::min<Duration>(left, *each->due - now);
        ++each;
      }
    }
    if (!ended.empty()) {
      std::function<void()> work = [self = shared_from_this(), calls = std::move(ended)] {
        for (const auto& [call, result] : calls) call.on_writable(self->id_, call.argument, result);
      };
      co_await on_other_thread(loop, std::move(work));
      continue;
    }
    attached.to_attend.reset();
    const auto attention = [&](std::stop_token token) { return attached.to_attend.wait(std::move(token)); };
    static_cast<void>(co_await with_timeout(left, attention));
  }
}

Task<void> StreamState::watch_idle(Loop& loop, Attached& attached) {
  const Duration idle = std::chrono::milliseconds(std::max(options_.idle_timeout_ms, 1L));
  for (;;) {
    static_cast<void>(co_await loop.sleep(idle - std::min<Duration>(idle, loop.now() - attached.active)));
    if (loop.now() - attached.active < idle) continue;
    const Permit turn = co_await attached.turn.lock();
    attached.active = loop.now();
    std::function<void()> work = [self = shared_from_this()] {
      self->handle([&] { self->options_.handler->on_idle_timeout(self->id_); });
    };
    co_await on_other_thread(loop, std::move(work));
  }
}

std::vector<OwnedStream> OwnedStream::all_of(std::vector<std::shared_ptr<StreamState>> streams) {
  std::vector<OwnedStream> owned;
  owned.reserve(streams.size());
  for (std::shared_ptr<StreamState>& stream : streams) owned.emplace_back(std::move(stream));
  return owned;
}

// ---- The functions of bRPC ----

int StreamWrite(StreamId stream, const IOBuf& message) {
  const auto state = StreamState::find(stream);
  return state == nullptr ? EINVAL : state->write(message);
}

int StreamWait(StreamId stream, const timespec* due_time) {
  const auto state = StreamState::find(stream);
  return state == nullptr ? EINVAL : state->wait(due_time);
}

void StreamWait(StreamId stream, const timespec* due_time, void (*on_writable)(StreamId, void*, int), void* argument) {
  const auto state = StreamState::find(stream);
  if (state == nullptr) return on_writable(stream, argument, EINVAL);
  state->wait(due_time, on_writable, argument);
}

int StreamClose(StreamId stream) {
  const auto state = StreamState::find(stream);
  return state == nullptr ? EINVAL : state->close();
}

}  // namespace hawser::pb
