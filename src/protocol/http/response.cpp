#include "protocol/http/response.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdio>

#include "json/writer.h"
#include "protocol/http/request_parser.h"

namespace hawser::protocol::http {

std::string_view reason_phrase(unsigned status) noexcept {
  switch (status) {
    case 200: return "OK";
    case 201: return "Created";
    case 202: return "Accepted";
    case 203: return "Non-Authoritative Information";
    case 204: return "No Content";
    case 205: return "Reset Content";
    case 206: return "Partial Content";
    case 207: return "Multi-Status";
    case 208: return "Already Reported";
    case 226: return "IM Used";
    case 300: return "Multiple Choices";
    case 301: return "Moved Permanently";
    case 302: return "Found";
    case 303: return "See Other";
    case 304: return "Not Modified";
    case 305: return "Use Proxy";
    case 307: return "Temporary Redirect";
    case 308: return "Permanent Redirect";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 402: return "Payment Required";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 406: return "Not Acceptable";
    case 407: return "Proxy Authentication Required";
    case 408: return "Request Timeout";
    case 409: return "Conflict";
    case 410: return "Gone";
    case 411: return "Length Required";
    case 412: return "Precondition Failed";
    case 413: return "Content Too Large";
    case 414: return "URI Too Long";
    case 415: return "Unsupported Media Type";
    case 416: return "Range Not Satisfiable";
    case 417: return "Expectation Failed";
    case 421: return "Misdirected Request";
    case 422: return "Unprocessable Content";
    case 423: return "Locked";
    case 424: return "Failed Dependency";
    case 425: return "Too Early";
    case 426: return "Upgrade Required";
    case 428: return "Precondition Required";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 451: return "Unavailable For Legal Reasons";
    case 499: return "Client Closed Request";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 502: return "Bad Gateway";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    case 505: return "HTTP Version Not Supported";
    case 506: return "Variant Also Negotiates";
    case 507: return "Insufficient Storage";
    case 508: return "Loop Detected";
    case 511: return "Network Authentication Required";
    default: return "Unassigned";
  }
}

unsigned status_of(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::ok: return 200;
    case ErrorCode::invalid_argument:
    case ErrorCode::signature_mismatch:
    case ErrorCode::protocol_error: return 400;
    case ErrorCode::unauthenticated: return 401;
    case ErrorCode::permission_denied: return 403;
    case ErrorCode::unknown_method: return 404;
    case ErrorCode::stale_handle: return 410;
    case ErrorCode::limit_exceeded: return 413;
    case ErrorCode::application:
    case ErrorCode::internal: return 500;
    case ErrorCode::outcome_unknown: return 502;
    case ErrorCode::overloaded:
    case ErrorCode::not_sent:
    case ErrorCode::cancelled:
    case ErrorCode::unavailable: return 503;
    case ErrorCode::deadline_exceeded: return 504;
  }
  return 500;
}

Error error_for_client(const Error& error, bool late) {
  Error told = error;
  if (error.code != ErrorCode::cancelled) return told;
  told.code = late ? ErrorCode::deadline_exceeded : ErrorCode::unavailable;
  if (late) told.text = "the deadline of the request has passed";
  return told;
}

ErrorCode code_of(int status) noexcept {
  if (status < 400) return ErrorCode::ok;
  switch (status) {
    case 401: return ErrorCode::unauthenticated;
    case 403: return ErrorCode::permission_denied;
    case 408:
    case 504: return ErrorCode::deadline_exceeded;
    case 413: return ErrorCode::limit_exceeded;
    case 429: return ErrorCode::overloaded;
    case 499: return ErrorCode::cancelled;
    case 502:
    case 503: return ErrorCode::unavailable;
    default: return status < 500 ? ErrorCode::invalid_argument : ErrorCode::internal;
  }
}

std::int64_t unix_seconds_now() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string date_text(std::int64_t unix_seconds) {
  const std::chrono::sys_seconds time{std::chrono::seconds(unix_seconds)};
  const auto day = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(time - day);
  constexpr std::array<const char*, 7> days = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr std::array<const char*, 12> months = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                  "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  std::array<char, 40> text{};
  const int size = std::snprintf(text.data(), text.size(), "%s, %02u %s %04d %02d:%02d:%02d GMT",
                                 days[std::chrono::weekday(day).c_encoding()], static_cast<unsigned>(date.day()),
                                 months[static_cast<unsigned>(date.month()) - 1], static_cast<int>(date.year()),
                                 static_cast<int>(clock.hours().count()), static_cast<int>(clock.minutes().count()),
                                 static_cast<int>(clock.seconds().count()));
  return std::string(text.data(), std::min(static_cast<std::size_t>(std::max(size, 0)), text.size() - 1));
}

std::string error_json(const Error& error) {
  std::string json = "{\"code\":\"" + std::string(to_string(error.code)) + "\",";
  if (error.code == ErrorCode::application) {
    json += "\"application_code\":" + std::to_string(error.application_code) + ",";
  }
  json += "\"message\":";
  json::append_text(json, error.text);
  return json + "}\n";
}

void ResponseWriter::begin(unsigned status, unsigned minor, std::int64_t unix_seconds) {
  minor_ = minor;
  if (unix_seconds != date_seconds_) {
    date_ = "Date: " + date_text(unix_seconds) + "\r\n";
    date_seconds_ = unix_seconds;
  }
  if (status == 200) {
    text_ = "HTTP/1.1 200 OK\r\n";
  } else {
    text_ = "HTTP/1.1 ";
    text_ += std::to_string(status);
    text_ += ' ';
    text_ += reason_phrase(status);
    text_ += "\r\n";
  }
  text_ += date_;
}

void ResponseWriter::add(std::string_view name, std::string_view value) {
  const bool own = equal_without_case(name, "content-length") || equal_without_case(name, "transfer-encoding") ||
                   equal_without_case(name, "connection") || equal_without_case(name, "date");
  if (own || name.empty() || !std::ranges::all_of(name, is_token_character) ||
      !std::ranges::all_of(value, is_value_character)) {
    return;
  }
  text_ += name;
  text_ += ": ";
  text_ += value;
  text_ += "\r\n";
}

void ResponseWriter::add_type(std::string_view type) {
  if (type.empty() || !std::ranges::all_of(type, is_value_character)) return;
  text_ += "Content-Type: ";
  text_ += type;
  text_ += "\r\n";
}

void ResponseWriter::add_connection(bool keep_alive) {
  if (!keep_alive) {
    text_ += "Connection: close\r\n";
  } else if (minor_ == 0) {
    text_ += "Connection: keep-alive\r\n";
  }
  text_ += "\r\n";
}

void ResponseWriter::end(std::uint64_t content_length, bool keep_alive) {
  text_ += "Content-Length: ";
  text_ += std::to_string(content_length);
  text_ += "\r\n";
  add_connection(keep_alive);
}

void ResponseWriter::end_chunked(bool keep_alive) {
  text_ += "Transfer-Encoding: chunked\r\n";
  add_connection(keep_alive);
}

std::string chunk_head(std::size_t bytes) {
  std::array<char, 2 * sizeof bytes> digits;
  const std::to_chars_result written = std::to_chars(digits.data(), digits.data() + digits.size(), bytes, 16);
  return std::string(digits.data(), written.ptr) + "\r\n";
}

}  // namespace hawser::protocol::http
