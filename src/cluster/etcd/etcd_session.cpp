#include "cluster/etcd/etcd_session.h"

#include <algorithm>

#include "cluster/spread_pause.h"

namespace hawser::cluster {
namespace {

constexpr int pause_doublings_max = 20;

GrpcClientOptions grpc_options(const EtcdOptions& options) {
  GrpcClientOptions grpc;
  grpc.connect_timeout = options.connect_timeout;
  grpc.call_timeout = options.call_timeout;
  grpc.message_bytes_max = options.message_bytes_max;
  grpc.security = options.security;
  return grpc;
}

}  // namespace

Result<void> check_etcd_options(const EtcdOptions& options) {
  constexpr Duration interval_min = std::chrono::milliseconds(1);
  constexpr Duration interval_max = std::chrono::hours(1);
  for (const Duration interval : {options.confirm_interval, options.retry_interval, options.retry_max}) {
    if (interval >= interval_min && interval <= interval_max) continue;
    return fail(ErrorCode::invalid_argument,
                "EtcdOptions: confirm_interval, retry_interval and retry_max must be from 1 ms to 1 h");
  }
  if (options.message_bytes_max > UINT32_MAX) {
    return fail(ErrorCode::invalid_argument, "EtcdOptions: message_bytes_max must be at most 4294967295");
  }
  return {};
}

EtcdSession::EtcdSession(Loop& loop, std::vector<std::string> members, EtcdOptions options)
    : loop_(loop),
      members_(std::move(members)),
      options_(std::move(options)),
      client_(loop, grpc_options(options_)),
      member_(detail::LoopAccess::random(loop) % members_.size()) {}

CallOptions EtcdSession::call_options(Duration timeout) const {
  CallOptions options;
  options.timeout = timeout;
  // A member without a leader refuses, and ends watches. Otherwise a member that is cut off from the others is silent.
  options.metadata.emplace_back("hasleader", "true");
  if (!token_.empty()) options.metadata.emplace_back("token", token_);
  return options;
}

Task<Result<void>> EtcdSession::connect() {
  if (client_.connected()) co_return Result<void>();
  token_.clear();
  CO_TRY(co_await client_.connect(members_[member_]));
  if (options_.user.empty()) co_return Result<void>();
  CO_TRY(const std::string answer,
         co_await call<&etcd_authenticate>(authenticate_request(options_.user, options_.password)));
  CO_TRY(token_, read_token(answer));
  co_return Result<void>();
}

Task<void> EtcdSession::keep(std::function<Task<Error>()> work, std::function<void(Error)> failed) {
  for (;;) {
    working_since_ = Time::max();
    Result<void> connected = co_await connect();
    Error error = connected ? co_await work() : std::move(connected.error());
    error.text = "etcd at " + members_[member_] + ": " + error.text;
    client_.close();
    member_ = (member_ + 1) % members_.size();
    const Duration pause = pause_after_failure();
    failed(std::move(error));
    if (pause > Duration::zero()) co_await loop_.sleep(pause);
  }
}

// Zero while there are members that have not failed.
Duration EtcdSession::pause_after_failure() {
  if (working_since_ < loop_.now() - options_.retry_max) failures_ = 0;
  if (++failures_ % members_.size() != 0) return Duration::zero();
  const auto doublings = std::min<std::size_t>(failures_ / members_.size() - 1, pause_doublings_max);
  return spread_pause(loop_, std::min(options_.retry_interval * (1 << doublings), options_.retry_max));
}

}  // namespace hawser::cluster
