#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <coroutine>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine.h"
#include "hawser/detail/handler.h"
#include "hawser/health.h"
#include "hawser/identity.h"
#include "hawser/schema.h"
#include "hawser/server.h"
#include "hub.h"
#include "plan.h"
#include "streams.h"

namespace hawser::python {

namespace nb = nanobind;

// A method that a coroutine of Python serves. Lives as long as its server and its calls.
struct ServedFunction {
  std::shared_ptr<const Plan> plan;
  std::shared_ptr<Hub> hub;
  Reference serve;     // Called as serve(IncomingCall, arguments), with the GIL.
  bool wants_context;  // The peer, its identity and the metadata are read.

  const schema::Description& method() const noexcept { return plan->description(); }
  bool has_streams() const noexcept { return method().incoming || method().outgoing; }
};

// A call that waits for the answer of Python. Shared by the loop of the server and by Python.
class IncomingCall final : public Event, public std::enable_shared_from_this<IncomingCall> {
 public:
  IncomingCall(std::shared_ptr<const ServedFunction> function, const detail::ActiveCall& call);

  // ---- Python ----
  bool deliver() override;
  void reply(nb::handle value, nb::handle attachment, nb::handle metadata);
  void fail(int code, std::int32_t application_code, std::string text);
  void threw(std::string text);
  // `task` is cancelled when the caller does not wait any more.
  void set_task(nb::handle task);
  nb::object attachment() const;
  nb::object metadata() const;
  // The fields of a hawser.Identity, in their order.
  nb::object identity() const;
  const std::string& peer() const noexcept { return peer_; }
  std::optional<double> remaining_s() const;
  const std::shared_ptr<CallStreams>& streams() const noexcept { return streams_; }

  // ---- Loop's thread ----
  // Suspends the coroutine that answers the call until there is an answer.
  struct Answered {
    IncomingCall& call;
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> waiting);
    void await_resume() const noexcept {}
    // Also if the coroutine is destroyed here: the answer is dropped then.
    ~Answered() { call.leave(); }
  };
  // The caller does not wait any more.
  void on_stop();
  // Answers in place of Python, which ends.
  void abort();

  Encoded result;
  Buffer attached;
  Metadata answer_metadata;
  std::optional<Error> error;
  bool thrown = false;  // The error has the text of an exception.

 private:
  friend class StopEvent;
  // True for the one who answers: the call has no answer yet, and somebody waits for it.
  bool claim() noexcept;
  void answer();
  void leave() noexcept;

  std::shared_ptr<const ServedFunction> function_;
  Buffer body_;
  Buffer payload_;
  Buffer attachment_;
  Metadata metadata_;
  std::string peer_;
  Identity identity_;
  const std::shared_ptr<CallStreams> streams_;  // Null: the method has none.
  std::optional<std::chrono::steady_clock::time_point> deadline_;
  Reference task_;
  bool stopped_ = false;  // With the GIL.

  std::mutex mutex_;
  Loop* loop_;                       // With mutex_. Null once the coroutine is gone.
  bool answered_ = false;            // With mutex_.
  std::coroutine_handle<> waiting_;  // Loop's thread.
};

// A server for Python. Its handlers run where its hubs are drained.
class ServerCore final : public EngineUser {
 public:
  // `grpc`: clients of gRPC are served too.
  static std::shared_ptr<ServerCore> make(ServerOptions options, bool grpc);
  explicit ServerCore(ServerOptions options);
  ~ServerCore() override;

  void add(std::shared_ptr<ServedFunction> function);
  // After stop(): drops the handlers, which may refer to the server. With the GIL.
  void release();
  void start();
  // Without the GIL.
  void stop(double grace_s);
  std::string address() const;
  const Server& server() const noexcept { return *server_; }
  void abort() noexcept override;

  // Any thread.
  schema::Names list(std::string_view after) const;
  Result<schema::Description> describe(std::string_view name) const;
  Result<bool> is_serving(std::string_view service) const;
  void enter(IncomingCall& call);
  void leave(IncomingCall& call) noexcept;

 private:
  const std::uint64_t generation_;
  std::unordered_map<std::string, std::shared_ptr<ServedFunction>> functions_;
  std::vector<std::string> names_;  // Sorted when the server starts.
  std::mutex mutex_;
  std::unordered_map<IncomingCall*, std::weak_ptr<IncomingCall>> calls_;  // With mutex_.
  bool ending_ = false;                                                   // With mutex_.
  std::unique_ptr<Server> server_;
};

void bind_server(nb::module_& module);

}  // namespace hawser::python
