#include <algorithm>

#include "protocol/http/field_values.h"
#include "protocol/http/request_access.h"
#include "protocol/http/route_responder.h"
#include "protocol/http/routes.h"

namespace hawser {

HttpRequest::HttpRequest(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
HttpRequest::~HttpRequest() = default;

std::string_view HttpRequest::method() const noexcept { return state_->head->method; }
std::string_view HttpRequest::path() const noexcept { return state_->head->path; }
std::string_view HttpRequest::query() const noexcept { return state_->head->query; }
std::optional<std::string_view> HttpRequest::header(std::string_view name) const {
  std::optional<std::string_view> first;
  std::string joined;
  for (const protocol::http::Field& field : state_->head->fields) {
    if (!equal_without_case(field.name, name)) continue;
    if (!first) {
      first = field.value;
      continue;
    }
    const std::string_view separator = protocol::http::separator_of(name);
    if (separator.empty()) return first;
    if (joined.empty()) joined.append(*first);
    joined.append(separator).append(field.value);
  }
  if (joined.empty()) return first;
  // A handler may ask again, and what it received before stays valid.
  for (const std::string& kept : state_->joined) {
    if (kept == joined) return kept;
  }
  return state_->joined.emplace_back(std::move(joined));
}
std::vector<std::string_view> HttpRequest::header_values(std::string_view name) const {
  std::vector<std::string_view> values;
  for (const protocol::http::Field& field : state_->head->fields) {
    if (equal_without_case(field.name, name)) values.push_back(field.value);
  }
  return values;
}
std::vector<std::pair<std::string_view, std::string_view>> HttpRequest::headers() const {
  std::vector<std::pair<std::string_view, std::string_view>> all;
  for (const protocol::http::Field& field : state_->head->fields) all.emplace_back(field.name, field.value);
  return all;
}
MetadataView HttpRequest::metadata() const noexcept {
  return state_->changed ? MetadataView(state_->metadata.bytes()) : state_->call.request().metadata;
}
std::optional<std::string_view> HttpRequest::parameter(std::string_view name) const noexcept {
  return protocol::http::path_parameter(state_->pattern, state_->head->path, name);
}
std::string_view HttpRequest::rest() const noexcept {
  const std::string_view path = state_->head->path;
  return state_->pattern.ends_with('/') ? path.substr(std::min(state_->pattern.size(), path.size()))
                                        : std::string_view();
}
Bytes HttpRequest::body() const noexcept { return state_->call.request().body; }
std::string HttpRequest::peer() const { return state_->call.sink().peer(); }
const Identity& HttpRequest::identity() const noexcept {
  return state_->identity ? *state_->identity : state_->call.sink().identity();
}
Loop& HttpRequest::loop() const noexcept { return state_->call.sink().loop(); }
std::stop_token HttpRequest::token() { return state_->call.token(); }
std::stop_token HttpRequest::stopping() const noexcept { return state_->call.sink().stopping(); }
std::optional<Time> HttpRequest::deadline() const noexcept { return state_->call.request().deadline; }

void protocol::http::RequestAccess::apply(HttpRequest& request, const IncomingCall& info) {
  HttpRequest::State& state = *request.state_;
  if (&info.identity() != &state.call.sink().identity()) state.identity = info.identity();
  const Bytes metadata = info.metadata().bytes();
  if (metadata.data() == state.call.request().metadata.bytes().data() &&
      metadata.size() == state.call.request().metadata.bytes().size()) {
    return;
  }
  state.metadata = Buffer::copy_of(metadata);
  state.changed = true;
  state.head.replace_metadata(request.metadata());
}

Task<Result<void>> HttpBodyWriter::write(std::string_view bytes) {
  return protocol::http::RouteResponder::send_part(*this, bytes);
}
Task<Result<void>> HttpBodyWriter::write_kept(std::string bytes) {
  co_return co_await protocol::http::RouteResponder::send_part(*this, bytes);
}

Task<Result<std::string>> HttpBodyReader::read() { return responder_.read_part(*this); }

namespace {

int hex_digit(char c) noexcept {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

}  // namespace

std::optional<std::string> percent_decoded(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    if (text.size() - i < 3) return std::nullopt;
    const int high = hex_digit(text[i + 1]);
    const int low = hex_digit(text[i + 2]);
    if (high < 0 || low < 0) return std::nullopt;
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return out;
}

std::optional<std::string> query_value(std::string_view query, std::string_view name) {
  const auto decoded = [](std::string text) {
    std::ranges::replace(text, '+', ' ');
    return percent_decoded(text);
  };
  while (!query.empty()) {
    const std::string_view one = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(one.size() + 1, query.size()));
    const std::size_t equals = std::min(one.find('='), one.size());
    const auto given = decoded(std::string(one.substr(0, equals)));
    if (given && *given == name) return decoded(std::string(one.substr(std::min(equals + 1, one.size()))));
  }
  return std::nullopt;
}

}  // namespace hawser
