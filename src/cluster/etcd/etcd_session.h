#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/try.h"
#include "cluster/etcd/etcd_messages.h"
#include "hawser/etcd.h"
#include "hawser/grpc_client.h"
#include "hawser/loop.h"
#include "hawser/task.h"

namespace hawser::cluster {

// Fails with `invalid_argument` if an option is out of its range.
Result<void> check_etcd_options(const EtcdOptions& options);

// The connection to a cluster of etcd: to one member at a time, and to the next one after a failure. Loop's thread
// only.
class EtcdSession {
 public:
  EtcdSession(Loop& loop, std::vector<std::string> members, EtcdOptions options);

  // Connects and runs `work`, which ends with a failure only. Then reports that, connects to the next member, and so on
  // without an end. There is a pause when each member has failed once.
  Task<void> keep(std::function<Task<Error>()> work, std::function<void(Error)> failed);
  // Connects to the present member, and proves who the user is. No effect if it is connected.
  Task<Result<void>> connect();
  // Ends the connection, and thereby every call.
  void close() { client_.close(); }
  // `work` has begun well: the pauses are short again if it lasts.
  void note_working() noexcept {
    if (working_since_ == Time::max()) working_since_ = loop_.now();
  }

  template <auto F>
  Task<Result<std::string>> call(std::string request) {
    const protocol::grpc::ProtoBytes message{std::move(request)};
    CO_TRY(protocol::grpc::ProtoBytes reply, co_await client_.call<F>(call_options(options_.call_timeout), message));
    co_return std::move(reply.bytes);
  }
  // `timeout` limits the whole stream.
  template <auto F>
  auto open(Duration timeout) {
    return client_.open<F>(call_options(timeout));
  }

  const EtcdOptions& options() const noexcept { return options_; }

 private:
  CallOptions call_options(Duration timeout) const;
  Duration pause_after_failure();

  Loop& loop_;
  const std::vector<std::string> members_;
  const EtcdOptions options_;
  GrpcClient client_;
  std::string token_;                 // The token of the present connection; empty without a user.
  std::size_t member_;                // Index of the present member. The first one is random, so that clients spread.
  std::size_t failures_ = 0;          // Since `work` has lasted for retry_max.
  Time working_since_ = Time::max();  // The first note_working() of this connection.
};

}  // namespace hawser::cluster
