#include "kv/password_gate.h"

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "base/escaped_text.h"
#include "hawser/authorization.h"
#include "hawser/error.h"
#include "hawser/kv.h"
#include "kv/password.h"
#include "kv/resp_protocol.h"
#include "kv/service.h"
#include "rpc/port/port_session.h"

namespace hawser::kv {
namespace {

Task<Result<void>> refuse(std::string text) { co_return fail(ErrorCode::unauthenticated, std::move(text)); }

// Runs around the calls of clients of Hawser. Calls with the right password do not need it.
class GateInterceptor {
 public:
  explicit GateInterceptor(std::shared_ptr<PasswordGate> gate) noexcept : gate_(std::move(gate)) {}

  bool skips(const MetadataView& metadata) const noexcept {
    const std::optional<std::string_view> given = password_of(metadata);
    return given && gate_->matches(*given);
  }

  Task<Result<void>> operator()(IncomingCall& call, Next next) const {
    const std::optional<std::string_view> given = password_of(call.metadata());
    if (!given) {
      return refuse(
          "the server of the key-value store needs a password: give hawser-kv the option --password-file, and a client "
          "the interceptor hawser::kv::send_password()");
    }
    if (gate_->matches(*given)) return next();
    gate_->on_wrong_call(call);
    return refuse("the password of the key-value store is wrong");
  }

 private:
  std::shared_ptr<PasswordGate> gate_;
};

}  // namespace

PasswordGate::~PasswordGate() { wipe(password_); }

bool PasswordGate::matches(std::string_view given) const noexcept { return equal_in_constant_time(given, password_); }

void PasswordGate::log_end(Loop& loop, const std::string& peer) noexcept {
  const auto second = std::chrono::duration_cast<std::chrono::seconds>(loop.now().time_since_epoch()).count();
  if (log_second_.exchange(second, std::memory_order_relaxed) == second) return;
  try {
    std::string line = "the connection of ";
    constexpr std::size_t peer_bytes_max = 128;
    append_escaped(line, peer, peer_bytes_max);
    line += " ends: it has sent " + std::to_string(wrong_max) + " wrong passwords";
    loop.log(LogLevel::warning, "kv", line);
  } catch (const std::bad_alloc&) {
    // INFO has their number.
  }
}

void PasswordGate::on_wrong_call(IncomingCall& call) {
  count_wrong();
  detail::ReplySink& connection = call.request().sink.origin();
  {
    const std::lock_guard lock(mutex_);
    if (by_connection_.size() >= remembered_max && !by_connection_.contains(&connection)) {
      by_connection_.erase(by_connection_.begin());
    }
    if (++by_connection_[&connection] < wrong_max) return;
    by_connection_.erase(&connection);
  }
  log_end(call.loop(), call.peer());
  static_cast<rpc::PortSession&>(connection)
      .abort({ErrorCode::unauthenticated, ErrorScope::connection, Initiator::local, 0,
              "the client has sent " + std::to_string(wrong_max) + " wrong passwords"});
}

void attach_store(Server& server, Store& store, Service& service, std::shared_ptr<PasswordGate> gate) {
  server.enable(resp_protocol(store, gate));
  register_service(server, service);
  if (gate != nullptr) server.use(GateInterceptor(std::move(gate)));
}

}  // namespace hawser::kv
