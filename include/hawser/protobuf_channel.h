#pragma once

#include <google/protobuf/service.h>

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "hawser/background_loops.h"
#include "hawser/client.h"
#include "hawser/protobuf_controller.h"

// Clients of google::protobuf::Service, as programs of bRPC have them. Component hawser::channel, which links
// hawser::protobuf and hawser::brpc. docs/from-brpc.md maps classes and options.
namespace hawser::pb {

// The names and defaults are those of bRPC. Channel states when a call is sent again.
struct ChannelOptions {
  std::string protocol = "baidu_std";      // Or "hawser", the library's own protocol over any of its transports.
  std::string connection_type = "single";  // One connection; "pooled": one for each call in flight, kept; "short": new.
  std::int32_t connect_timeout_ms = 200;
  std::int64_t timeout_ms = 500;           // Negative: no deadline.
  int max_retry = 3;                       // Further attempts after those of a call that were not executed.
  std::int64_t backup_request_ms = -1;     // A second request is sent if no response has come by then. Negative: none.
  std::size_t connections_idle_max = 100;  // Connections that "pooled" keeps. Further ones are closed after their call.
  std::string connection_group = {};       // Channels of different groups share no connections.
  // Options of the connections, with transports and TLS. connect_timeout is not used.
  ClientOptions client = {};
  std::string credential = {};  // authentication_data of baidu_std.
  // Loops that make the calls. Null: one that all channels of the process share, while there are any.
  std::shared_ptr<BackgroundLoops> loops = {};
};

// Calls one server. Any thread, also several at once: for programs whose threads run no loop. Loops in the background
// make the calls. It may be destroyed while calls are in flight, also by a `done`: they go on.
//
// The request is encoded before CallMethod() returns. Controller and response must stay valid until the call has ended.
// Without `done`, CallMethod() waits; on a thread that runs a loop, such as one that runs a `done`, it fails with
// EREQUEST instead. `done` runs once, on the thread of a background loop, and must not block; if the call cannot begin,
// it runs within CallMethod().
//
// A call is sent again only if it was certainly not executed (ErrorCode::not_sent and unavailable), at most max_retry
// times and within its timeout. A backup request may execute a call twice.
//
// Channels with equal addresses and options share their connections, and with them the bounds of `client`, such as
// calls_in_flight_max. The last channel or call that ends closes them. timeout_ms, max_retry and backup_request_ms may
// differ. Options are compared by content: those of transports, and those of a TlsClient with the contents of its files
// as they are at Init(). Interceptors, `runtime` and `loops` must be the same objects. The connections use the
// TlsClient of the first channel.
//
// In a child process made by fork(), the channels of the parent fail. Make another one there.
class Channel final : public google::protobuf::RpcChannel {
 public:
  Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  ~Channel() override;

  // Sets the server: "host:port", "unix:/path" or "unix:@name". Connects with the first call. Returns 0, or -1 for
  // options that are not valid; error_text() has the reason. Called once, before the first call.
  int Init(const std::string& address, const ChannelOptions* options);
  // `balancer` must be empty: there is one server.
  int Init(const std::string& address, const std::string& balancer, const ChannelOptions* options);
  int Init(const char* host, int port, const ChannelOptions* options);
  const std::string& error_text() const noexcept { return error_text_; }

  // `controller` must be a hawser::pb::Controller.
  void CallMethod(const google::protobuf::MethodDescriptor* method, google::protobuf::RpcController* controller,
                  const google::protobuf::Message* request, google::protobuf::Message* response,
                  google::protobuf::Closure* done) override;

 private:
  struct State;
  std::shared_ptr<State> state_;
  std::string error_text_;
};

// The end of one call, for a coroutine:
//   hawser::pb::CallEnd end;
//   stub.Echo(&controller, &request, &response, end.done());
//   co_await end;
// The coroutine continues on its own loop; if it runs on none, on the thread that ends the call. It may be destroyed
// while it waits, together with the controller and the messages, which cancels the call.
class CallEnd {
 public:
  CallEnd();
  CallEnd(const CallEnd&) = delete;
  CallEnd& operator=(const CallEnd&) = delete;
  ~CallEnd();

  // The `done` of the call. Called once.
  google::protobuf::Closure* done();

  auto operator co_await() noexcept {
    class Wait {
     public:
      explicit Wait(CallEnd& end) noexcept : end_(end) {}
      Wait(const Wait&) = delete;
      Wait& operator=(const Wait&) = delete;
      ~Wait() { end_.leave(); }
      bool await_ready() const noexcept { return false; }
      bool await_suspend(std::coroutine_handle<> waiting) { return end_.suspend(waiting); }
      void await_resume() const noexcept {}

     private:
      CallEnd& end_;
    };
    return Wait(*this);
  }

 private:
  struct State;
  bool suspend(std::coroutine_handle<> waiting);  // False: the call has ended.
  void leave() noexcept;
  std::shared_ptr<State> state_;
};

}  // namespace hawser::pb
