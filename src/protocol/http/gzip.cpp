#include "protocol/http/gzip.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "base/try.h"
#include "compress/deflate.h"
#include "hawser/detail/loop_access.h"
#include "protocol/http/field_values.h"
#include "protocol/http/gzip_stream.h"
#include "protocol/http/message_parser.h"
#include "protocol/http/route_responder.h"

namespace hawser::protocol::http {
namespace {

std::string_view trimmed(std::string_view text) noexcept {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// Removes the part before the next `separator` from the front of `text`, and returns it.
std::string_view take_part(std::string_view& text, char separator) noexcept {
  const std::size_t end = std::min(text.find(separator), text.size());
  const std::string_view part = trimmed(text.substr(0, end));
  text.remove_prefix(std::min(end + 1, text.size()));
  return part;
}

// True if the parameters have the weight 0: "q=0", "q=0.000".
bool weighs_nothing(std::string_view parameters) noexcept {
  while (!parameters.empty()) {
    const std::string_view parameter = take_part(parameters, ';');
    if (parameter.size() < 3 || (parameter[0] | 0x20) != 'q' || parameter[1] != '=') continue;
    return parameter.find_first_not_of("0.", 2) == std::string_view::npos;
  }
  return false;
}

bool has_field(const HttpResponse& response, std::string_view name, std::string_view part = {}) noexcept {
  return std::ranges::any_of(response.headers, [&](const auto& field) {
    return equal_without_case(field.first, name) && field.second.find(part) != std::string::npos;
  });
}

bool may_be_gzipped(const HttpOptions& options, const HttpResponse& response) noexcept {
  const bool whole =
      response.status >= 200 && response.status != 204 && response.status != 206 && response.status != 304;
  return whole && options.gzip && can_gzip() && (response.stream || response.body.size() >= options.gzip_bytes_min) &&
         is_compressible(response.content_type) && !has_field(response, "content-encoding") &&
         !has_field(response, "content-range") && !has_field(response, "cache-control", "no-transform");
}

// The fields of a response that is compressed.
void add_gzip_fields(HttpResponse& response) {
  response.headers.emplace_back("Content-Encoding", "gzip");
  // The bytes are others than those that a strong validator stands for.
  for (auto& [name, value] : response.headers) {
    if (equal_without_case(name, "etag") && value.starts_with('"')) value.insert(0, "W/");
  }
}

}  // namespace

bool accepts_gzip(std::string_view accept_encoding) noexcept {
  bool any = false;
  // A long list costs a client of HTTP/2 one byte, and is not read to its end.
  constexpr int codings_max = 32;
  for (int codings = 0; codings < codings_max && !accept_encoding.empty(); ++codings) {
    std::string_view parameters = take_part(accept_encoding, ',');
    const std::string_view name = take_part(parameters, ';');
    if (is_any_of(name, {"gzip", "x-gzip"})) return !weighs_nothing(parameters);
    if (name == "*") any = !weighs_nothing(parameters);
  }
  return any;
}

bool is_compressible(std::string_view content_type) noexcept {
  const std::string_view type = media_type(content_type);
  const auto ends = [&](std::string_view end) {
    return type.size() > end.size() && equal_without_case(type.substr(type.size() - end.size()), end);
  };
  return equal_without_case(type.substr(0, 5), "text/") || ends("+json") || ends("+xml") ||
         is_any_of(type, {"application/json", "application/javascript", "application/xml", "application/x-ndjson",
                          "application/wasm", "application/openmetrics-text"});
}

#ifdef HAWSER_HTTP_GZIP

bool can_gzip() noexcept { return true; }

std::optional<std::string> gzip(Bytes bytes) {
  compress::Deflater deflater({.format = compress::Format::gzip});
  if (!deflater.ready()) return std::nullopt;
  const Buffer packed = deflater.all(bytes);
  return packed.size() < bytes.size() ? std::optional<std::string>(packed.text()) : std::nullopt;
}

Result<Buffer> gunzip(Bytes compressed, std::size_t bytes_max) {
  constexpr std::size_t first_bytes_least = 256;
  detail::ReceiveCharge none;
  compress::GrowingOutput output(std::max(4 * compressed.size(), first_bytes_least), bytes_max, nullptr, none);
  compress::Unpacked unpacked = compress::inflate_all(compress::Format::gzip, compressed, std::move(output));
  switch (unpacked.problem) {
    case compress::Problem::none: return std::move(unpacked.data);
    case compress::Problem::no_memory: return fail(ErrorCode::overloaded, "no memory to decompress the body");
    case compress::Problem::too_large:
    case compress::Problem::malformed: break;
  }
  return fail(ErrorCode::invalid_argument, "the body is not one valid gzip member of the length that its end states");
}

#else

bool can_gzip() noexcept { return false; }
std::optional<std::string> gzip(Bytes) { return std::nullopt; }
Result<Buffer> gunzip(Bytes, std::size_t) { return fail(ErrorCode::internal, "built without zlib"); }

#endif

Task<void> gzip_response(const HttpOptions& options, Loop& loop, const void* connection, std::string_view accepted,
                         HttpResponse& response) {
  if (!may_be_gzipped(options, response)) co_return;
  response.headers.emplace_back("Vary", "Accept-Encoding");
  if (!accepts_gzip(accepted)) co_return;
  std::optional<std::string> packed;
  if (response.body.size() <= gzip_in_place_max) {
    packed = gzip(as_bytes(response.body));
  } else {
    // The thread may work on it longer than this coroutine lives.
    auto body = std::make_shared<std::string>(std::move(response.body));
    auto work = [body] { return gzip(as_bytes(*body)); };
    Result<std::optional<std::string>> done =
        co_await detail::LoopAccess::offload_for(loop, connection, std::stop_token(), std::move(work));
    response.body = std::move(*body);
    // A full pool is not a reason to fail: the body is sent as it is.
    if (done) packed = std::move(*done);
  }
  if (!packed) co_return;
  response.body = std::move(*packed);
  add_gzip_fields(response);
}

void gzip_parts(const HttpOptions& options, detail::ReceiveAccount* account, std::string_view accepted, bool head_only,
                HttpResponse& response) {
  if (response.stream_bytes || !may_be_gzipped(options, response)) return;
  response.headers.emplace_back("Vary", "Accept-Encoding");
  if (!accepts_gzip(accepted)) return;
  if (head_only) return add_gzip_fields(response);
  // Without memory for it, the body is sent as it is.
  std::shared_ptr<BodyDeflater> deflater = BodyDeflater::make(account);
  if (deflater == nullptr) return;
  add_gzip_fields(response);
  response.stream = [given = std::move(response.stream), deflater](HttpBodyWriter& writer) {
    return RouteResponder::stream_compressed(writer, given, *deflater);
  };
}

}  // namespace hawser::protocol::http
