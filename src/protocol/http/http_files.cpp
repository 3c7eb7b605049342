#include "hawser/http_files.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "base/try.h"
#include "os/folder.h"
#include "protocol/http/field_values.h"
#include "protocol/http/request_parser.h"
#include "protocol/http/response.h"
#include "protocol/http/route_responder.h"

namespace hawser {

struct HttpFiles::State {
  Folder folder;
  HttpFilesOptions options;
};

namespace {

constexpr std::uint64_t whole_bytes_max = 64 * 1024;
constexpr std::size_t part_bytes = 128 * 1024;
// Pause before a part is read again for which the offload pool had no room.
constexpr Duration retry_pause = std::chrono::milliseconds(5);

std::string_view type_of(std::string_view name) noexcept {
  static constexpr std::pair<std::string_view, std::string_view> types[] = {
      {".html", "text/html; charset=utf-8"},
      {".htm", "text/html; charset=utf-8"},
      {".css", "text/css; charset=utf-8"},
      {".js", "text/javascript; charset=utf-8"},
      {".mjs", "text/javascript; charset=utf-8"},
      {".json", "application/json"},
      {".xml", "application/xml"},
      {".txt", "text/plain; charset=utf-8"},
      {".md", "text/markdown; charset=utf-8"},
      {".csv", "text/csv; charset=utf-8"},
      {".svg", "image/svg+xml"},
      {".png", "image/png"},
      {".jpg", "image/jpeg"},
      {".jpeg", "image/jpeg"},
      {".gif", "image/gif"},
      {".webp", "image/webp"},
      {".avif", "image/avif"},
      {".ico", "image/x-icon"},
      {".woff", "font/woff"},
      {".woff2", "font/woff2"},
      {".wasm", "application/wasm"},
      {".pdf", "application/pdf"},
      {".mp4", "video/mp4"},
      {".webm", "video/webm"},
      {".mp3", "audio/mpeg"},
      {".gz", "application/gzip"},
      {".zip", "application/zip"},
      {".tar", "application/x-tar"},
  };
  const std::size_t dot = name.rfind('.');
  const std::string_view ending = dot == std::string_view::npos ? std::string_view() : name.substr(dot);
  const auto* const found =
      std::ranges::find_if(types, [&](const auto& one) { return equal_without_case(one.first, ending); });
  return found == std::end(types) ? "application/octet-stream" : found->second;
}

// "Sun, 06 Nov 1994 08:49:37 GMT" as seconds from 1970. Nothing for another form: the condition is ignored then.
std::optional<std::int64_t> date_of(std::string_view text) {
  constexpr std::size_t length = 29;
  if (text.size() != length || !text.ends_with(" GMT") || text[3] != ',') return std::nullopt;
  const auto number = [&](std::size_t at, std::size_t digits) {
    int value = -1;
    const char* const begin = text.data() + at;
    const auto [end, error] = std::from_chars(begin, begin + digits, value);
    return error == std::errc() && end == begin + digits ? value : -1;
  };
  constexpr std::string_view months = "JanFebMarAprMayJunJulAugSepOctNovDec";
  const std::size_t month = months.find(text.substr(8, 3));
  const std::array<int, 5> values = {number(5, 2), number(12, 4), number(17, 2), number(20, 2), number(23, 2)};
  if (month % 3 != 0 || std::ranges::any_of(values, [](int one) { return one < 0; })) return std::nullopt;
  const std::chrono::year_month_day day(std::chrono::year(values[1]),
                                        std::chrono::month(static_cast<unsigned>(month / 3 + 1)),
                                        std::chrono::day(static_cast<unsigned>(values[0])));
  if (!day.ok() || values[2] > 23 || values[3] > 59 || values[4] > 60) return std::nullopt;
  const std::int64_t days = std::chrono::sys_days(day).time_since_epoch().count();
  return ((days * 24 + values[2]) * 60 + values[3]) * 60 + values[4];
}

std::string tag_of(const OpenFile& file) {
  std::array<char, 80> text{};
  char* to = text.data();
  *to++ = '"';
  for (const std::uint64_t one : {file.inode, static_cast<std::uint64_t>(file.changed_s),
                                  static_cast<std::uint64_t>(file.changed_ns), file.bytes}) {
    to = std::to_chars(to, text.data() + text.size() - 2, one, 16).ptr;
    *to++ = '-';
  }
  to[-1] = '"';
  return {text.data(), to};
}

// True if the list of a field If-Match or If-None-Match has the tag. `weak`: W/"x" is equal to "x".
bool has_tag(std::string_view list, std::string_view tag, bool weak) noexcept {
  while (!list.empty()) {
    const std::size_t begin = list.find_first_not_of(" \t,");
    if (begin == std::string_view::npos) return false;
    list.remove_prefix(begin);
    if (list.front() == '*') return true;
    const bool is_weak = list.starts_with("W/");
    if (is_weak) list.remove_prefix(2);
    const std::size_t end = list.starts_with('"') ? list.find('"', 1) : std::string_view::npos;
    if (end == std::string_view::npos) return false;
    if (list.substr(0, end + 1) == tag && (weak || !is_weak)) return true;
    list.remove_prefix(end + 1);
  }
  return false;
}

// RFC 9110, 13.2.2: the status of a request whose conditions do not hold; 0 if they hold.
int status_of_conditions(const HttpRequest& request, const OpenFile& file, std::string_view tag) {
  const auto date = [&](std::string_view name) { return date_of(request.header(name).value_or(std::string_view())); };
  if (const auto tags = request.header("if-match")) {
    if (!has_tag(*tags, tag, false)) return 412;
  } else if (const auto since = date("if-unmodified-since"); since && file.changed_s > *since) {
    return 412;
  }
  if (const auto tags = request.header("if-none-match")) return has_tag(*tags, tag, true) ? 304 : 0;
  const auto since = date("if-modified-since");
  return since && file.changed_s <= *since ? 304 : 0;
}

struct ByteRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

// The range that the request asks for; nothing if it asks for the whole file. Several ranges are answered with the
// whole file, which RFC 9110, 14.2 allows. So is each range of an empty file: clients ask for a range without knowing
// the length. An empty range: none of it is in the file.
std::optional<ByteRange> range_of(const HttpRequest& request, const OpenFile& file, std::string_view tag) {
  const auto field = request.header("range");
  constexpr std::string_view unit = "bytes=";
  if (!field || file.bytes == 0 || request.method() != "GET" ||
      !equal_without_case(field->substr(0, unit.size()), unit))
    return {};
  if (const auto condition = request.header("if-range")) {
    // A date is exact only if the file cannot have changed twice in its second: the tag is what clients should send.
    const bool same = condition->starts_with('"') ? *condition == tag : date_of(*condition) == file.changed_s;
    if (!same) return {};
  }
  const std::string_view wanted = field->substr(unit.size());
  const std::size_t dash = wanted.find('-');
  if (dash == std::string_view::npos) return {};
  const auto number = [](std::string_view text, std::uint64_t& value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc::result_out_of_range) value = UINT64_MAX;
    return !text.empty() && error != std::errc::invalid_argument && end == text.data() + text.size();
  };
  std::uint64_t first = 0;
  std::uint64_t last = UINT64_MAX;
  const bool from = number(wanted.substr(0, dash), first);
  const bool to = number(wanted.substr(dash + 1), last);
  if ((dash != 0 && !from) || (dash + 1 != wanted.size() && !to) || (!from && !to)) return {};
  if (!from) return ByteRange{file.bytes - std::min(last, file.bytes), last == 0 ? 0 : file.bytes};
  if (last < first) return {};
  if (first >= file.bytes) return ByteRange{};
  return ByteRange{first, last >= file.bytes ? file.bytes : last + 1};
}

bool is_hidden(std::string_view name) noexcept { return name.starts_with('.') || name.contains("/."); }

// A file with the part of it that is sent.
struct RangePart {
  OpenFile file;
  ByteRange range;
};

// Sends a part of a file. The stream of the response owns it.
Task<void> send(std::shared_ptr<const RangePart> part, Loop& loop, HttpBodyWriter& writer) {
  // At most two parts wait for the client: the file can be read again when it takes more.
  protocol::http::RouteResponder::limit_queue(writer, part_bytes);
  for (std::uint64_t at = part->range.begin; at < part->range.end;) {
    const auto wanted = static_cast<std::size_t>(std::min<std::uint64_t>(part_bytes, part->range.end - at));
    Result<Result<std::string>> bytes = co_await loop.offload([part, at, wanted]() -> Result<std::string> {
      std::string block(wanted, '\0');
      TRY(const std::size_t got, part->file.read(at, std::as_writable_bytes(std::span(block))));
      block.resize(got);
      return block;
    });
    if (!bytes && bytes.error().code == ErrorCode::overloaded) {
      co_await loop.sleep(retry_pause);
      continue;
    }
    if (!bytes || !*bytes) throw std::runtime_error(bytes ? bytes->error().text : bytes.error().text);
    if ((*bytes)->empty()) throw std::runtime_error("the file became shorter while it was sent");
    at += (*bytes)->size();
    if (!co_await writer.write(std::move(**bytes))) co_return;  // The client has gone.
  }
}

HttpResponse refused(int status, std::string text) {
  HttpResponse response;
  response.status = status;
  response.body = std::move(text) + "\n";
  return response;
}

Result<std::string> read_whole(const RangePart& part) {
  std::string bytes(static_cast<std::size_t>(part.range.end - part.range.begin), '\0');
  TRY(const std::size_t got, part.file.read(part.range.begin, std::as_writable_bytes(std::span(bytes))));
  if (got != bytes.size()) return fail(ErrorCode::unavailable, "the file became shorter while it was read");
  return bytes;
}

}  // namespace

HttpFiles::HttpFiles(const std::string& folder, HttpFilesOptions options)
    : state_(std::make_shared<const State>(Folder(folder), std::move(options))) {}

Task<HttpResponse> HttpFiles::operator()(HttpRequest& request) const {
  std::optional<std::string> name = percent_decoded(request.rest());
  if (!name) co_return refused(400, "the path has a % without two hexadecimal digits");
  co_return co_await serve(request, std::move(*name));
}

Task<HttpResponse> HttpFiles::serve(HttpRequest& request, std::string name) const {
  const std::shared_ptr<const State> state = state_;
  if (request.method() != "GET" && request.method() != "HEAD") {
    HttpResponse response = refused(405, "files are read by GET and HEAD");
    response.headers.emplace_back("Allow", "GET, HEAD");
    co_return response;
  }
  if ((name.empty() || name.ends_with('/')) && !state->options.index.empty()) name += state->options.index;
  if (!state->options.hidden && is_hidden(name)) co_return refused(404, "there is no such file");
  Result<Result<OpenFile>> opened = co_await request.loop().offload([state, name] { return state->folder.open(name); });
  if (!opened) co_return refused(503, opened.error().text);
  if (!*opened) {
    const ErrorCode code = opened->error().code;
    const int status = code == ErrorCode::unknown_method ? 404 : code == ErrorCode::permission_denied ? 403 : 503;
    co_return refused(status, opened->error().text);
  }
  HttpResponse response;
  const OpenFile& file = **opened;
  const std::string tag = tag_of(file);
  response.headers = {{"ETag", tag},
                      {"Last-Modified", protocol::http::date_text(file.changed_s)},
                      {"Accept-Ranges", "bytes"},
                      {"X-Content-Type-Options", "nosniff"}};
  if (!state->options.cache_control.empty())
    response.headers.emplace_back("Cache-Control", state->options.cache_control);
  if (const int status = status_of_conditions(request, file, tag); status != 0) {
    response.status = status;
    if (status == 412) response.body = "the file is not the one that the condition names\n";
    co_return response;
  }
  ByteRange range{0, file.bytes};
  if (const std::optional<ByteRange> wanted = range_of(request, file, tag)) {
    const std::string all = "/" + std::to_string(file.bytes);
    if (wanted->begin >= wanted->end) {
      response.status = 416;
      response.headers.emplace_back("Content-Range", "bytes *" + all);
      response.body = "the range is not in the file\n";
      co_return response;
    }
    range = *wanted;
    response.status = 206;
    response.headers.emplace_back("Content-Range",
                                  "bytes " + std::to_string(range.begin) + "-" + std::to_string(range.end - 1) + all);
  }
  response.content_type = type_of(name);
  const auto part = std::make_shared<const RangePart>(std::move(**opened), range);
  if (range.end - range.begin <= whole_bytes_max) {
    Result<Result<std::string>> bytes = co_await request.loop().offload([part] { return read_whole(*part); });
    if (!bytes || !*bytes) co_return refused(503, bytes ? bytes->error().text : bytes.error().text);
    response.body = std::move(**bytes);
    co_return response;
  }
  response.stream_bytes = range.end - range.begin;
  response.stream = [part, &loop = request.loop()](HttpBodyWriter& writer) { return send(part, loop, writer); };
  co_return response;
}

}  // namespace hawser
