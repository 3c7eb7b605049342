#include "protocol/http/request_plan.h"

#include <utility>

#include "base/ascii_case.h"
#include "base/decimal_text.h"
#include "base/try.h"
#include "compress/deflate.h"
#include "hawser/detail/loop_access.h"
#include "protocol/http/field_values.h"
#include "protocol/http/gzip.h"
#include "protocol/http/response.h"
#include "rpc/port/health_state.h"
#include "wire/metadata.h"

namespace hawser::protocol::http {
namespace {

// Yields the characters of a path in turn, with %XX decoded once.
struct PathCharacter {
  char value = 0;
  bool encoded = false;
  bool malformed = false;
};
PathCharacter take_character(std::string_view& path) noexcept {
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    const char lower = static_cast<char>(c | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
  };
  const char first = path.front();
  if (first != '%') {
    path.remove_prefix(1);
    return {.value = first};
  }
  const int high = path.size() < 3 ? -1 : digit(path[1]);
  const int low = path.size() < 3 ? -1 : digit(path[2]);
  if (high < 0 || low < 0) return {.malformed = true};
  path.remove_prefix(3);
  return {.value = static_cast<char>(high * 16 + low), .encoded = true};
}

// The reason to refuse a path that begins with '/', or nothing. A handler that decodes the path, or that makes the name
// of a file of it, must find no segments there that the routes did not see. An encoded slash divides segments too.
std::string_view path_defect(std::string_view path, bool encoded_slashes) noexcept {
  path.remove_prefix(1);
  std::size_t bytes = 0;  // The length of the present segment, and the dots in it.
  std::size_t dots = 0;
  const auto is_dot_segment = [&] { return bytes == dots && (dots == 1 || dots == 2); };
  while (!path.empty()) {
    const PathCharacter c = take_character(path);
    if (c.malformed) return "the path has a % without two hexadecimal digits";
    if (c.value == 0) return "the path has a zero byte (%00)";
    const bool slash = c.value == '/' || (c.encoded && c.value == '\\');
    if (c.encoded && slash && !encoded_slashes) {
      return "the path has an encoded slash (%2F or %5C): send none, or serve it with HttpOptions::encoded_slashes";
    }
    if (!slash) {
      ++bytes;
      if (c.value == '.') ++dots;
      continue;
    }
    if (bytes == 0) return "the path has an empty segment (//): send a single slash";
    if (is_dot_segment()) break;
    bytes = dots = 0;
  }
  return is_dot_segment() ? "the path has a segment . or .., perhaps as %2e: send the path without such segments" : "";
}

}  // namespace

Error call_error(ErrorCode code, std::string text) { return Error::of_call(code, std::move(text)); }

void CallFields::add(std::string_view name, std::string_view value, const Loop& loop) {
  const bool with_unit = name.size() == 12 && equal_without_case(name, "grpc-timeout");
  if (with_unit || equal_without_case(name, "timeout-ms")) {
    const std::optional<Duration> timeout = timeout_of(value, with_unit);
    if (timeout) deadline = loop.after(*timeout);
    return;
  }
  if (equal_without_case(name, "accept-encoding")) accepts_gzip = accepts_gzip || protocol::http::accepts_gzip(value);
  if (!is_metadata(name)) return;
  const std::string key = in_lower_case(name);
  if (!metadata.empty() && join(key, value)) return;
  const std::size_t size = wire::metadata_entry_bytes(name, value);
  if (name.size() > wire::metadata_key_bytes_max || entries_ == wire::metadata_entries_max ||
      metadata.size() + size > wire::metadata_bytes_max) {
    return;
  }
  ++entries_;
  metadata.resize(metadata.size() + size);
  wire::write_metadata_entry(metadata.data() + metadata.size() - size, key, value);
}

std::optional<Error> unsendable_result(const codec::EncodedSize& size, std::size_t attachment_bytes) {
  if (size.too_large) return call_error(size.code, std::string("the result can't be encoded: ") + size.why_not);
  if (attachment_bytes == 0 || size.body + size.payload == 0) return std::nullopt;
  return call_error(ErrorCode::limit_exceeded, "a result and an attachment can't both be the body of a response");
}

std::optional<Error> unsendable_status(int status) {
  if (status >= 200 && status <= 599) return std::nullopt;
  return call_error(ErrorCode::internal,
                    "the handler returned the status " + std::to_string(status) + ": use 200 to 599");
}

bool CallFields::join(std::string_view key, std::string_view value) {
  std::string_view name;
  std::string_view before;
  wire::MetadataReader reader{Bytes(metadata)};
  do {
    if (!reader.next(name, before)) return false;
  } while (name != key);
  const std::string_view separator = separator_of(key);
  if (separator.empty()) return false;
  const std::size_t more = separator.size() + value.size();
  if (metadata.size() + more > wire::metadata_bytes_max) return true;  // As an entry for which there is no room.
  std::string joined;
  joined.reserve(before.size() + more);
  joined.append(before).append(separator).append(value);
  // The entry is replaced in its place.
  const auto entry_bytes = static_cast<std::ptrdiff_t>(wire::metadata_entry_bytes(name, before));
  const auto behind = metadata.begin() + (before.data() + before.size() - as_text(Bytes(metadata)).data());
  const std::vector<std::byte> rest(behind, metadata.end());
  metadata.erase(behind - entry_bytes, metadata.end());
  const std::size_t end = metadata.size();
  metadata.resize(end + wire::metadata_entry_bytes(key, joined));
  wire::write_metadata_entry(metadata.data() + end, key, joined);
  metadata.insert(metadata.end(), rest.begin(), rest.end());
  return true;
}

namespace {

RequestPlan plan_target(const Served& served, const rpc::Dispatcher& dispatcher, const RequestHead& head) {
  const auto refused = [](ErrorCode code, std::string text, unsigned status = 0, std::string allow = {}) {
    return RequestPlan{.kind = RequestPlan::Kind::refused,
                       .status = status != 0 ? status : status_of(code),
                       .error = call_error(code, std::move(text)),
                       .allow = std::move(allow)};
  };
  if (head.path.starts_with('/')) {
    const std::string_view defect = path_defect(head.path, served.options.encoded_slashes);
    if (!defect.empty()) return refused(ErrorCode::invalid_argument, std::string(defect), 400);
  }
  if (head.path == "*") return {.kind = RequestPlan::Kind::options};
  RouteTable::Found found = served.routes.find(head.method, head.path);
  if (found.route != nullptr) {
    return {.kind = RequestPlan::Kind::route,
            .method = &served.name_of(*found.route),
            .route = found.route,
            .pattern = found.pattern};
  }
  if (!found.allowed.empty()) {
    // A long method costs a client of HTTP/2 one byte.
    constexpr std::size_t shown_bytes_max = 32;
    const std::string shown(head.method.substr(0, shown_bytes_max));
    return refused(ErrorCode::invalid_argument, "this path does not serve the method " + shown, 405,
                   std::move(found.allowed));
  }
  if (served.options.health && head.path == "/health") {
    if (head.method == "GET" || head.method == "HEAD") {
      return {.kind = RequestPlan::Kind::health, .service = query_value(head.query, "service").value_or(std::string())};
    }
    return refused(ErrorCode::invalid_argument, "/health serves GET only", 405, "GET, HEAD");
  }
  const rpc::Dispatcher::Method* const method = head.path.size() < 2 ? nullptr : dispatcher.find(head.path.substr(1));
  std::shared_ptr<const detail::JsonTranscoder> json = method == nullptr ? nullptr : method->json;
  if (json == nullptr && method != nullptr && served.options.functions) json = served.functions.find(*method);
  if (json == nullptr) {
    return refused(ErrorCode::unknown_method,
                   method == nullptr ? "nothing is served at this path"
                                     : "the method of this path has no description by which JSON could be converted");
  }
  if (head.method != "POST") return refused(ErrorCode::invalid_argument, "a method is called by POST", 405, "POST");
  if (method->streams_in || method->streams_out) {
    return refused(ErrorCode::invalid_argument, "a method with streams is not served over HTTP", 501);
  }
  const std::string_view type = media_type(head.field("content-type").value_or(json_type));
  if (equal_without_case(type, json_type))
    return {.kind = RequestPlan::Kind::json, .method = method, .json = std::move(json)};
  const bool proto = is_any_of(
      type, {"application/octet-stream", "application/proto", "application/x-protobuf", "application/protobuf"});
  if (proto && json->encoding() == "proto") return {.kind = RequestPlan::Kind::bytes, .method = method};
  return refused(ErrorCode::invalid_argument, "send application/json or application/proto", 415);
}

}  // namespace

RequestPlan plan_request(const Served& served, const rpc::Dispatcher& dispatcher, const RequestHead& head) {
  RequestPlan plan = plan_target(served, dispatcher, head);
  if (plan.kind == RequestPlan::Kind::refused || plan.is_fixed() || plan.reads_parts()) return plan;
  std::size_t codings = 0;
  bool known = false;
  for (const Field& field : head.fields) {
    if (!equal_without_case(field.name, "content-encoding") || is_any_of(field.value, {"", "identity"})) continue;
    ++codings;
    known = is_any_of(field.value, {"gzip", "x-gzip"});
  }
  plan.gunzip = codings == 1 && known && served.options.gzip && can_gzip();
  // A route receives a body of another coding as it is.
  if (codings == 0 || plan.gunzip || plan.kind == RequestPlan::Kind::route) return plan;
  return {.kind = RequestPlan::Kind::refused,
          .status = 415,
          .error = call_error(ErrorCode::invalid_argument,
                              "the body has a Content-Encoding that this server does not decode: send gzip, if the "
                              "server has it (HttpOptions::gzip), or none")};
}

std::optional<rpc::BodyForm> form_of(const RequestPlan& plan, Bytes body, std::size_t bytes_max) {
  rpc::BodyForm form{.json = plan.kind == RequestPlan::Kind::json ? plan.json : nullptr};
  if (!plan.gunzip || body.empty()) return form;
  form.unpack = gunzip;
  form.unpacked_max = compress::announced_bytes(body);
  return form.unpacked_max > bytes_max ? std::nullopt : std::optional(std::move(form));
}

Error too_long_body(std::uint64_t bytes, std::size_t bytes_max) {
  return call_error(ErrorCode::limit_exceeded, "a body of " + count_text(bytes, "byte") +
                                                   " or more exceeds message_bytes_max (" +
                                                   count_text(bytes_max, "byte") + "): send less, or raise the limit");
}

Error unpacked_too_long(std::size_t bytes_max) {
  return call_error(ErrorCode::limit_exceeded, "the decompressed body exceeds message_bytes_max (" +
                                                   count_text(bytes_max, "byte") + "): send less, or raise the limit");
}

FixedAnswer fixed_answer(const rpc::PortHost& host, const RequestPlan& plan) {
  if (plan.kind == RequestPlan::Kind::options) return {};
  switch (host.health.status(plan.service)) {
    case HealthStatus::serving: return {200, "OK\n"};
    case HealthStatus::unknown: return {404, "unknown service\n"};
    case HealthStatus::not_serving: break;
  }
  return {503, host.health.stopping() ? "stopping\n" : "not serving\n"};
}

std::size_t gzip_bytes_min(const HttpOptions& options, const CallFields& fields) noexcept {
  return options.gzip && can_gzip() && fields.accepts_gzip ? options.gzip_bytes_min : SIZE_MAX;
}

Result<JsonText> pack_json(Result<std::string> text, std::size_t bytes_min) {
  TRY(text);
  if (text->size() >= bytes_min) {
    if (std::optional<std::string> packed = gzip(as_bytes(*text))) return JsonText{std::move(*packed), true};
  }
  return JsonText{std::move(*text)};
}

Task<Result<JsonText>> offload_result(Loop& loop, const void* connection, std::stop_token token, Buffer body,
                                      std::vector<std::byte> payload,
                                      std::shared_ptr<const detail::JsonTranscoder> transcoder, std::size_t bytes_min,
                                      rpc::WorkCharge::Use used) {
  auto work = [kept = std::move(body), rest = std::move(payload), converter = std::move(transcoder), bytes_min,
               use = std::move(used)]() mutable {
    const rpc::WorkCharge::Use until_end = std::move(use);
    until_end.begin();
    return pack_json(converter->result_to_json(kept.bytes(), rest), bytes_min);
  };
  Result<Result<JsonText>> converted =
      co_await detail::LoopAccess::offload_for(loop, connection, std::move(token), std::move(work));
  if (!converted) {
    // The handler has run, so no error may state that nothing was executed.
    co_return fail(ErrorCode::internal, "the result was not converted to JSON: " + converted.error().text);
  }
  co_return std::move(*converted);
}

}  // namespace hawser::protocol::http
