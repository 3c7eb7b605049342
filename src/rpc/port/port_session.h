#pragma once

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hawser/detail/loop_access.h"
#include "hawser/detail/reply_sink.h"
#include "hawser/detail/send_reply.h"
#include "hawser/identity.h"
#include "pipe/peer_pace.h"
#include "rpc/port/active_calls.h"
#include "rpc/port/body_form.h"
#include "rpc/port/connection_report.h"
#include "rpc/port/port_host.h"

namespace hawser::rpc {

// The server's end of one connection, of whatever protocol, with its active calls. Outlives the connection until they
// have ended. ServerLoop owns it and calls the functions of the first group. A session answers each request exactly
// once, and holds the limits of the options. Loop's thread only.
class PortSession : public detail::ReplySink, public BodyFormEvents {
 public:
  PortSession(const PortSession&) = delete;
  PortSession& operator=(const PortSession&) = delete;
  virtual ~PortSession();

  // ---- For ServerLoop ----
  // Begins to receive. `end` destroys the session. It is made in advance, since a session must be able to end when
  // memory is exhausted. `refuses`: the session accepts no call, and goes away. May throw; then abort() follows.
  void start(std::unique_ptr<detail::Posted> end, bool refuses);
  // The server stops: accepts no new calls, and closes when the active calls have ended and requests on their way have
  // been refused.
  virtual void go_away() = 0;
  // Another process accepts connections: asks the client to go there. Called until true: no request is on its way.
  virtual bool leave() = 0;
  // While the session goes away: in how many successive calls of this, with this one, it only waited for its client.
  virtual unsigned silent_checks() noexcept = 0;
  // Called in each receive_window. Ends the connection if a message holds memory and fewer than `bytes` of it came.
  virtual void end_if_slow(std::uint64_t bytes) = 0;
  // Ends the connection at once. Calls are requested to stop.
  virtual void abort(const Error& why) = 0;
  // PortHost::options has another send_backlog_bytes_max or ping_interval than before.
  virtual void options_changed() = 0;

  Time opened() const noexcept { return opened_; }
  std::size_t slot() const noexcept { return slot_; }

  // Requests every active call to stop, now or, if they are many, in the next ticks.
  void cancel_calls(const Error& why) { host_.cancelling.add(*this, why, calls_.unanswered_ids()); }
  // Destroys active calls where they are suspended, at most `calls_max`, except calls on which another thread works.
  // Returns the number of calls that it has destroyed: less than `calls_max` if no other is left.
  virtual std::size_t destroy_calls(std::size_t calls_max) { return calls_.destroy(calls_max); }
  std::size_t active_calls() const noexcept { return calls_.active(); }
  // Returns true if that coroutine is the handler of an active call.
  bool handles(const void* frame) const noexcept { return calls_.handles(frame); }

  // ---- For pages ----
  // Completes the report, whose other members are set already.
  virtual void describe(ConnectionReport& report) const = 0;
  ConnectionReport report();
  const ActiveCalls& active() const noexcept { return calls_; }
  // The transports that do not carry the connection, with the reasons.
  void set_declined(std::vector<std::string> declined) noexcept { declined_ = std::move(declined); }
  // "authenticated": a path whose ends have proved themselves; "encrypted": TLS; empty: plain text. A literal.
  void set_protection(std::string_view protection) noexcept { protection_ = protection; }
  std::string_view protection() const noexcept { return protection_; }
  // Counts a secret of the peer that was wrong, and returns their number on this connection.
  unsigned count_wrong_secret() noexcept { return ++wrong_secrets_; }
  // Requests the call of that id to stop. False if it has been answered.
  bool cancel_call(std::uint32_t call, const Error& why) noexcept {
    const StopsTokens stops(host_);
    detail::ActiveCall* const found = calls_.find(wire::CallId::from_number(call));
    if (found != nullptr) found->request_stop(why);
    return found != nullptr;
  }

  // Runs a handler that interceptors surround. It answers `request`, whose sink stands before this session.
  void serve_within(detail::Handler& handler, const std::string& method, const detail::IncomingRequest& request) {
    const bool serving = std::exchange(host_.serving, true);
    name_work(method, request.metadata);
    try {
      handler.serve(request);
    } catch (...) {
      detail::reply_thrown(request, method, "beginning the call");
    }
    host_.serving = serving;
  }
  // Runs the handler of the call that serve() has begun, which all interceptors have skipped: they are notified if it
  // fails or lasts.
  void serve_skipped(detail::Handler& handler, const std::string& method, const detail::IncomingRequest& request) {
    serving_.skipped = &request;
    try {
      handler.serve(request);
    } catch (...) {
      detail::reply_thrown(request, method, "beginning the call");
    }
    serving_.skipped = nullptr;
  }
  // The same for a request that is refused.
  void refuse_skipped(const detail::IncomingRequest& request, const Error& error);
  // The arguments of a call, whose body had a form, have so many bytes.
  void count_arguments(const Dispatcher::Method& method, std::size_t bytes) noexcept {
    host_.methods.of(method.index).request_bytes.add(static_cast<std::int64_t>(bytes));
  }
  // True if a body is short enough for the loop. If true, the body is converted at once: it counts for this tick.
  bool converts_here(const BodyForm& form, std::size_t body_bytes) noexcept;
  ConversionMemory& conversion_memory() noexcept { return host_.conversion_memory; }
  // The memory for which the conversion is charged.
  std::size_t conversion_bytes(const BodyForm& form, std::size_t body_bytes) const noexcept;
  // The error for a request that cannot be kept. Counts it.
  Error unkept_error(const detail::ReceiveAccount& account);

  // ---- detail::ReplySink ----
  Loop& loop() noexcept final { return host_.loop; }
  std::string peer() const final { return peer_; }
  const Identity& identity() const noexcept final { return *identity_; }
  void enter(detail::ActiveCall& call) final {
    calls_.enter(call);
    count_begin(call);
  }
  void leave(detail::ActiveCall& call) noexcept final {
    if (call.method != nullptr) count_end(call);
    calls_.leave(call);
    if (ending_ && calls_.active() == 0) [[unlikely]]
      check_idle();
  }
  std::stop_token stopping() const noexcept final { return host_.stopping.get_token(); }
  Error exception_error(MetadataView metadata, std::string_view method, std::string_view part, std::string text) final;

 protected:
  // `identity` is null if the peer has proved nothing.
  PortSession(PortHost& host, std::string peer, std::shared_ptr<const Identity> identity);
  // The peer has proved who it is by a message. Call it before a call has begun: handlers refer to the identity.
  void set_identity(Identity identity);

  PortHost& host() noexcept { return host_; }
  const PortHost& host() const noexcept { return host_; }
  const std::string& peer_name() const noexcept { return peer_; }
  // Ids of calls are those of wire::CallId; a protocol with other ids maps them (CallStates).
  ActiveCalls& calls() noexcept { return calls_; }
  const ActiveCalls& calls() const noexcept { return calls_; }

  virtual void on_start() = 0;
  // Called when no call is active any more, after begin_ending(). The session calls it too.
  virtual void check_idle() = 0;
  // The session goes away or its connection has ended: check_idle() is called from now on.
  void begin_ending() noexcept { ending_ = true; }
  bool ending() const noexcept { return ending_; }
  // The connection has ended and no call is active: the loop destroys the session soon.
  void notify_idle() noexcept {
    if (end_ != nullptr) host_.loop.post(std::move(end_));
  }

  // Returns true if no further call may begin, for the reason full_error(). `calls_max` bounds the connection.
  // `beyond`: so many calls more than ServerOptions::calls_max may be in flight on the server.
  bool full(std::size_t calls_max, std::size_t beyond = 0) const noexcept {
    return ending_ || calls_.unanswered() >= calls_max || server_full(beyond);
  }
  Error full_error(std::size_t calls_max) const;
  // Likewise for a request that was accepted before and begins late: it runs although the session goes away.
  bool full_for_accepted(std::size_t calls_max, std::size_t beyond = 0) const noexcept {
    return calls_.unanswered() >= calls_max || server_full(beyond);
  }
  Error full_for_accepted_error(std::size_t calls_max) const;
  // Returns true if calls_max calls, and `beyond` more, are in flight on the server. Late requests ask again.
  bool server_full(std::size_t beyond = 0) const noexcept {
    const std::size_t calls = host_.calls_in_flight.load(std::memory_order_relaxed);
    return calls >= beyond && calls - beyond >= host_.options.calls_max;
  }
  Error server_full_error() const;  // The error for that.
  bool late(const detail::IncomingRequest& call) const { return call.deadline && host_.loop.now() >= *call.deadline; }
  static void refuse_late(const detail::IncomingRequest& request);  // Refuses a call whose deadline has passed.
  // Runs the method's handler, which answers `request` now or later.
  void serve(const Dispatcher::Method& method, const detail::IncomingRequest& request) {
    serve_by(method, request, [&] { method.handler->serve(request); });
  }
  // The same for a request whose body may have a form: it becomes the arguments behind the interceptors.
  void serve_form(const Dispatcher::Method& method, detail::IncomingRequest request, const BodyForm& form);
  // The same for what is not a handler, such as a route: calls `begin`. A body that is coded is counted later.
  template <class Begin>
  void serve_by(const Dispatcher::Method& method, const detail::IncomingRequest& request, Begin begin) {
    host_.serving = true;
    name_work(method.name, request.metadata);
    MethodCounters& counters = host_.methods.of(method.index);
    serving_.counters = &counters;
    serving_.method = &method;
    serving_.call = request.call;
    serving_.code = ErrorCode::ok;
    ++served_;
    counters.request_bytes.add(static_cast<std::int64_t>((request.coded ? 0 : request.body.size()) +
                                                         request.payload.size() + request.attachment.size()));
    try {
      late(request) ? refuse_late(request) : begin();
    } catch (...) {
      // Memory for the call's frame is exhausted; the call has not been entered.
      detail::reply_thrown(request, method.name, "beginning the call");
    }
    if (serving_.counters != nullptr) {  // No active call has taken it over.
      serving_.counters = nullptr;
      host_.methods.end_short(host_.loop, counters, serving_.code);
    }
    host_.serving = false;
  }
  // The code that the caller receives. A handler that its token has ended reports `cancelled`, whatever has stopped the
  // token; after the caller's deadline that was the deadline, even if the caller's own timer is later. Called before
  // ActiveCalls::answered().
  ErrorCode code_for_caller(std::uint32_t call, ErrorCode code) const noexcept {
    if (code != ErrorCode::cancelled) return code;
    const detail::ActiveCall* const active = calls_.find(wire::CallId::from_number(call));
    const bool late =
        active != nullptr && active->request().deadline && host_.loop.now() >= *active->request().deadline;
    return late ? ErrorCode::deadline_exceeded : code;
  }
  // Count the answer of a call, before ActiveCalls::answered(): its error, or the bytes of its result. The caller
  // receives `code`, and interceptors `error`.
  void count_error(std::uint32_t call, ErrorCode code, const Error& error) noexcept {
    if (serving_.counters != nullptr && serving_.call == call) {
      serving_.code = MethodCounters::known(code);
      if (serving_.skipped != nullptr) notify_in_place(error);
    } else if (detail::ActiveCall* const active = calls_.find(wire::CallId::from_number(call))) {
      active->outcome = MethodCounters::known(code);
      notify_active(*active, 0, &error);
    }
  }
  [[gnu::always_inline]] void count_reply(std::uint32_t call, std::size_t bytes) noexcept {
    MethodCounters* counters = serving_.counters;
    if (counters == nullptr || serving_.call != call) {
      detail::ActiveCall* const active = calls_.find(wire::CallId::from_number(call));
      if (active == nullptr || active->method == nullptr) return;
      if (!host_.interceptors.empty() && active->begun != host_.loop.now()) notify_active(*active, bytes, nullptr);
      counters = &host_.methods.of(active->method->index);
    }
    counters->reply_bytes.add(static_cast<std::int64_t>(bytes));
  }
  // The answer of a route counts as `code`. Before ActiveCalls::answered().
  void count_route(std::uint32_t call, ErrorCode code, std::size_t bytes) noexcept {
    if (detail::ActiveCall* const active = calls_.find(wire::CallId::from_number(call))) active->outcome = code;
    count_reply(call, bytes);
  }
  // Log the beginning and the end of the connection. `carrier` is the transport or the protocol. log_closed() must be
  // called at each end.
  void log_opened(std::string_view carrier) noexcept;
  void log_closed(const Error& reason) noexcept;
  // Counts that a slow peer's connection is closed, and returns the reason, for log_closed().
  Error slow_error(pipe::PeerPace::Behind behind, std::uint64_t bytes, const detail::ReceiveAccount& account);

 private:
  // The call that serve() began, until it is known to be active or has ended.
  struct Serving {
    MethodCounters* counters = nullptr;
    const Dispatcher::Method* method = nullptr;
    std::uint32_t call = 0;
    ErrorCode code = ErrorCode::ok;
    const detail::IncomingRequest* skipped = nullptr;  // Non-null while serve_skipped() or refuse_skipped() runs.
  };
  // Names the call that begins for the report about a blocked loop.
  void name_work(const std::string& method, MetadataView metadata) noexcept {
    detail::LoopAccess::set_work(host_.loop, method);
    if (!metadata.empty()) [[unlikely]]
      name_traced_work(method, metadata);
  }
  void name_traced_work(const std::string& method, MetadataView metadata) noexcept;
  // The call may have been begun by serve(); otherwise it is of no method.
  void count_begin(detail::ActiveCall& call) noexcept;
  void count_end(detail::ActiveCall& call) noexcept;
  // Notify the interceptors of a call that they have skipped: of the error of the call that serve() runs; of the answer
  // of an active call, once.
  void notify_in_place(const Error& error) noexcept;
  void notify_active(detail::ActiveCall& call, std::size_t reply_bytes, const Error* error) noexcept;
  void notify_dropped(detail::ActiveCall& call) noexcept;

  PortHost& host_;
  const std::string peer_;
  std::shared_ptr<const Identity> identity_;  // Not null.
  unsigned wrong_secrets_ = 0;
  const std::size_t slot_;
  Serving serving_;
  std::uint64_t served_ = 0;
  std::vector<std::string> declined_;
  std::string_view protection_;
  Time opened_;
  // The values of the previous report(), for rates.
  struct Reported {
    Time at;
    std::uint64_t received_bytes = 0;
    std::uint64_t sent_bytes = 0;
    std::uint64_t calls = 0;
  };
  Reported reported_;
  ActiveCalls calls_;
  bool ending_ = false;
  std::unique_ptr<detail::Posted> end_;  // Non-null until the loop has been notified.
};

}  // namespace hawser::rpc
