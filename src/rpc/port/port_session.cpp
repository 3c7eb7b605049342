#include "rpc/port/port_session.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <optional>
#include <utility>

#include "base/decimal_text.h"
#include "base/line_trace.h"
#include "exec/loop_work.h"
#include "hawser/detail/loop_access.h"
#include "hawser/identity.h"
#include "hawser/interceptor.h"
#include "hawser/protocols.h"
#include "hawser/structured_log.h"
#include "hawser/trace.h"
#include "rpc/port/port_protocol.h"
#include "rpc/server/interception.h"

namespace hawser {

std::string_view ProtocolSpec::name() const noexcept { return protocol_->name(); }

namespace rpc {

using detail::ActiveCall;
using wire::CallId;

std::vector<std::uint32_t> ActiveCalls::unanswered_ids() const {
  std::vector<std::uint32_t> ids;
  ids.reserve(unanswered_);
  for (const ActiveCall* call = first_; call != nullptr; call = call->next) {
    if (find(CallId::from_number(call->id())) == call) ids.push_back(call->id());
  }
  std::ranges::reverse(ids);
  return ids;
}

bool ActiveCalls::handles(const void* frame) const noexcept {
  for (const ActiveCall* call = first_; call != nullptr; call = call->next) {
    if (call->handler_frame == frame || (call->inner != nullptr && call->inner->handler_frame == frame)) return true;
  }
  return false;
}

std::size_t ActiveCalls::destroy(std::size_t calls_max) {
  std::size_t destroyed = 0;
  for (ActiveCall* call = first_; call != nullptr && destroyed < calls_max;) {
    if (call->pinned()) {
      // The call ends by itself, at once if its work still waits for a thread.
      call->end_wanted = true;
      call->request_stop(ErrorCode::cancelled, Initiator::local, "the server has stopped");
      call = call->next;
      continue;
    }
    call->destroy_coroutine();
    ++destroyed;
    call = first_;
  }
  return destroyed;
}

PortSession::PortSession(PortHost& host, std::string peer, std::shared_ptr<const Identity> identity)
    : host_(host),
      peer_(std::move(peer)),
      identity_(identity != nullptr ? std::move(identity)
                                    : std::shared_ptr<const Identity>(std::shared_ptr<void>(), &no_identity())),
      slot_(host.sessions.add(this).index),
      opened_(host.loop.now()),
      reported_{.at = opened_},
      calls_(host.calls_in_flight) {
  host_.counters.connections_open.add(1);
}

void PortSession::start(std::unique_ptr<detail::Posted> end, bool refuses) {
  end_ = std::move(end);
  if (refuses) begin_ending();
  on_start();
  if (refuses) go_away();
}

PortSession::~PortSession() {
  host_.cancelling.remove(*this);
  host_.sessions.free(slot_);
  host_.counters.connections_open.add(-1);
}

void PortSession::set_identity(Identity identity) { identity_ = std::make_shared<const Identity>(std::move(identity)); }

void PortSession::serve_form(const Dispatcher::Method& method, detail::IncomingRequest request, const BodyForm& form) {
  if (form.plain()) return serve(method, request);
  request.coded = true;
  serve_by(method, request, [&] { serve_with_form(host_.interceptors, method, request, form); });
}

bool PortSession::converts_here(const BodyForm& form, std::size_t body_bytes) noexcept {
  if (!form.in_place(body_bytes)) return false;
  if (form.unpack == nullptr) return true;
  const Time tick = detail::LoopAccess::tick_begin(host_.loop);
  if (std::exchange(host_.unpacked_tick, tick) != tick) host_.unpacked_bytes = 0;
  if (host_.unpacked_bytes >= BodyForm::unpacked_tick_max) return false;
  host_.unpacked_bytes += form.unpacked_max;
  return true;
}

std::size_t PortSession::conversion_bytes(const BodyForm& form, std::size_t body_bytes) const noexcept {
  return form.memory_bytes(body_bytes, host_.budget.share_bytes_max());
}

// ---- Counting ----

void PortSession::count_begin(ActiveCall& call) noexcept {
  call.begun = host_.loop.now();
  if (serving_.counters == nullptr || serving_.call != call.id()) return;
  call.method = serving_.method;
  serving_.counters->active.add(1);
  serving_.counters = nullptr;
}

void PortSession::count_end(ActiveCall& call) noexcept {
  MethodCounters& counters = host_.methods.of(call.method->index);
  counters.active.add(-1);
  if (!call.outcome) [[unlikely]]
    notify_dropped(call);
  const ErrorCode code = call.outcome.value_or(ErrorCode::cancelled);
  const Time now = host_.loop.now();
  if (now != call.begun) {
    counters.end(code, now - call.begun);
  } else {
    host_.methods.end_short(host_.loop, counters, code);
  }
}

// ---- Calls that interceptors have skipped ----

void PortSession::refuse_skipped(const detail::IncomingRequest& request, const Error& error) {
  serving_.skipped = &request;
  try {
    request.sink.reply_error(request.call, error);
  } catch (...) {
    serving_.skipped = nullptr;
    throw;
  }
  serving_.skipped = nullptr;
}

void PortSession::notify_in_place(const Error& error) noexcept {
  const SkippedCall ended(*serving_.skipped, serving_.method->name, Duration::zero(), 0, &error);
  for (const auto& interceptor : host_.interceptors) interceptor->skipped(ended);
}

void PortSession::notify_active(ActiveCall& call, std::size_t reply_bytes, const Error* error) noexcept {
  if (host_.interceptors.empty() || call.method == nullptr || std::exchange(call.observed, true)) return;
  const SkippedCall ended(call.request(), call.method->name, host_.loop.now() - call.begun, reply_bytes, error);
  for (const auto& interceptor : host_.interceptors) interceptor->skipped(ended);
}

void PortSession::notify_dropped(ActiveCall& call) noexcept {
  if (host_.interceptors.empty() || call.observed) return;
  Error error = Error::of_call(ErrorCode::cancelled, {});
  try {
    error.text = "the call was dropped";
  } catch (const std::bad_alloc&) {
    // The error has no text then.
  }
  notify_active(call, 0, &error);
}

ConnectionReport PortSession::report() {
  ConnectionReport report{.slot = slot_,
                          .serial = host_.sessions.generation(slot_),
                          .peer = peer_,
                          .identity = identity_->text(),
                          .protocol = protocol(),
                          .transport = {},
                          .protection = protection_,
                          .declined = declined_,
                          .age = host_.loop.now() - opened_,
                          .calls = served_,
                          .active = calls_.active()};
  describe(report);
  const double seconds = std::chrono::duration<double>(host_.loop.now() - reported_.at).count();
  const auto rate = [seconds](std::uint64_t now, std::uint64_t before) {
    return seconds <= 0 ? 0 : static_cast<double>(now - before) / seconds;
  };
  report.received_rate = rate(report.received_bytes, reported_.received_bytes);
  report.sent_rate = rate(report.sent_bytes, reported_.sent_bytes);
  report.calls_rate = rate(report.calls, reported_.calls);
  if (seconds >= 1) reported_ = {host_.loop.now(), report.received_bytes, report.sent_bytes, report.calls};
  return report;
}

Error PortSession::full_error(std::size_t calls_max) const {
  if (ending_)
    return Error::of_call(ErrorCode::unavailable, "the server is stopping, or the connection is older than its limit");
  return full_for_accepted_error(calls_max);
}

Error PortSession::full_for_accepted_error(std::size_t calls_max) const {
  if (calls_.unanswered() < calls_max && server_full()) return server_full_error();
  return Error::of_call(ErrorCode::overloaded, "the connection has " + count_text(calls_max, "call") +
                                                   " in flight already (calls_per_connection_max)");
}

Error PortSession::server_full_error() const {
  return Error::of_call(ErrorCode::overloaded, "the server has " + count_text(host_.options.calls_max, "call") +
                                                   " in flight already (calls_max)");
}

void PortSession::refuse_late(const detail::IncomingRequest& request) {
  request.sink.reply_error(request.call, Error::of_call(Initiator::peer, ErrorCode::deadline_exceeded,
                                                        "the caller's deadline has passed before the handler began"));
}

Error PortSession::unkept_error(const detail::ReceiveAccount& account) {
  host_.counters.memory_refusals.add(1);
  const detail::ReceiveBudget& budget = host_.budget;
  return Error::of_call(
      ErrorCode::overloaded,
      "the request does not fit into the memory for what is received and kept: receive_bytes_max allows " +
          count_text(budget.bytes_max(), "byte") + " on the loop, of which " + std::to_string(budget.used()) +
          " are used, and receive_share_bytes_max " + count_text(budget.share_bytes_max(), "byte") +
          " to the connection, which uses " + std::to_string(account.used()) + ", and receive_peer_bytes_max " +
          count_text(budget.peer_bytes_max(), "byte") +
          " to all connections of its peer: send again later, or raise them");
}

void PortSession::name_traced_work(const std::string& method, MetadataView metadata) noexcept {
  detail::LoopWork::set_traced_work(host_.loop, method, metadata.bytes(),
                                    [](Bytes bytes) { return trace_of(MetadataView(bytes)); });
}

Error PortSession::exception_error(MetadataView metadata, std::string_view method, std::string_view part,
                                   std::string text) {
  // Without metadata, the line has the trace that the caller of this function may have set.
  const std::optional<TraceContext> trace = trace_of(metadata);
  const LineTrace line(trace ? &*trace : trace_of_line());
  const std::string threw = std::string(part) + " threw an exception";
  host_.log.write(host_.loop, LogLevel::error,
                  [&] { return "call of " + std::string(method) + " from " + peer_ + ": " + threw + ": " + text; });
  return Error::of_call(ErrorCode::internal,
                        threw + (host_.options.exception_texts ? ": " + text
                                                               : ", whose text is in the server's log "
                                                                 "(ServerOptions::exception_texts sends it)"));
}

Error PortSession::slow_error(pipe::PeerPace::Behind behind, std::uint64_t bytes,
                              const detail::ReceiveAccount& account) {
  host_.counters.slow_peers.add(1);
  const ServerOptions& options = host_.options;
  const std::string window =
      std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(options.receive_window).count()) +
      " ms (receive_window)";
  const std::string rate =
      "receive_rate_min (" + count_text(options.receive_rate_min, "byte") + " a second), or lower that";
  const std::string number = count_text(bytes, "byte");
  Error why =
      Error::of_connection(Initiator::peer, ErrorCode::deadline_exceeded,
                           behind == pipe::PeerPace::Behind::taking
                               ? "of the replies that wait, the peer took fewer than " + number + " within " + window +
                                     ", while they keep " + std::to_string(account.used()) + " of the " +
                                     count_text(host_.budget.bytes_max(), "byte") +
                                     " of receive_bytes_max, more than half of which are used: read faster than " + rate
                               : "of a message that has begun, fewer than " + number + " came within " + window +
                                     ": send it faster than " + rate);
  return why;
}

void PortSession::log_opened(std::string_view carrier) noexcept {
  host_.log.write(host_.loop, LogLevel::info,
                  [&] { return "connection from " + peer_ + " opened over " + std::string(carrier); });
}

void PortSession::log_closed(const Error& reason) noexcept {
  // deadline_exceeded is the reason of slow_error().
  const bool faulty = reason.code == ErrorCode::protocol_error || reason.code == ErrorCode::deadline_exceeded;
  host_.log.write(host_.loop, faulty ? LogLevel::warning : LogLevel::info,
                  [&] { return "connection from " + peer_ + " closed: " + reason.text; });
}

}  // namespace rpc
}  // namespace hawser
