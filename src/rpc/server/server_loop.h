#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/alive.h"
#include "exec/condition.h"
#include "hawser/connection_age.h"
#include "hawser/detail/loop_access.h"
#include "hawser/identity.h"
#include "negotiate/attached_transports.h"
#include "rpc/port/health_state.h"
#include "rpc/port/port_protocol.h"
#include "rpc/server/background_tasks.h"
#include "rpc/server/handshake_queue.h"
#include "rpc/server/live_options.h"
#include "rpc/server/server_session.h"
#include "rpc/server/stop_schedule.h"
#include "rpc/session/region_table.h"
#include "transport/network.h"

namespace hawser::rpc {

// State that all loops of a server share.
struct ServerShared {
  ServerOptions options;  // As the program gave them. Each loop has its own copy, which LiveOptions changes.
  std::shared_ptr<transport::Network> network;
  std::list<MethodTable> methods = {};       // One for each loop. Lives on after the loops.
  negotiate::TransportList transports = {};  // The transports that the options choose; set when the server starts.
  Dispatcher dispatcher;
  std::shared_ptr<detail::RegionTable> regions = std::make_shared<detail::RegionTable>();
  ServerInterceptors interceptors = {};
  ProtocolList protocols = {};  // Protocols beside the library's own.
  // 0 for the library's own protocol, then in the order of `protocols`.
  std::size_t protocol_number(std::string_view name) const noexcept {
    std::size_t number = 0;
    while (number < protocols.size() && protocols[number]->name() != name) ++number;
    return number == protocols.size() ? 0 : number + 1;
  }
  std::string alpn = {};                        // The names of all protocols, as ALPN lists them.
  std::atomic<std::size_t> connections{0};      // Connections after their handshake.
  std::atomic<std::size_t> calls_in_flight{0};  // Calls that are not answered in place.
  std::shared_ptr<HealthState> health = std::make_shared<HealthState>();
  LiveOptions live{options};
  ConnectionAge age = {};  // Set before the start.
};

// Checks that the limits of received memory agree with each other. The error names the option to change.
Result<void> check_memory(const ServerOptions& options);
// Returns a budget with room for at least one message of message_bytes_max and the blocks into which it is received.
detail::ReceiveBudget make_budget(const ServerOptions& options);

// Returns the names of `protocols` and of the library's own, as ALPN lists them on the wire, in order of preference.
std::string alpn_names(const ProtocolList& protocols);

// The part of a server that lives on one loop: its handshakes and sessions. Loop's thread only.
class ServerLoop final : HandshakeQueue::Sessions, BackgroundTasks::Owner {
 public:
  // `shared.options` must have passed check_memory().
  ServerLoop(Loop& loop, ServerShared& shared)
      : loop_(loop),
        shared_(shared),
        options_(shared.options),
        host_{.loop = loop,
              .dispatcher = shared.dispatcher,
              .options = options_,
              .budget = make_budget(options_),
              .interceptors = shared.interceptors,
              .calls_in_flight = shared.calls_in_flight,
              .methods = shared.methods.emplace_back(shared.dispatcher.all().size()),
              .health = *shared.health},
        handshakes_(host_, shared, *this),
        sweep_(*this),
        leave_timer_(*this),
        age_timer_(*this),
        changed_(loop),
        stop_timer_(*this),
        background_(loop, host_.stopping, *this) {
    take_options();
    for (const auto& protocol : shared.protocols) {
      if (host_.http == nullptr) host_.http = protocol->http_streams();
    }
  }
  ~ServerLoop();

  // Posts background work to the loop. Any thread, while the server exists.
  void spawn(std::unique_ptr<detail::BackgroundWork> work);

  Loop& loop() noexcept { return loop_; }
  // Returns true if a handler calls this: a handler that has not returned or suspended, or a coroutine that the loop
  // has resumed; or a callback of a token that the server stops. Not detected: a handler that is resumed by the end of
  // another coroutine that it awaits.
  bool serving() const noexcept {
    return host_.serving || host_.stopping_tokens != 0 || handles(detail::LoopAccess::resumed_frame(loop_));
  }
  // Returns true if that coroutine is the handler of an active call.
  bool handles(const void* frame) const noexcept;
  const LoopCounters& counters() const noexcept { return host_.counters; }
  std::size_t receive_bytes() const noexcept { return host_.budget.used(); }
  std::size_t receive_bytes_max() const noexcept { return host_.budget.bytes_max(); }
  const SessionTable& sessions() const noexcept { return host_.sessions; }

  // Calls `work(*this)` on the loop's thread, unless this object ends before. Any thread, while the server exists.
  template <class Work>
  void inspect(Work work) {
    loop_.post([watch = alive_.watch(), inspecting = std::move(work)]() mutable {
      if (ServerLoop* const self = watch.get()) inspecting(*self);
    });
  }

  // The loop takes the values of ServerShared::live soon. Any thread, while the server exists. May throw
  // std::bad_alloc; then it does not.
  void request_options();
  // The number of the last change that this loop has taken. Any thread.
  std::uint64_t options_taken() const noexcept { return options_taken_.load(std::memory_order_acquire); }

  // Adds a fresh connection to this loop. A connection that cannot be served is closed; the server continues.
  void adopt(std::unique_ptr<transport::Stream> stream);

  // Another process accepts the connections from now on. The sessions, and the handshakes when they become sessions,
  // serve what their clients send until these have been asked to connect again. `left` is released when all of them
  // know, after `limit`, or when the server stops.
  void leave(Duration limit, std::shared_ptr<void> left);

  class Stopped {
   public:
    virtual void on_stopped() noexcept = 0;

   protected:
    ~Stopped() = default;
  };
  // Accepts no new calls. Calls in flight and background work may finish within `grace`; then they are cancelled, and
  // ended soon after. Notifies `listener` when no session is left, possibly from within this call. Further calls only
  // shorten the grace. Continues when memory is exhausted: a session that cannot be notified is ended.
  void begin_shut_down(Duration grace, Stopped* listener);
  // The same as an awaitable task.
  Task<void> shut_down(Duration grace);

  // Creates the workers of the transports beside the stream. A failure is logged.
  void prepare() { handshakes_.prepare(); }
  // Does the same where an exception could not be handled. If memory is exhausted, later connections try again.
  void prepare_if_possible() noexcept;

 private:
  using SessionList = std::list<std::unique_ptr<PortSession>>;

  // HandshakeQueue::Sessions
  std::optional<Error> refusal() const override;
  std::unique_ptr<detail::Posted> add(std::unique_ptr<PortSession> session) override;
  void start(PortSession& session, std::unique_ptr<detail::Posted> end) override;
  void on_no_handshakes() noexcept override;

  void remove(SessionList::iterator session);
  bool leave(PortSession& session) noexcept;
  void check_leaving();
  void on_background_end() override;
  void continue_shut_down(bool due);
  bool idle() const noexcept { return sessions_.empty() && background_.idle() && handshakes_.empty(); }
  void finish_shut_down() noexcept;
  void cancel_all() noexcept;
  void end_all() noexcept;
  bool destroy_calls() noexcept;
  void start_sweep();
  void sweep();
  void start_age_check();
  void check_ages();
  void end_if_old(PortSession& session) noexcept;
  void take_options();

  Loop& loop_;
  ServerShared& shared_;
  ServerOptions options_;                    // The values that this loop uses.
  std::atomic<bool> options_wanted_{false};  // take_options() is posted.
  std::atomic<std::uint64_t> options_taken_{0};
  PortHost host_;
  HandshakeQueue handshakes_;
  SessionList sessions_;
  // Checks for peers that are slow with a message, while there are sessions.
  MemberTimer<&ServerLoop::sweep> sweep_;
  Time sweep_due_{};
  // Non-null while the clients are asked to connect again.
  std::shared_ptr<void> left_;
  Time leave_end_{};
  MemberTimer<&ServerLoop::check_leaving> leave_timer_;
  // Checks for connections that are too old, while there are sessions.
  MemberTimer<&ServerLoop::check_ages> age_timer_;
  exec::Condition changed_;  // Notified when the last session has ended while stopping.
  StopSchedule stop_;
  Stopped* stop_listener_ = nullptr;
  const Error stopped_ = Error::of_call(ErrorCode::cancelled, "the server has stopped");
  const Error too_old_ =
      Error::of_call(ErrorCode::unavailable, "the connection is older than ConnectionAge::max, and the grace is over");
  MemberTimer<&ServerLoop::continue_shut_down, true> stop_timer_;
  const Alive<ServerLoop> alive_{*this};
  BackgroundTasks background_;  // Declared last, because its tasks use the other members.
};

}  // namespace hawser::rpc
