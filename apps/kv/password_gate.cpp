#include "kv/password_gate.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/escaped_text.h"
#include "hawser/authorization.h"
#include "hawser/error.h"
#include "hawser/kv.h"
#include "heap/secret_memory.h"
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
      gate_->on_refused_call(call, false);
      return refuse(
          "the server of the key-value store needs a password: give hawser-kv the option --password-file, and a client "
          "the interceptor hawser::kv::send_password()");
    }
    if (gate_->matches(*given)) return next();
    gate_->on_refused_call(call, true);
    return refuse("the password of the key-value store is wrong");
  }

 private:
  std::shared_ptr<PasswordGate> gate_;
};

}  // namespace

PasswordGate::PasswordGate(std::string password) {
  std::vector<std::string> one;
  one.push_back(std::move(password));
  set_passwords(std::move(one));
}

PasswordGate::PasswordGate(std::vector<std::string> passwords) { set_passwords(std::move(passwords)); }

void PasswordGate::set_passwords(std::vector<std::string> passwords) {
  auto made = std::make_unique<Passwords>();
  for (std::string& password : passwords) {
    made->emplace_back(password);
    wipe(password);
  }
  const auto same = [](const SecretText& a, const SecretText& b) { return a.view() == b.view(); };
  const std::lock_guard lock(mutex_);
  if (!all_.empty() && std::ranges::equal(*all_.back(), *made, same)) return;
  all_.push_back(std::move(made));
  passwords_.store(all_.back().get(), std::memory_order_release);
}

bool PasswordGate::matches(std::string_view given) const noexcept {
  bool same = false;
  for (const SecretText& password : *passwords_.load(std::memory_order_acquire)) {
    if (equal_in_constant_time(given, password.view())) same = true;
  }
  return same;
}

void PasswordGate::log_end(Loop& loop, const std::string& peer) noexcept {
  const auto second = std::chrono::duration_cast<std::chrono::seconds>(loop.now().time_since_epoch()).count();
  if (!log_lines_.take(second, 1)) return;
  try {
    std::string line = "the connection of ";
    constexpr std::size_t peer_bytes_max = 128;
    append_escaped(line, peer, peer_bytes_max);
    line += " ends: it has sent " + std::to_string(wrong_max) + " wrong passwords, or large requests without one";
    loop.log(LogLevel::warning, "kv", line);
  } catch (const std::bad_alloc&) {
    // INFO has their number.
  }
}

void PasswordGate::on_refused_call(IncomingCall& call, bool wrong) {
  if (wrong) count_wrong();
  auto& session = static_cast<rpc::PortSession&>(call.request().sink.origin());
  const bool large = call.request_bytes() > small_bytes_max;
  unsigned counts = large ? large_counts : wrong ? 1 : 0;
  bool last = false;
  for (; counts != 0; --counts) last = session.count_wrong_secret() == wrong_max || last;
  if (!last) return;
  log_end(call.loop(), call.peer());
  session.abort(Error::of_connection(ErrorCode::unauthenticated,
                                     "the client has sent " + std::to_string(wrong_max) +
                                         " wrong passwords, or large requests without the right one"));
}

void attach_store(Server& server, Store& store, Service& service, std::shared_ptr<PasswordGate> gate) {
  server.enable(resp_protocol(store, gate));
  register_service(server, service);
  if (gate != nullptr) server.use(GateInterceptor(std::move(gate)));
}

}  // namespace hawser::kv
