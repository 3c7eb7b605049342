#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <string>

#include "hawser/detail/loop_access.h"
#include "hawser/error.h"
#include "hawser/http_client.h"
#include "hawser/loop.h"
#include "hawser/scope.h"
#include "hawser/sync.h"
#include "hawser/task.h"
#include "hawser/timer.h"
#include "protocol/http/client_connection.h"
#include "protocol/http/client_request.h"
#include "transport/network.h"

namespace hawser::protocol::http {

// The connections of an HttpClient. Requests that are under way own it too. Loop's thread only.
class ConnectionPool final : detail::LoopUser, public std::enable_shared_from_this<ConnectionPool> {
  struct Host {
    explicit Host(std::size_t connections) : permits(connections) {}
    Semaphore permits;
    std::size_t users = 0;  // Requests that use or await a connection.
  };
  using Hosts = std::map<std::string, Host>;

 public:
  ConnectionPool(Loop& loop, const HttpClientOptions& options);
  ConnectionPool(const ConnectionPool&) = delete;
  ConnectionPool& operator=(const ConnectionPool&) = delete;
  ~ConnectionPool();

  // A request. Its connection ends with the loop, which the request may outlive.
  class Work {
   public:
    explicit Work(ConnectionPool& pool);
    Work(const Work&) = delete;
    Work& operator=(const Work&) = delete;

   protected:
    ~Work();

   private:
    friend class ConnectionPool;
    virtual void on_loop_end() noexcept = 0;
    const std::shared_ptr<ConnectionPool> list_;  // Members of a derived class may have held the pool until now.
    Work* next_ = nullptr;
    Work** previous_ = nullptr;  // The pointer that refers to this one.
  };
  // A request whose connection belongs to the tasks of a scope.
  class ScopedWork final : public Work {
   public:
    using Work::Work;
    Scope tasks;

   private:
    void on_loop_end() noexcept override { tasks.clear(); }
  };

  Loop& loop() const noexcept { return loop_; }
  const HttpClientOptions& options() const noexcept { return options_; }
  // Fails with `invalid_argument` if another loop runs here, and with `unavailable` if the pool's loop has ended.
  Result<void> check_loop() const;

  // The right to one of the connections of a host (connections_per_host_max). Movable.
  class Place {
   public:
    Place() noexcept = default;
    Place(Place&& other) noexcept
        : pool_(std::move(other.pool_)), host_(other.host_), permit_(std::move(other.permit_)) {}
    Place& operator=(Place&& other) noexcept;
    ~Place() { release(); }
    void release() noexcept;

   private:
    friend class ConnectionPool;
    std::shared_ptr<ConnectionPool> pool_;
    Hosts::iterator host_;
    Permit permit_;
  };
  // Waits for a place.
  Task<Place> enter(std::string key);

  // Returns an unused connection, or null.
  std::unique_ptr<ClientConnection> take_idle(const std::string& key);
  // Connects, until `deadline` or for connect_timeout at most.
  Task<Result<std::unique_ptr<ClientConnection>>> connect(const ClientTarget& target, Time deadline);
  // Keeps a connection for later requests, if it can carry one.
  void keep(const std::string& key, std::unique_ptr<ClientConnection> connection);
  // The client has been destroyed: nothing is kept any more.
  void close();
  std::size_t idle_connections() const noexcept;

 private:
  struct Idle {
    std::string key;
    std::unique_ptr<ClientConnection> connection;
    Time since;
  };

  void on_loop_end() noexcept override;
  void sweep();
  void start_sweeping();

  Loop& loop_;
  const std::shared_ptr<transport::Network> network_;
  const HttpClientOptions options_;
  const HttpMessageLimits limits_;
  bool closed_ = false;
  bool uses_loop_ = false;
  bool loop_ended_ = false;
  Work* works_ = nullptr;
  Hosts hosts_;
  std::deque<Idle> idle_;  // The one that was used last is at the end.
  MemberTimer<&ConnectionPool::sweep> sweep_timer_;
};

}  // namespace hawser::protocol::http
