#include "hawser/authorization.h"

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/ascii_case.h"
#include "base/decimal_text.h"
#include "heap/secret_memory.h"
#include "rpc/server/audit_log.h"

namespace hawser {
namespace {

constexpr std::string_view spiffe_scheme = "spiffe://";
constexpr std::size_t spiffe_id_bytes_max = 2048;
constexpr std::size_t trust_domain_bytes_max = 255;

Task<Result<void>> refuse(ErrorCode code, std::string text) { co_return fail(code, std::move(text)); }

bool in_trust_domain(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '_';
}
bool in_segment(char c) noexcept { return in_trust_domain(c) || (c >= 'A' && c <= 'Z'); }

Who subject_of(Identity::Kind kind, std::string_view condition, std::string name, std::string issuer) {
  if (name.empty()) {
    throw std::invalid_argument("hawser: " + std::string(condition) +
                                "() needs a name: the empty text is the subject of callers that have none");
  }
  return [kind, name = std::move(name), issuer = std::move(issuer)](const Identity& identity) {
    return identity.kind == kind && identity.subject == name && (issuer.empty() || identity.issuer == issuer);
  };
}

}  // namespace

// ---- Conditions ----

Who anyone() {
  return [](const Identity&) { return true; };
}
Who authenticated() {
  return [](const Identity& identity) { return identity.kind != Identity::Kind::none; };
}
bool valid_spiffe_id(std::string_view id) noexcept {
  if (id.size() > spiffe_id_bytes_max || !id.starts_with(spiffe_scheme)) return false;
  id.remove_prefix(spiffe_scheme.size());
  const std::string_view domain = id.substr(0, id.find('/'));
  if (domain.empty() || domain.size() > trust_domain_bytes_max || !std::ranges::all_of(domain, in_trust_domain)) {
    return false;
  }
  id.remove_prefix(domain.size());
  while (!id.empty()) {
    id.remove_prefix(1);  // The slash.
    const std::string_view segment = id.substr(0, id.find('/'));
    if (segment.empty() || segment == "." || segment == ".." || !std::ranges::all_of(segment, in_segment)) return false;
    id.remove_prefix(segment.size());
  }
  return true;
}

Who spiffe(std::string id) {
  const bool prefix = id.ends_with("/*");
  if (!valid_spiffe_id(prefix ? std::string_view(id).substr(0, id.size() - 2) : std::string_view(id))) {
    throw std::invalid_argument(
        "hawser: " + id.substr(0, 256) +
        " is not a SPIFFE id: write spiffe://example.org/storage, or spiffe://example.org/* for all ids below");
  }
  if (prefix) id.pop_back();
  return [id = std::move(id), prefix](const Identity& identity) {
    // An interceptor may have set an id that nobody has checked.
    if (!valid_spiffe_id(identity.spiffe_id)) return false;
    if (prefix) return identity.spiffe_id.size() > id.size() && identity.spiffe_id.starts_with(id);
    return identity.spiffe_id == id;
  };
}
Who certificate_subject(std::string name, std::string issuer) {
  return subject_of(Identity::Kind::certificate, "certificate_subject", std::move(name), std::move(issuer));
}
Who token_subject(std::string name, std::string issuer) {
  return subject_of(Identity::Kind::token, "token_subject", std::move(name), std::move(issuer));
}
Who shared_key(std::string name) { return subject_of(Identity::Kind::shared_key, "shared_key", std::move(name), {}); }
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

  explicit State(AuthorizationOptions with) : options(with), audit(with.log_lines_per_second_max) {}

  AuthorizationOptions options;
  std::vector<Rule> rules = {};
  rpc::AuditLog audit;
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
    state_->audit.write(call, allowed ? rpc::AuditLog::Verdict::allowed : rpc::AuditLog::Verdict::refused);
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
  if (value.size() <= scheme.size() || !equal_without_case(value.substr(0, scheme.size()), scheme)) return {};
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
  explicit State(BearerTokensOptions with) : options(with), audit(with.log_lines_per_second_max) {}
  Task<Result<void>> refuse_call(IncomingCall& call, std::string why) {
    if (options.log_refused) audit.write(call, rpc::AuditLog::Verdict::refused, why);
    return refuse(ErrorCode::unauthenticated, std::move(why));
  }

  BearerTokensOptions options;
  std::vector<std::pair<SecretText, Identity>> tokens = {};
  rpc::AuditLog audit;
};

BearerTokens::BearerTokens(BearerTokensOptions options) : state_(std::make_shared<State>(options)) {}

BearerTokens& BearerTokens::add(std::string_view token, Identity identity) & {
  if (token.size() < token_bytes_min) {
    throw std::invalid_argument("hawser: a token of " + count_text(token.size(), "byte") +
                                " can be guessed: use at least 16 random bytes");
  }
  if (find(token) != nullptr) throw std::invalid_argument("hawser: this token was added before");
  identity.kind = Identity::Kind::token;
  state_->tokens.emplace_back(SecretText(token), std::move(identity));
  return *this;
}
BearerTokens&& BearerTokens::add(std::string_view token, Identity identity) && {
  add(token, std::move(identity));
  return std::move(*this);
}

const Identity* BearerTokens::find(std::string_view token) const noexcept {
  const Identity* found = nullptr;
  for (const auto& [secret, identity] : state_->tokens) {
    if (equal_in_constant_time(token, secret.view())) found = &identity;
  }
  return found;
}

Task<Result<void>> BearerTokens::operator()(IncomingCall& call, Next next) const {
  const std::string_view token = bearer_token(call);
  if (token.empty()) {
    if (!state_->options.required) return next();
    return state_->refuse_call(call, "the call has no token: send the metadata authorization: Bearer TOKEN");
  }
  const Identity* const identity = find(token);
  if (identity == nullptr) return state_->refuse_call(call, "the server does not know this token");
  call.set_identity(*identity);
  if (!state_->options.keep) call.remove_metadata("authorization");
  return next();
}

}  // namespace hawser
