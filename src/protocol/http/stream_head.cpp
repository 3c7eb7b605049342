#include "protocol/http/stream_head.h"

#include <algorithm>

#include "base/ascii_case.h"
#include "protocol/http/field_values.h"
#include "protocol/http/message_parser.h"
#include "protocol/http/response.h"

namespace hawser::protocol::http {

void StreamHead::begin(std::int64_t unix_seconds) {
  text_.clear();
  sizes_.clear();
  if (unix_seconds != date_seconds_) {
    date_ = date_text(unix_seconds);
    date_seconds_ = unix_seconds;
  }
  append("date", date_);
}

void StreamHead::append(std::string_view name, std::string_view value) {
  const std::size_t begin = text_.size();
  text_ += name;
  for (char& c : std::span(text_).subspan(begin)) c = ascii_lower(c);
  text_ += value;
  sizes_.emplace_back(name.size(), value.size());
}

void StreamHead::add(std::string_view name, std::string_view value) {
  const bool own = is_any_of(name, {"content-length", "date", "connection", "keep-alive", "proxy-connection",
                                    "transfer-encoding", "upgrade", "te"});
  if (own || !is_token(name) || !std::ranges::all_of(value, is_value_character)) return;
  // HTTP/2 refuses values with space at an end.
  while (!value.empty() && (value.front() == ' ' || value.front() == '\t')) value.remove_prefix(1);
  while (!value.empty() && (value.back() == ' ' || value.back() == '\t')) value.remove_suffix(1);
  append(name, value);
}

void StreamHead::add_type(std::string_view type) {
  if (!type.empty()) add("content-type", type);
}

void StreamHead::add_length(std::uint64_t bytes) { append("content-length", std::to_string(bytes)); }

std::span<const rpc::HttpField> StreamHead::fields() {
  fields_.clear();
  std::string_view rest = text_;
  for (const auto& [name, value] : sizes_) {
    fields_.push_back({rest.substr(0, name), rest.substr(name, value)});
    rest.remove_prefix(name + value);
  }
  return fields_;
}

}  // namespace hawser::protocol::http
