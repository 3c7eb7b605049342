#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/log_line.h"
#include "base/try.h"
#include "cluster/endpoint_text.h"
#include "cluster/etcd/endpoint_record.h"
#include "cluster/etcd/etcd_name.h"
#include "cluster/etcd/etcd_session.h"
#include "hawser/etcd.h"
#include "hawser/scope.h"
#include "hawser/server.h"

namespace hawser {
namespace {

// A lease that lives longer is renewed as if it had this time.
constexpr std::chrono::seconds renewed_ttl_max = std::chrono::hours(1);

// A key and its value, and where they go.
struct EtcdRegistration {
  std::vector<std::string> members;
  std::string key;
  std::string value;
  AnnouncementOptions options;
};

Result<EtcdRegistration> make_registration(std::string_view name, const Endpoint& endpoint,
                                           AnnouncementOptions options) {
  constexpr std::string_view scheme = "etcd://";
  if (!name.starts_with(scheme)) {
    return fail(ErrorCode::invalid_argument, "the name of an announcement begins with etcd://");
  }
  TRY(cluster::EtcdName parsed, cluster::parse_etcd_name(name.substr(scheme.size())));
  TRY(cluster::check_etcd_options(options.etcd));
  if (std::string why = cluster::why_invalid(endpoint); !why.empty()) {
    return fail(ErrorCode::invalid_argument, std::move(why));
  }
  if (options.ttl < std::chrono::seconds(1)) {
    return fail(ErrorCode::invalid_argument,
                "AnnouncementOptions::ttl is " + std::to_string(options.ttl.count()) + " s: it must be at least 1 s");
  }
  return EtcdRegistration{.members = std::move(parsed.members),
                          .key = parsed.prefix + endpoint.address,
                          .value = cluster::record_of(endpoint),
                          .options = std::move(options)};
}

}  // namespace

class EtcdAnnouncement::Keeper {
 public:
  Keeper(Loop& loop, EtcdRegistration registration)
      : loop_(loop),
        key_(std::move(registration.key)),
        value_(std::move(registration.value)),
        ttl_(registration.options.ttl),
        session_(loop, std::move(registration.members), std::move(registration.options.etcd)) {
    work_.spawn(session_.keep([this] { return hold(); }, [this](Error error) { note_failure(std::move(error)); }));
  }
  const AnnouncementState& state() const noexcept { return state_; }

  Task<Result<void>> leave() {
    work_.clear();
    state_.registered = false;
    if (state_.lease == 0) co_return Result<void>();
    CO_TRY(co_await session_.connect());
    CO_TRY(co_await session_.call<&cluster::etcd_revoke>(cluster::lease_id_request(std::exchange(state_.lease, 0))));
    co_return Result<void>();
  }

 private:
  Task<Error> hold() {
    Result<void> held = co_await hold_until_failure();
    co_return std::move(held.error());
  }

  // Begins on each connection. A lease of an earlier one may still be valid.
  Task<Result<void>> hold_until_failure() {
    for (bool renews = state_.lease != 0;; renews = true) {
      if (renews) CO_TRY(co_await renew());
      if (state_.lease == 0) CO_TRY(co_await grant());
      if (!state_.registered) CO_TRY(co_await put());
      state_.error.reset();
      session_.note_working();
      co_await loop_.sleep(renew_interval());
    }
  }

  Task<Result<void>> grant() {
    CO_TRY(const std::string granted, co_await session_.call<&cluster::etcd_grant>(cluster::lease_grant_request(ttl_)));
    CO_TRY(const cluster::EtcdLease lease, cluster::read_lease(granted));
    if (lease.id == 0 || lease.ttl < std::chrono::seconds(1)) {
      co_return fail(Error::of_call(Initiator::peer, ErrorCode::protocol_error, "etcd has granted no lease"));
    }
    state_.lease = lease.id;
    state_.ttl = lease.ttl;
    co_return Result<void>();
  }

  // If the answer is lost, the next connection puts the same key with the same lease.
  Task<Result<void>> put() {
    CO_TRY(co_await session_.call<&cluster::etcd_put>(cluster::put_request(key_, value_, state_.lease)));
    state_.registered = true;
    ++state_.registrations;
    log_line(loop_.options().log, LogLevel::info, "etcd", [&] {
      return "announced " + key_ + "; its lease of " + std::to_string(state_.ttl.count()) + " s is renewed";
    });
    co_return Result<void>();
  }

  // Forgets the lease if etcd does not know it any more.
  Task<Result<void>> renew() {
    CO_TRY(auto call, co_await session_.open<&cluster::etcd_keep_alive>(renew_interval()));
    auto writer = call.writer();
    auto reader = call.reader();
    CO_TRY(co_await writer.write(protocol::grpc::ProtoBytes{cluster::lease_id_request(state_.lease)}));
    CO_TRY(const std::optional<protocol::grpc::ProtoBytes> answer, co_await reader.next());
    if (!answer) {
      CO_TRY(co_await call.finish());
      co_return fail(Error::of_call(Initiator::peer, ErrorCode::unavailable, "etcd has not renewed the lease"));
    }
    CO_TRY(const cluster::EtcdLease lease, cluster::read_lease(answer->bytes));
    if (lease.ttl <= std::chrono::seconds(0)) {
      state_.lease = 0;
      state_.registered = false;
    }
    co_return Result<void>();
  }

  // One renewal may time out, and another member still has a third of the time.
  Duration renew_interval() const noexcept { return Duration(std::min(state_.ttl, renewed_ttl_max)) / 3; }

  void note_failure(Error error) {
    if (!state_.error) {
      log_line(loop_.options().log, LogLevel::warning, "etcd",
               [&] { return "the announcement of " + key_ + " fails: " + error.text; });
    }
    state_.error = std::move(error);
  }

  Loop& loop_;
  const std::string key_;
  const std::string value_;
  const std::chrono::seconds ttl_;
  AnnouncementState state_;
  cluster::EtcdSession session_;
  Scope work_;
};

EtcdAnnouncement::EtcdAnnouncement(std::unique_ptr<Keeper> keeper) noexcept : keeper_(std::move(keeper)) {}
EtcdAnnouncement::~EtcdAnnouncement() = default;
const AnnouncementState& EtcdAnnouncement::state() const noexcept { return keeper_->state(); }
Task<Result<void>> EtcdAnnouncement::leave() { return keeper_->leave(); }

Result<std::unique_ptr<EtcdAnnouncement>> EtcdAnnouncement::begin(Loop& loop, std::string_view name, Endpoint endpoint,
                                                                  AnnouncementOptions options) {
  TRY(EtcdRegistration registration, make_registration(name, endpoint, std::move(options)));
  return std::unique_ptr<EtcdAnnouncement>(
      new EtcdAnnouncement(std::make_unique<Keeper>(loop, std::move(registration))));
}

Result<void> announce(Server& server, std::string_view name, Endpoint endpoint, AnnouncementOptions options) {
  TRY(make_registration(name, endpoint, options));
  const auto announcing = [name = std::string(name), endpoint = std::move(endpoint),
                           options = std::move(options)](Background background) -> Task<void> {
    Loop& loop = *Loop::current();
    const auto announcement = EtcdAnnouncement::begin(loop, name, endpoint, options);  // Was checked above.
    static_cast<void>(co_await loop.sleep(forever, background.stopping));
    if (const Result<void> left = co_await (*announcement)->leave(); !left) {
      log_line(loop.options().log, LogLevel::warning, "etcd",
               [&] { return "the end of the announcement of " + endpoint.address + ": " + left.error().text; });
    }
  };
  return server.spawn(announcing);
}

}  // namespace hawser
