#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "hawser/call.h"
#include "hawser/codec/decoder.h"
#include "hawser/detail/named_first.h"
#include "hawser/error.h"
#include "hawser/grpc.h"
#include "hawser/loop.h"
#include "hawser/streaming_call.h"
#include "hawser/task.h"
#include "hawser/time.h"

namespace hawser {

namespace transport {
class Network;
}

struct GrpcClientOptions {
  Duration connect_timeout = std::chrono::seconds(5);
  Duration call_timeout = std::chrono::seconds(30);  // Default of CallOptions::timeout; `forever`: none.
  // Bounds. A call that exceeds one fails with an error that names the bound.
  std::size_t calls_in_flight_max = 4096;                      // Calls above the server's own limit wait in a queue.
  std::size_t message_bytes_max = std::size_t{4} << 20;        // One received message, after decompression.
  std::size_t metadata_bytes_max = std::size_t{16} << 10;      // One received header list, as HTTP/2 counts it.
  std::size_t send_backlog_bytes_max = std::size_t{64} << 20;  // Requests that are not sent yet.
  std::uint32_t stream_window_bytes = 512 * 1024;  // Bytes of a stream, and of the connection, that the server may send
  std::uint32_t connection_window_bytes = 4 * 1024 * 1024;  // before they have been taken.
  // Messages of at least compression_bytes_min bytes are compressed. Compressed replies are accepted in any case.
  GrpcCompression compression = GrpcCompression::none;
  std::size_t compression_bytes_min = 1024;
  codec::DecodeLimits decode_limits = {};
  // A PING is sent when calls are in flight and nothing has arrived for this time; after the same time again the
  // connection ends. Servers of gRPC refuse PINGs that come more often than every five minutes, unless they are set up
  // for it. `forever`: none.
  Duration ping_interval = forever;
  std::string authority = {};  // The field :authority. Empty: the address.
};

// A connection to a server of gRPC, without TLS. Calls are made like those of Client, with methods of services that are
// defined in .proto files; generated stubs take it as well. Used on the thread of its loop, which outlives it. Calls
// that are in flight when it is destroyed end with an error.
//
// Statuses that a server's handler chooses are ErrorCode::application with the status as application_code, except
// CANCELLED, DEADLINE_EXCEEDED and UNIMPLEMENTED. Initial and trailing metadata of a reply are one list.
class GrpcClient {
 public:
  explicit GrpcClient(Loop& loop, GrpcClientOptions options = {});
  // For tests: connects over `network`.
  GrpcClient(Loop& loop, std::shared_ptr<transport::Network> network, GrpcClientOptions options);
  GrpcClient(const GrpcClient&) = delete;
  GrpcClient& operator=(const GrpcClient&) = delete;
  ~GrpcClient();

  // Connects to "host:port", "unix:/path" or "unix:@name". Succeeds at once if the client is connected. After a
  // connection was lost, it makes a new one. One attempt at a time.
  Task<Result<void>> connect(std::string address);
  bool connected() const noexcept { return link_->channel != nullptr; }
  // Ends the connection. Calls in flight end with outcome_unknown.
  void close();
  std::size_t calls_in_flight() const noexcept;
  // True after the server has announced that it takes no new calls. Calls in flight continue.
  bool going_away() const noexcept;

  // Like the functions of Client.
  template <auto F, class... Given>
    requires(!std::is_same_v<std::remove_cvref_t<std::tuple_element_t<0, std::tuple<Given..., void>>>, CallOptions>)
  auto call(Given&&... arguments) {
    return Call<F, detail::NoOptions, Given...>(*link_, {}, stored<F, Given...>(std::forward<Given>(arguments)...));
  }
  template <auto F, class Options = CallOptions, class... Given>
    requires std::is_same_v<std::remove_cvref_t<Options>, CallOptions>
  auto call(Options&& options, Given&&... arguments) {
    detail::require_names<detail::MethodFacts<F>, Options>();
    return Call<F, CallOptions, Given...>(*link_, std::forward<Options>(options),
                                          stored<F, Given...>(std::forward<Given>(arguments)...));
  }
  template <auto F, class... Given>
    requires(!std::is_same_v<std::remove_cvref_t<std::tuple_element_t<0, std::tuple<Given..., void>>>, CallOptions>)
  Task<Result<StreamingCall<F>>> open(Given&&... arguments) {
    return begin<F, detail::NoOptions, Given...>({}, std::forward<Given>(arguments)...);
  }
  template <auto F, class Options = CallOptions, class... Given>
    requires std::is_same_v<std::remove_cvref_t<Options>, CallOptions>
  Task<Result<StreamingCall<F>>> open(Options&& options, Given&&... arguments) {
    detail::require_names<detail::MethodFacts<F>, Options>();
    return begin<F, CallOptions, Given...>(std::forward<Options>(options), std::forward<Given>(arguments)...);
  }

 private:
  struct State;
  static Task<Result<void>> connect_to(std::shared_ptr<State> state, std::string address);

  template <auto F, class... Given>
  static auto stored(Given&&... arguments) {
    detail::require_names<detail::MethodFacts<F>, Given...>();
    return typename detail::ArgumentsOf<typename detail::MethodFacts<F>::args, Given...>::stored(
        std::forward<Given>(arguments)...);
  }
  template <auto F, class Options, class... Given>
  Task<Result<StreamingCall<F>>> begin(Options options, Given&&... arguments) {
    using Operation = typename StreamingCall<F>::Operation;
    return send<F>(
        std::unique_ptr<Operation>(new detail::ArgumentOperation<F, detail::ValueOutcome<F>, Options, Given...>(
            *link_, std::move(options), stored<F, Given...>(std::forward<Given>(arguments)...))));
  }
  template <auto F>
  static Task<Result<StreamingCall<F>>> send(std::unique_ptr<typename StreamingCall<F>::Operation> operation) {
    operation->measure();
    operation->start();
    struct UntilSent {
      typename StreamingCall<F>::Operation& waiting_for;
      bool await_ready() const noexcept { return false; }
      bool await_suspend(std::coroutine_handle<> waiting) const { return waiting_for.wait_sent(waiting); }
      void await_resume() const noexcept { waiting_for.resumed(); }
    };
    UntilSent sent{*operation};
    co_await sent;
    if (operation->done() && operation->error()) {
      Error error = std::move(*operation->error());
      operation.reset();
      co_return std::unexpected(std::move(error));
    }
    co_return StreamingCall<F>(std::move(operation));
  }

  std::shared_ptr<State> state_;
  detail::ClientLink* link_;
};

}  // namespace hawser
