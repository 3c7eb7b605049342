#include "hawser/authorization.h"

#include <atomic>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/escaped_text.h"
#include "base/line_trace.h"
#include "hawser/loop.h"
#include "hawser/trace.h"

namespace hawser {
namespace {

constexpr std::size_t method_text_bytes_max = 128;

Task<Result<void>> refuse(ErrorCode code, std::string text) { co_return fail(code, std::move(text)); }

char lower(char c) noexcept { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c; }

}  // namespace

// ---- Conditions ----

Who anyone() {
  return [](const Identity&) { return true; };
}
Who authenticated() {
  return [](const Identity& identity) { return identity.kind != Identity::Kind::none; };
}
Who spiffe(std::string id) {
  if (!id.starts_with("spiffe://")) throw std::invalid_argument("hawser: a SPIFFE id begins with spiffe://");
  const bool prefix = id.ends_with("/*");
  if (prefix) id.pop_back();
  return [id = std::move(id), prefix](const Identity& identity) {
    if (prefix) return identity.spiffe_id.size() > id.size() && identity.spiffe_id.starts_with(id);
    return identity.spiffe_id == id;
  };
}
Who subject(std::string name) {
  if (name.empty())
    throw std::invalid_argument(
        "hawser: subject() needs a name: the empty text is the subject of callers that have none");
  return [name = std::move(name)](const Identity& identity) { return identity.subject == name; };
}
Who uid(std::uint32_t user) {
  return
      [user](const Identity& identity) { return identity.kind == Identity::Kind::unix_peer && identity.uid == user; };
}
Who gid(std::uint32_t group) {
  return
      [group](const Identity& identity) { return identity.kind == Identity::Kind::unix_peer && identity.gid == group; };
}
Who claim(std::string name, std::string value) {
  return [name = std::move(name), value = std::move(value)](const Identity& identity) {
    return identity.kind == Identity::Kind::token && identity.has_claim(name, value);
  };
}

// ---- Authorization ----

struct Authorization::State {
  struct Rule {
    std::string method;  // Without the '*'.
    bool prefix;
    Who who;
    bool matches(std::string_view name) const noexcept { return prefix ? name.starts_with(method) : name == method; }
  };

  // Writes a line, unless this second has had too many. Any thread.
  void audit(IncomingCall& call, std::string_view verdict) {
    const auto second = std::chrono::duration_cast<std::chrono::seconds>(call.loop().now().time_since_epoch()).count();
    if (log_second.exchange(second, std::memory_order_relaxed) != second) log_lines.store(0, std::memory_order_relaxed);
    if (log_lines.fetch_add(1, std::memory_order_relaxed) >= options.log_lines_per_second_max) {
      log_omitted.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    std::string line(verdict);
    line += " ";
    append_escaped(line, call.method(), method_text_bytes_max);
    line += " over " + std::string(call.protocol()) + " by " + call.identity().text() + " at " + call.peer();
    const std::uint64_t omitted = log_omitted.exchange(0, std::memory_order_relaxed);
    if (omitted != 0) line += " (" + std::to_string(omitted) + " lines before this were omitted)";
    const std::optional<TraceContext> trace = trace_of(call.metadata());
    const LineTrace traced(trace ? &*trace : nullptr);
    call.loop().log(LogLevel::info, "audit", line);
  }

  AuthorizationOptions options;
  std::vector<Rule> rules = {};
  std::atomic<std::int64_t> log_second{-1};
  std::atomic<std::uint32_t> log_lines{0};
  std::atomic<std::uint64_t> log_omitted{0};
};

Authorization::Authorization(AuthorizationOptions options) : state_(std::make_shared<State>(options)) {}

Authorization& Authorization::allow(std::string_view method, Who who) & {
  if (!who) throw std::invalid_argument("hawser: Authorization::allow() needs a condition, such as hawser::anyone()");
  const bool prefix = method.ends_with('*');
  if (prefix) method.remove_suffix(1);
  if (method.contains('*')) {
    throw std::invalid_argument("hawser: the pattern " + std::string(method) + " has a * that is not at its end");
  }
  state_->rules.push_back({std::string(method), prefix, std::move(who)});
  return *this;
}
Authorization&& Authorization::allow(std::string_view method, Who who) && {
  allow(method, std::move(who));
  return std::move(*this);
}

bool Authorization::allows(std::string_view method, const Identity& identity) const {
  for (const State::Rule& rule : state_->rules) {
    if (rule.matches(method) && rule.who(identity)) return true;
  }
  return state_->rules.empty();
}

Task<Result<void>> Authorization::operator()(IncomingCall& call, Next next) const {
  const bool allowed = allows(call.method(), call.identity());
  if (allowed ? state_->options.log_allowed : state_->options.log_refused) {
    state_->audit(call, allowed ? "allowed" : "refused");
  }
  if (allowed) return next();
  if (!call.identity()) {
    return refuse(ErrorCode::unauthenticated,
                  "this method is not open to callers without an identity: send a token, or connect with a certificate "
                  "or by a Unix socket");
  }
  return refuse(ErrorCode::permission_denied,
                "no rule of the server allows this caller (" + call.identity().text() + ") to call this method");
}

// ---- Bearer tokens ----

std::string_view bearer_token(const IncomingCall& call) noexcept {
  static constexpr std::string_view scheme = "bearer ";
  std::string_view value = call.metadata().find("authorization").value_or(std::string_view());
  if (value.size() <= scheme.size()) return {};
  for (std::size_t i = 0; i < scheme.size(); ++i) {
    if (lower(value[i]) != scheme[i]) return {};
  }
  value.remove_prefix(scheme.size());
  while (value.starts_with(' ')) value.remove_prefix(1);
  while (value.ends_with(' ')) value.remove_suffix(1);
  return value;
}

bool equal_in_constant_time(std::string_view given, std::string_view secret) noexcept {
  // The volatile pointer hinders a compiler that would end the loop early.
  const volatile char* const bytes = secret.data();
  unsigned difference = given.size() == secret.size() ? 0 : 1;
  for (std::size_t i = 0, at = 0; i < given.size(); ++i) {
    const char other = secret.empty() ? '\0' : bytes[at];
    difference |= static_cast<unsigned char>(given[i] ^ other);
    at = at + 1 < secret.size() ? at + 1 : 0;
  }
  return difference == 0;
}

struct BearerTokens::State {
  BearerTokensOptions options;
  std::vector<std::pair<std::string, Identity>> tokens = {};
};

BearerTokens::BearerTokens(BearerTokensOptions options) : state_(std::make_shared<State>(options)) {}

BearerTokens& BearerTokens::add(std::string_view token, Identity identity) & {
  if (token.size() < token_bytes_min) {
    throw std::invalid_argument("hawser: a token of " + std::to_string(token.size()) +
                                " bytes can be guessed: use at least 16 random bytes");
  }
  if (find(token) != nullptr) throw std::invalid_argument("hawser: this token was added before");
  identity.kind = Identity::Kind::token;
  state_->tokens.emplace_back(token, std::move(identity));
  return *this;
}
BearerTokens&& BearerTokens::add(std::string_view token, Identity identity) && {
  add(token, std::move(identity));
  return std::move(*this);
}

const Identity* BearerTokens::find(std::string_view token) const noexcept {
  const Identity* found = nullptr;
  for (const auto& [secret, identity] : state_->tokens) {
    if (equal_in_constant_time(token, secret)) found = &identity;
  }
  return found;
}

Task<Result<void>> BearerTokens::operator()(IncomingCall& call, Next next) const {
  const std::string_view token = bearer_token(call);
  if (token.empty()) {
    if (!state_->options.required) return next();
    return refuse(ErrorCode::unauthenticated, "the call has no token: send the metadata authorization: Bearer TOKEN");
  }
  const Identity* const identity = find(token);
  if (identity == nullptr) return refuse(ErrorCode::unauthenticated, "the server does not know this token");
  call.set_identity(*identity);
  if (!state_->options.keep) call.remove_metadata("authorization");
  return next();
}

}  // namespace hawser
