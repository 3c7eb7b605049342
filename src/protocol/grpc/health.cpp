#include <cstddef>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

#include "base/decimal_text.h"
#include "base/try.h"
#include "hawser/any_stop.h"
#include "hawser/grpc.h"
#include "hawser/grpc_health.h"
#include "hawser/stream.h"
#include "hawser/with_timeout.h"
#include "protocol/grpc/own_method.h"
#include "protocol/grpc/proto_bytes.h"
#include "rpc/port/health_state.h"
#include "rpc/server/inspector.h"

namespace hawser {
namespace {

using protocol::grpc::ProtoBytes;
using rpc::HealthState;

// HealthCheckResponse with the ServingStatus.
ProtoBytes response(HealthStatus status) {
  constexpr char serving = 1;
  constexpr char not_serving = 2;
  constexpr char service_unknown = 3;
  const char number = status == HealthStatus::serving       ? serving
                      : status == HealthStatus::not_serving ? not_serving
                                                            : service_unknown;
  return {std::string{'\x08', number}};
}

// The name of the service that the request asks for.
Result<std::string> service_of(const ProtoBytes& request) {
  std::optional<std::string> service = protocol::grpc::string_field(request.bytes, 1);
  if (!service) return fail(ErrorCode::invalid_argument, "the request is not a grpc.health.v1.HealthCheckRequest");
  constexpr std::size_t bytes_max = HealthState::service_bytes_max;
  if (service->size() <= bytes_max) return *std::move(service);
  return fail(ErrorCode::invalid_argument, "the name of the service has " + count_text(service->size(), "byte") +
                                               ": the limit is " + count_text(bytes_max, "byte") +
                                               ": send a shorter one");
}

// The handlers, which the server owns.
struct HealthService {
  const std::shared_ptr<HealthState> health;

  Result<ProtoBytes> check(ProtoBytes request) {
    TRY(const std::string& service, service_of(request));
    const HealthStatus status = health->status(service);
    if (status != HealthStatus::unknown) return response(status);
    constexpr int not_found = 5;
    return fail(grpc_error(not_found, "the server has no health of the service '" + service + "'"));
  }

  Result<ProtoBytes> list(ProtoBytes) {
    ProtoBytes reply;
    for (const std::string& name : health->services()) {
      std::string entry;
      protocol::grpc::add_bytes_field(entry, 1, name);
      protocol::grpc::add_bytes_field(entry, 2, response(health->status(name)).bytes);
      protocol::grpc::add_bytes_field(reply.bytes, 1, entry);
    }
    return reply;
  }

  Task<Result<void>> watch(Context& context, ProtoBytes request, Writer<ProtoBytes> out) {
    CO_TRY(const std::string& service, service_of(request));
    std::string().swap(request.bytes);  // The call may last for days.
    const AnyStop stop(context.token(), context.stopping());
    HealthState::Watcher watcher(health, service, context.loop());
    const auto change = [&watcher](std::stop_token token) { return watcher.changed().wait(std::move(token)); };
    std::optional<HealthStatus> last;
    for (;;) {
      watcher.changed().reset();
      const bool stopping = context.stopping().stop_requested();
      const HealthStatus now = stopping && last != HealthStatus::unknown
                                   ? HealthStatus::not_serving
                                   : health->recent_status(service, context.loop().now());
      if (now != last) {
        last = now;
        const ProtoBytes message = response(now);  // Lives until it has been written.
        CO_TRY(co_await out.write(message));
      }
      if (stopping) break;
      if (context.token().stop_requested()) co_return fail(ErrorCode::cancelled, "the caller watches no longer");
      auto waiting = health->has_reporters() ? with_timeout(HealthState::watch_interval, change, stop.token())
                                             : change(stop.token());
      static_cast<void>(co_await std::move(waiting));
    }
    constexpr int unavailable = 14;
    co_return fail(grpc_error(unavailable, "the server is stopping"));
  }
};

}  // namespace

GrpcHealth::GrpcHealth(Server& server) : health_(server) {
  const auto service = std::make_shared<HealthService>(rpc::Inspector::health(server));
  using protocol::grpc::add_own_method;
  add_own_method<&HealthService::check>(server, service, "grpc.health.v1.Health/Check");
  add_own_method<&HealthService::watch>(server, service, "grpc.health.v1.Health/Watch");
  add_own_method<&HealthService::list>(server, service, "grpc.health.v1.Health/List");
}

}  // namespace hawser
