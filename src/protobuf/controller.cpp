#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <ostream>

#include "base/what_of.h"
#include "hawser/detail/context_access.h"
#include "hawser/loop.h"
#include "hawser/protobuf.h"
#include "hawser/protobuf_controller.h"
#include "protobuf/client_call.h"
#include "protobuf/stream_state.h"
#include "rpc/port/stream_acceptor.h"

namespace hawser::pb {

// ---- Attachment ----

void Attachment::clear() noexcept {
  received_ = {};
  text_.clear();
}

std::string& Attachment::grown() {
  if (!received_.empty()) {
    text_ = as_text(received_.bytes());
    received_ = {};
  }
  return text_;
}

Buffer Attachment::take() {
  if (text_.empty()) return std::exchange(received_, {});
  auto owned = std::make_unique<std::string>(std::move(text_));
  text_.clear();
  const Bytes bytes = as_bytes(std::string_view(*owned));
  return Buffer::of_foreign(bytes, [kept = std::move(owned)]() mutable { kept.reset(); });
}

std::ostream& operator<<(std::ostream& out, const Attachment& attachment) { return out << as_text(attachment.bytes()); }

// ---- ClientCall ----

namespace {

std::int32_t rpc_code_of(const Error& error) noexcept {
  switch (error.code) {
    case hawser::ErrorCode::invalid_argument:
    case hawser::ErrorCode::signature_mismatch:
    case hawser::ErrorCode::limit_exceeded:
    case hawser::ErrorCode::stale_handle: return EREQUEST;
    case hawser::ErrorCode::protocol_error: return ERESPONSE;
    case hawser::ErrorCode::unknown_method: return ENOMETHOD;
    case hawser::ErrorCode::cancelled: return ECANCELED;
    case hawser::ErrorCode::deadline_exceeded: return ERPCTIMEDOUT;
    case hawser::ErrorCode::overloaded: return ELIMIT;
    case hawser::ErrorCode::not_sent: return EHOSTDOWN;
    case hawser::ErrorCode::unavailable: return error.initiator == Initiator::peer ? ELOGOFF : EHOSTDOWN;
    case hawser::ErrorCode::outcome_unknown: return EFAILEDSOCKET;
    case hawser::ErrorCode::unauthenticated: return ERPCAUTH;
    case hawser::ErrorCode::permission_denied: return EACCES;
    case hawser::ErrorCode::application: return error.application_code != 0 ? error.application_code : EINTERNAL;
    case hawser::ErrorCode::ok:
    case hawser::ErrorCode::internal: break;
  }
  return EINTERNAL;
}

Result<void> read_response(const Buffer& body, google::protobuf::Message& response, const codec::DecodeLimits& limits,
                           const MessageFacts& facts) {
  response.Clear();
  codec::Decoder decoder(body.bytes(), {}, limits);
  if (!read_message(decoder, body.bytes(), response, facts)) return fail(decoder.error());
  return {};
}

}  // namespace

std::shared_ptr<ClientCall> ClientCall::start(google::protobuf::RpcController* base, google::protobuf::Message* into,
                                              google::protobuf::Closure* closure) {
  auto* const of = dynamic_cast<Controller*>(base);
  if (of == nullptr) {
    base->SetFailed("the controller of a channel of hawser::pb must be a hawser::pb::Controller");
    if (closure != nullptr) closure->Run();
    return nullptr;
  }
  static_cast<void>(of->call_id());
  std::shared_ptr<ClientCall> call = of->call_;
  if (!call->begin(of, into, closure)) {
    // The controller was used before. A call that is still in flight goes on to use it.
    if (call->running()) {
      std::fputs("hawser: CallMethod() with a controller whose call is in flight: make a controller for each call\n",
                 stderr);
      std::abort();
    }
    call = of->call_ = std::make_shared<ClientCall>();
    static_cast<void>(call->begin(of, into, closure));
  }
  of->error_.reset();
  of->code_ = 0;
  of->subs_.clear();
  return call;
}

bool ClientCall::refuse_to_block(const google::protobuf::Closure* done) {
  if (done != nullptr || Loop::current() == nullptr) return false;
  refuse(Error::of_call(
      hawser::ErrorCode::invalid_argument,
      "a call without `done` would block a thread that runs a loop, as in a handler, a coroutine or a `done`: pass "
      "a `done`, or make the call on another thread"));
  return true;
}

bool ClientCall::begin(Controller* of, google::protobuf::Message* into, google::protobuf::Closure* closure) {
  const std::lock_guard lock(mutex_);
  if (state_ != State::idle) return false;
  state_ = State::running;
  controller_ = of;
  response_ = into;
  done_ = closure;
  begun_ = std::chrono::steady_clock::now();
  return true;
}

void ClientCall::run_on(const std::shared_ptr<BackgroundLoops>& background, Loop& on) {
  const std::lock_guard lock(mutex_);
  loops_ = background;
  loop_ = &on;
}

void ClientCall::made_of(std::function<void()> cancel_parts) {
  const std::lock_guard lock(mutex_);
  cancel_parts_ = std::move(cancel_parts);
}

bool ClientCall::cancelled() const {
  const std::lock_guard lock(mutex_);
  return cancelled_;
}

bool ClientCall::running() const {
  const std::lock_guard lock(mutex_);
  return state_ == State::running || state_ == State::ending;
}

template <class Write>
void ClientCall::end_with(Write write) {
  std::shared_ptr<BackgroundLoops> loops;  // These two are released without the lock.
  std::function<void()> cancel_parts;
  Controller* to = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (state_ != State::running) return;
    state_ = State::ending;
    to = controller_;
    loops = std::move(loops_);
    cancel_parts = std::exchange(cancel_parts_, nullptr);
  }
  // Without the lock, since merging runs code of the user. unlink() waits for the end of it.
  if (to != nullptr) {
    std::optional<Error> error;
    try {
      error = write(*to);
    } catch (const std::exception& thrown) {
      error = Error::of_call(hawser::ErrorCode::internal,
                             "writing the response threw " + std::string(hawser::what_of(thrown)));
    }
    if (error) {
      to->code_ = rpc_code_of(*error);
      to->error_ = std::move(error);
    }
    to->latency_us_ =
        std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - begun_).count();
    to->retried_count_ = retried;
    to->backup_sent_ = backup_sent;
  }
  google::protobuf::Closure* done = nullptr;
  {
    const std::lock_guard lock(mutex_);
    controller_ = nullptr;
    done = std::exchange(done_, nullptr);
    state_ = State::ended;
    changed_.notify_all();
  }
  if (done != nullptr) done->Run();  // May destroy the controller and the channel.
  const std::lock_guard lock(mutex_);
  state_ = State::joined;
  changed_.notify_all();
}

void ClientCall::end(Result<RawReply> reply, const codec::DecodeLimits& limits, const MessageFacts& facts) {
  end_with([&](Controller& to) -> std::optional<Error> {
    if (!reply) return std::move(reply.error());
    if (Result<void> read = read_response(reply->body, *response_, limits, facts); !read)
      return std::move(read.error());
    to.response_attachment_ = Attachment(std::move(reply->attachment));
    to.response_metadata_ = std::move(reply->metadata);
    return std::nullopt;
  });
}

void ClientCall::refuse(Error error) {
  end_with([&](Controller&) -> std::optional<Error> { return std::move(error); });
}

void ClientCall::end_merged(const std::vector<std::shared_ptr<const Controller>>& parts,
                            const std::function<std::optional<Error>(google::protobuf::Message&, Attachment&)>& merge) {
  end_with([&](Controller& to) {
    to.subs_ = parts;
    Attachment attachment;
    std::optional<Error> error = merge(*response_, attachment);
    if (!error) to.response_attachment_ = std::move(attachment);
    return error;
  });
}

void ClientCall::cancel() {
  std::function<void()> cancel_parts;
  {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
    cancel_parts = cancel_parts_;
    if (state_ == State::running && loops_ != nullptr && loops_->in_this_process()) {
      loop_->post([self = shared_from_this()] { self->stop.request_stop(); });
    }
  }
  if (cancel_parts) cancel_parts();
}

void ClientCall::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return state_ == State::idle || state_ == State::joined; });
}

void ClientCall::unlink() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return state_ != State::ending; });
    controller_ = nullptr;
    response_ = nullptr;
    if (state_ != State::running) return;
  }
  cancel();
}

void StartCancel(const CallId& id) {
  if (id.call_ != nullptr) id.call_->cancel();
}

void Join(const CallId& id) {
  if (id.call_ != nullptr && Loop::current() == nullptr) id.call_->wait();
}

google::protobuf::Closure* DoNothing() { return google::protobuf::NewCallback(&google::protobuf::DoNothing); }

// ---- Controller ----

// The callback of NotifyOnCancel(), which runs once.
struct Controller::Cancellation {
  Cancellation(const std::stop_token& token, google::protobuf::Closure* given)
      : callback(given), watch(token, std::bind_front(&Cancellation::run, this)) {}
  void run() noexcept {
    if (auto* const once = callback.exchange(nullptr)) once->Run();
  }
  std::atomic<google::protobuf::Closure*> callback;
  std::stop_callback<decltype(std::bind_front(&Cancellation::run, static_cast<Cancellation*>(nullptr)))> watch;
};

Controller::Controller() = default;
// Copies what the caller sent beside the request: the method may need it after the call has been destroyed.
Controller::Controller(Context& context)
    : token_(context.token()),
      request_attachment_(context.attachment().empty() ? Buffer() : Buffer::copy_of(context.attachment())),
      request_metadata_(context.metadata().copy()),
      peer_(context.peer()),
      deadline_(context.deadline()) {
  auto* const acceptor = dynamic_cast<rpc::StreamAcceptor*>(&detail::ContextAccess::reply_sink(context).origin());
  if (acceptor != nullptr) streams_offered_ = acceptor->streams_offered(detail::ContextAccess::call(context));
}
Controller::~Controller() {
  unlink();
  finish();
  drop_streams();
}

void Controller::drop_streams() noexcept {
  for (const auto& stream : take_streams()) stream->finish();
}

void Controller::make_streams(StreamIds& ids, std::size_t count, const StreamOptions* options) {
  for (std::size_t i = 0; i < count; ++i) {
    streams_.push_back(StreamState::make(options == nullptr ? StreamOptions() : *options));
    ids.push_back(streams_.back()->id());
  }
}

int StreamCreate(StreamIds& streams, int count, Controller& controller, const StreamOptions* options) {
  if (count < 1 || count > streams_per_call_max || !streams.empty()) return -1;
  if (!controller.streams_.empty() || controller.token_.stop_possible()) return -1;
  controller.make_streams(streams, static_cast<std::size_t>(count), options);
  return 0;
}

int StreamCreate(StreamId* stream, Controller& controller, const StreamOptions* options) {
  StreamIds one;
  if (const int failed = StreamCreate(one, 1, controller, options)) return failed;
  *stream = one.front();
  return 0;
}

int StreamAccept(StreamIds& streams, Controller& controller, const StreamOptions* options) {
  if (controller.streams_offered_ == 0 || !streams.empty()) return -1;
  controller.make_streams(streams, std::exchange(controller.streams_offered_, 0), options);
  return 0;
}

int StreamAccept(StreamId* stream, Controller& controller, const StreamOptions* options) {
  if (controller.streams_offered_ != 1) return -1;
  StreamIds one;
  if (const int failed = StreamAccept(one, controller, options)) return failed;
  *stream = one.front();
  return 0;
}

void Controller::unlink() noexcept {
  if (const auto call = std::exchange(call_, nullptr)) call->unlink();
}

void Controller::SetFailed(std::int32_t code, const std::string& text) {
  code_ = code;
  error_ = Error::application(code, text);
}

bool Controller::IsCanceled() const {
  return token_.stop_requested() || (error_ && error_->code == hawser::ErrorCode::cancelled);
}

void Controller::NotifyOnCancel(google::protobuf::Closure* callback) {
  finish();
  cancellation_ = std::make_unique<Cancellation>(token_, callback);
}

void Controller::Reset() {
  unlink();
  error_.reset();
  code_ = 0;
  response_attachment_.clear();
  response_metadata_.clear();
  subs_.clear();
  if (token_.stop_possible()) return;  // A server's: what the caller sent stays.
  drop_streams();
  request_attachment_.clear();
  request_metadata_.clear();
  timeout_ms_.reset();
  max_retry_.reset();
  backup_request_ms_.reset();
  compress_type_ = COMPRESS_TYPE_NONE;
  latency_us_ = 0;
  retried_count_ = 0;
  backup_sent_ = false;
}

std::uint64_t Controller::log_id() const noexcept {
  std::uint64_t id = 0;
  for (const auto& [key, value] : request_metadata_) {
    if (key == "log-id") std::from_chars(value.data(), value.data() + value.size(), id);
  }
  return id;
}

void Controller::set_log_id(std::uint64_t id) {
  std::erase_if(request_metadata_, [](const auto& entry) { return entry.first == "log-id"; });
  request_metadata_.emplace_back("log-id", std::to_string(id));
}

CallId Controller::call_id() {
  if (call_ == nullptr) call_ = std::make_shared<ClientCall>();
  return CallId(call_);
}

void Controller::finish() noexcept {
  if (const auto cancellation = std::move(cancellation_)) cancellation->run();
}

}  // namespace hawser::pb
