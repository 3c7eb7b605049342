#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <coroutine>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine.h"
#include "hawser/client.h"
#include "hawser/cluster_client.h"
#include "hawser/detail/received.h"
#include "hawser/detail/reply_sink.h"
#include "hub.h"
#include "plan.h"

namespace hawser::python {

namespace nb = nanobind;

class ClientCore;

// Work of a client whose outcome completes a future of Python.
class Work : public Event, public std::enable_shared_from_this<Work> {
 public:
  Work(std::shared_ptr<ClientCore> client, std::shared_ptr<Hub> hub, nb::handle future);
  // Ends the work early, unless it has ended. Any thread. The future is cancelled already.
  void cancel();

  bool deliver() final;

 protected:
  friend class ClientCore;
  // A coroutine that runs the work. It is suspended or has ended when it returns.
  virtual void begin() = 0;
  // The value for the future, with the GIL. Null with a Python exception.
  virtual nb::object value() = 0;
  // Drops what the work refers to, with the GIL.
  virtual void release() noexcept {}
  // Loop's thread.
  void finish();
  void fail(Error error);

  // An awaitable that stores the handle of the coroutine, so that it can be destroyed.
  struct Begun {
    Work& work;
    bool await_ready() const noexcept { return false; }
    bool await_suspend(std::coroutine_handle<> handle) const noexcept {
      work.coroutine_ = handle;
      return false;
    }
    void await_resume() const noexcept {}
  };

  std::shared_ptr<ClientCore> client_;
  std::shared_ptr<Hub> hub_;
  Reference future_;
  std::optional<Error> error_;

 private:
  std::coroutine_handle<> coroutine_;  // Null before the work begins and after it has ended.
  std::size_t index_ = 0;              // Position in ClientCore::running_.
  bool ended_ = false;
};

// One connection to a server for Python, or those to the servers of a name, on the loop of the engine. A call without a
// connection connects again.
class ClientCore final : public EngineUser, public std::enable_shared_from_this<ClientCore> {
 public:
  // `options` without naming schemes: `address` is that of one server. `grpc`: the options are for servers of gRPC.
  static std::shared_ptr<ClientCore> make(std::string address, ClusterOptions options, bool grpc);
  ~ClientCore() override;

  // Throws the exception of an Error if the client is closed, or belongs to the parent of this process.
  void submit(std::shared_ptr<Work> work);
  void abort() noexcept override;
  // Throws the exception of an Error if the client is for a name, whose servers do not share `what`.
  void require_address(std::string_view what) const;
  // Throws TypeError if the client is for servers of gRPC, which do not describe their methods.
  void require_descriptions() const;
  // The memory of each RegisteredMemory of this client. With the GIL.
  void add_registered(Bytes memory) { registered_.push_back(memory); }
  void remove_registered(Bytes memory) noexcept;
  bool has_registered(Bytes memory) const noexcept;  // Within one of them.

  // ---- Loop's thread ----
  Task<Result<void>> connect();
  // One of the two exists while work runs.
  Client& client() noexcept { return *client_; }
  ClusterClient* cluster() noexcept { return cluster_.get(); }
  // Ends all work with an error and the connection with it.
  void close();
  // The connection takes no further call: the server takes fewer, or calls that were cancelled have no answer yet.
  // `work`, which was not sent, begins again when another one has ended, or after `retry_interval`.
  void wait_for_turn(Work& work);
  static constexpr Duration retry_interval = std::chrono::milliseconds(1);
  Duration call_timeout() const noexcept { return call_timeout_; }

 private:
  friend class Work;
  ClientCore(std::string address, ClusterOptions options, bool grpc);
  void run_submitted();
  void open();
  void start(const std::shared_ptr<Work>& work);
  void on_end(Work& work);
  void remove(Work& work);
  void start_waiting();
  static detail::Serving retry(std::shared_ptr<ClientCore> client);

  const std::string address_;
  const bool named_;
  const bool grpc_;
  const std::uint64_t generation_;
  const Duration call_timeout_;
  std::shared_ptr<Engine> engine_;
  std::mutex mutex_;
  bool closed_ = false;                           // With mutex_: abort() was called.
  std::vector<std::shared_ptr<Work>> submitted_;  // With mutex_.
  std::vector<Bytes> registered_;                 // With the GIL.

  // Loop's thread.
  const std::size_t calls_max_;
  bool starting_ = false;
  bool full_ = false;                       // The connection has just refused a call.
  bool retrying_ = false;                   // A retry() is waiting.
  std::optional<ClusterOptions> options_;   // Until the client is made.
  std::unique_ptr<Client> client_;          // Null before that, after close(), and with a name.
  std::unique_ptr<ClusterClient> cluster_;  // Null without a name.
  std::optional<Error> refused_;            // Why there is no client: the name is malformed.
  std::vector<std::shared_ptr<Work>> running_;
  std::deque<std::shared_ptr<Work>> waiting_;  // For a place among the running ones.
};

void bind_client(nb::module_& module);

}  // namespace hawser::python
