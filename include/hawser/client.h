#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "hawser/call.h"
#include "hawser/codec/decoder.h"
#include "hawser/detail/named_first.h"
#include "hawser/error.h"
#include "hawser/loop.h"
#include "hawser/streaming_call.h"
#include "hawser/task.h"
#include "hawser/transports.h"

namespace hawser {

namespace transport {
class Transport;
class Network;
}  // namespace transport

struct ClientOptions {
  Duration connect_timeout = std::chrono::seconds(5);  // For resolving the name, connecting and the hello together.
  Duration call_timeout = std::chrono::seconds(30);    // Of calls that do not say otherwise; `forever` for none.
  // Bounds. What passes one is an error of the call that names it.
  std::size_t calls_in_flight_max = 4096;                      // On this connection; the server may announce fewer.
  std::size_t message_bytes_max = std::size_t{64} << 20;       // One request or reply with its attachment.
  std::size_t send_backlog_bytes_max = std::size_t{64} << 20;  // Requests waiting to leave.
  std::uint32_t stream_window_bytes = 256 * 1024;              // Granted to the handler for each stream. At least 1.
  // Of the values in a received reply or stream item: how deeply they nest, what memory they take, how hash containers
  // are filled.
  codec::DecodeLimits decode_limits = {};
  // A connection without a sign of life for so long is asked (ping), and ended when it stays silent as long again.
  Duration ping_interval = std::chrono::seconds(15);
  bool checksum = false;  // Ask for CRC32C on every frame.
  // Offered to the server beside the stream; it chooses.
  TransportOptions transports = {};
  // Owns what this client shares with others. Null: that of its loop (LoopOptions::runtime).
  std::shared_ptr<Runtime> runtime = {};
};

// One connection to a server, shared by any number of calls at once. Belongs to one loop: that given, or that which
// runs when it connects; used from its thread only. Calls in flight when it is destroyed end with an error.
class Client {
 public:
  explicit Client(ClientOptions options = {});
  Client(Loop& loop, ClientOptions options = {});
  // For tests: over another network.
  Client(Loop& loop, std::shared_ptr<transport::Network> network, ClientOptions options);
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  ~Client();

  // Connects to "host:port", "unix:/path" or "unix:@name". Callers at the same time share one attempt and its outcome;
  // a client that is connected to that address already succeeds at once. After the connection was lost, connects anew.
  // When only the transport that carried the messages broke, the client moves to another by itself: awaited calls that
  // had not left are sent there, and idempotent ones are sent again; it goes back when the transport works again
  // (TransportOptions::retry_min).
  Task<Result<void>> connect(std::string address);
  bool connected() const noexcept { return link().channel != nullptr; }
  // Ends the connection. Calls in flight end with outcome_unknown, or not_sent for those that had not left. One that is
  // being made, or moves to another transport, is given up: connect() ends with `unavailable`, and may be called again
  // at once.
  void close();

  // Calls handler F of the server: `Result<R> reply = co_await client.call<f>(args...)`. See Call for reply() and
  // into(). With GCC 12, arguments and options that are aggregates with a destructor must be variables: see
  // hawser/detail/named_first.h.
  template <auto F, class... Given>
    requires(!std::is_same_v<std::remove_cvref_t<std::tuple_element_t<0, std::tuple<Given..., void>>>, CallOptions>)
  auto call(Given&&... arguments) {
    static_assert(!detail::MethodFacts<F>::streams, "hawser: this handler has streams: use client.open<f>(...)");
    return Call<F, detail::NoOptions, Given...>(link(), {}, stored<F, Given...>(std::forward<Given>(arguments)...));
  }
  template <auto F, class Options = CallOptions, class... Given>
    requires std::is_same_v<std::remove_cvref_t<Options>, CallOptions>
  auto call(Options&& options, Given&&... arguments) {
    detail::require_names<detail::MethodFacts<F>, Options>();
    static_assert(!detail::MethodFacts<F>::streams, "hawser: this handler has streams: use client.open<f>(...)");
    return Call<F, CallOptions, Given...>(link(), std::forward<Options>(options),
                                          stored<F, Given...>(std::forward<Given>(arguments)...));
  }

  // Sends the request and gives a PendingCall, to be awaited later for the reply. Arguments given as lvalues are read
  // when this is awaited, and must stay valid and unchanged from then until the request has been sent, that is, until
  // this has completed.
  template <auto F, class... Given>
    requires(!std::is_same_v<std::remove_cvref_t<std::tuple_element_t<0, std::tuple<Given..., void>>>, CallOptions>)
  Task<Result<PendingCall<F>>> send_request(Given&&... arguments) {
    return send<PendingCall<F>>(make<F, detail::NoOptions, Given...>({}, std::forward<Given>(arguments)...));
  }
  template <auto F, class Options = CallOptions, class... Given>
    requires std::is_same_v<std::remove_cvref_t<Options>, CallOptions>
  Task<Result<PendingCall<F>>> send_request(Options&& options, Given&&... arguments) {
    detail::require_names<detail::MethodFacts<F>, Options>();
    return send<PendingCall<F>>(
        make<F, CallOptions, Given...>(std::forward<Options>(options), std::forward<Given>(arguments)...));
  }

  // Begins a call with streams.
  template <auto F, class... Given>
    requires(!std::is_same_v<std::remove_cvref_t<std::tuple_element_t<0, std::tuple<Given..., void>>>, CallOptions>)
  Task<Result<StreamingCall<F>>> open(Given&&... arguments) {
    static_assert(detail::MethodFacts<F>::streams, "hawser: this handler has no streams: use client.call<f>(...)");
    return send<StreamingCall<F>>(make<F, detail::NoOptions, Given...>({}, std::forward<Given>(arguments)...));
  }
  template <auto F, class Options = CallOptions, class... Given>
    requires std::is_same_v<std::remove_cvref_t<Options>, CallOptions>
  Task<Result<StreamingCall<F>>> open(Options&& options, Given&&... arguments) {
    detail::require_names<detail::MethodFacts<F>, Options>();
    static_assert(detail::MethodFacts<F>::streams, "hawser: this handler has no streams: use client.call<f>(...)");
    return send<StreamingCall<F>>(
        make<F, CallOptions, Given...>(std::forward<Options>(options), std::forward<Given>(arguments)...));
  }

  // Asks the server for a sign of life; gives the round trip's time.
  Task<Result<Duration>> ping();

  std::size_t calls_in_flight() const noexcept;
  // When a call last began or ended.
  Time last_used() const noexcept;
  // The server has said that it is stopping: calls go on, new ones are refused.
  bool going_away() const noexcept;
  // Of the connection: "tcp" and so on; empty if there is none.
  std::string_view transport() const noexcept;
  // The transports that this client has enabled and that do not carry the connection, as of the last attempt.
  const std::vector<TransportFallback>& fallback_reasons() const noexcept;

  // How often the connection has changed its transport since this client was made.
  std::uint64_t failovers() const noexcept;

  // Offers a transport to the server, such as hawser::rdma({...}), from the next connect() on. Replaces the one of the
  // same name. Short for TransportOptions::enable().
  void enable(TransportSpec transport);
  void enable_rdma(RdmaOptions options = {}) { enable(rdma(std::move(options))); }
  void enable_ucx(UcxOptions options = {}) { enable(ucx(std::move(options))); }
  void enable_shm(ShmOptions options = {}) { enable(shm(options)); }
  const std::string& address() const noexcept;

  // For the library: the transports beside the stream that the options enable.
  std::vector<std::shared_ptr<transport::Transport>> transports() const;

 private:
  friend class RemoteMemory;
  struct State;

  template <auto F, class... Given>
  static auto stored(Given&&... arguments) {
    detail::require_names<detail::MethodFacts<F>, Given...>();
    return typename detail::ArgumentsOf<typename detail::MethodFacts<F>::args, Given...>::stored(
        std::forward<Given>(arguments)...);
  }
  template <auto F, class Options, class... Given>
  auto make(Options options, Given&&... arguments) {
    return std::unique_ptr<typename PendingCall<F>::Operation>(
        new detail::ArgumentOperation<F, detail::ValueOutcome<F>, Options, Given...>(
            link(), std::move(options), stored<F, Given...>(std::forward<Given>(arguments)...)));
  }
  template <class Sent>
  static Task<Result<Sent>> send(std::unique_ptr<typename Sent::Operation> operation) {
    // Now, not when the task was made: arguments given as lvalues may have changed meanwhile.
    operation->measure();
    operation->start();
    struct UntilSent {
      typename Sent::Operation& waiting_for;
      bool await_ready() const noexcept { return false; }
      bool await_suspend(std::coroutine_handle<> waiting) const { return waiting_for.wait_sent(waiting); }
      void await_resume() const noexcept { waiting_for.resumed(); }
    };
    UntilSent sent{*operation};
    co_await sent;
    // A request that could not be sent; an early reply is left to whoever awaits it.
    if (operation->done() && operation->error()) {
      Error error = std::move(*operation->error());
      operation.reset();  // The arguments are not used any more, although the task that sends may still exist.
      co_return std::unexpected(std::move(error));
    }
    co_return Sent(std::move(operation));
  }

  Client(Loop* loop, std::shared_ptr<transport::Network> network, ClientOptions options);
  detail::ClientLink& link() const noexcept { return *link_; }

  std::unique_ptr<State> state_;
  detail::ClientLink* link_;
};

}  // namespace hawser
