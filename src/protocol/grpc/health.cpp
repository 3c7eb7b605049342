#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "hawser/any_stop.h"
#include "hawser/grpc.h"
#include "hawser/grpc_health.h"
#include "hawser/stream.h"
#include "hawser/sync.h"
#include "protocol/grpc/own_method.h"
#include "protocol/grpc/proto_bytes.h"

namespace hawser {

using protocol::grpc::ProtoBytes;

// Shared by the handlers, which the server owns, and the GrpcHealth object.
struct GrpcHealth::State {
  // HealthCheckResponse.ServingStatus
  enum Status : std::uint8_t { unknown = 0, serving = 1, not_serving = 2, service_unknown = 3 };

  // A watcher keeps the name of its service, so that longer names are refused.
  static constexpr std::size_t service_bytes_max = 1024;

  struct Watcher {
    std::string service;
    Loop& loop;
    std::shared_ptr<Event> changed;
  };
  // Enters a watcher for the duration of a call.
  class Watching {
   public:
    Watching(State& state, std::string service, Loop& loop) : state_(state) {
      const std::scoped_lock lock(state_.mutex_);
      entry_ = state_.watchers_.insert(state_.watchers_.end(), {std::move(service), loop, std::make_shared<Event>()});
    }
    Watching(const Watching&) = delete;
    Watching& operator=(const Watching&) = delete;
    ~Watching() {
      const std::scoped_lock lock(state_.mutex_);
      state_.watchers_.erase(entry_);
    }
    Event& changed() const noexcept { return *entry_->changed; }

   private:
    State& state_;
    std::list<Watcher>::iterator entry_;
  };

  void set(std::string service, bool now) {
    const std::scoped_lock lock(mutex_);
    for (const Watcher& watcher : watchers_) {
      // The watcher's loop runs as long as the watcher is entered.
      if (watcher.service == service) watcher.loop.post([changed = watcher.changed] { changed->set(); });
    }
    services_[std::move(service)] = now ? serving : not_serving;
  }
  Status find(const std::string& service) {
    const std::scoped_lock lock(mutex_);
    const auto found = services_.find(service);
    return found == services_.end() ? service_unknown : found->second;
  }
  static ProtoBytes response(Status status) { return {std::string{'\x08', static_cast<char>(status)}}; }

  // The name of the service that the request asks for.
  static Result<std::string> service_of(const ProtoBytes& request) {
    std::optional<std::string> service = protocol::grpc::string_field(request.bytes, 1);
    if (!service) return fail(ErrorCode::invalid_argument, "the request is no grpc.health.v1.HealthCheckRequest");
    if (service->size() <= service_bytes_max) return *std::move(service);
    return fail(ErrorCode::invalid_argument, "the name of the service has " + std::to_string(service->size()) +
                                                 " bytes: the limit is " + std::to_string(service_bytes_max) +
                                                 " bytes: send a shorter one");
  }

  Result<ProtoBytes> check(ProtoBytes request) {
    const Result<std::string> service = service_of(request);
    if (!service) return std::unexpected(service.error());
    const Status status = find(*service);
    if (status == service_unknown) {
      constexpr int not_found = 5;
      return std::unexpected(grpc_error(not_found, "the server has no health of the service '" + *service + "'"));
    }
    return response(status);
  }

  Result<ProtoBytes> list(ProtoBytes) {
    const std::scoped_lock lock(mutex_);
    ProtoBytes reply;
    for (const auto& [name, status] : services_) {
      std::string entry;
      protocol::grpc::add_bytes_field(entry, 1, name);
      protocol::grpc::add_bytes_field(entry, 2, response(status).bytes);
      protocol::grpc::add_bytes_field(reply.bytes, 1, entry);
    }
    return reply;
  }

  Task<Result<void>> watch(Context& context, ProtoBytes request, Writer<ProtoBytes> out) {
    const Result<std::string> service = service_of(request);
    if (!service) co_return std::unexpected(service.error());
    std::string().swap(request.bytes);  // The call may last for days.
    const AnyStop stop(context.token(), context.stopping());
    const Watching watching(*this, *service, context.loop());
    std::optional<Status> last;
    while (!stop.token().stop_requested()) {
      watching.changed().reset();
      const Status now = find(*service);
      if (now != last) {
        last = now;
        const ProtoBytes message = response(now);  // Lives until it has been written.
        auto writing = out.write(message);
        const Result<void> written = co_await std::move(writing);
        if (!written) co_return std::unexpected(written.error());
      }
      auto waiting = watching.changed().wait(stop.token());
      static_cast<void>(co_await std::move(waiting));
    }
    if (!context.stopping().stop_requested()) co_return fail(ErrorCode::cancelled, "the caller watches no longer");
    constexpr int unavailable = 14;
    co_return std::unexpected(grpc_error(unavailable, "the server is stopping"));
  }

 private:
  std::mutex mutex_;
  std::map<std::string, Status> services_{{"", serving}};
  std::list<Watcher> watchers_;
};

GrpcHealth::GrpcHealth(Server& server) : state_(std::make_shared<State>()) {
  using protocol::grpc::add_own_method;
  add_own_method<&State::check>(server, state_, "grpc.health.v1.Health/Check");
  add_own_method<&State::watch>(server, state_, "grpc.health.v1.Health/Watch");
  add_own_method<&State::list>(server, state_, "grpc.health.v1.Health/List");
}

GrpcHealth::~GrpcHealth() = default;

void GrpcHealth::set(std::string service, bool serving) { state_->set(std::move(service), serving); }

}  // namespace hawser
