#include "protocol/http/stream_request.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/decimal_text.h"
#include "protocol/http/message_parser.h"

namespace hawser::protocol::http {

StreamRequest::Refusal StreamRequest::read(std::size_t fields_max, CallFields& fields, const Loop& loop) {
  if (head_.too_large) {
    return {431, "the header of the request exceeds the limit that SETTINGS announced: send less in it"};
  }
  if (head_.fields.size() > fields_max) {
    return {431, "a header of " + count_text(head_.fields.size(), "field") + " exceeds header_fields_max (" +
                     std::to_string(fields_max) + "): send fewer"};
  }
  if (!is_token(head_.method)) return {400, "the method is not a token"};
  const bool all = head_.target == "*" && head_.method == "OPTIONS";
  if ((!all && !head_.target.starts_with('/')) || head_.target.find('#') != std::string_view::npos ||
      !is_target(head_.target)) {
    return {400, "the path does not begin with /, has a # or a control character, or is not UTF-8"};
  }
  bytes_ = head_.method.size() + head_.target.size() + head_.authority.size();
  Refusal why;
  for (const rpc::HttpField& field : head_.fields) {
    bytes_ += field.name.size() + field.value.size() + 2;
    fields.add(field.name, field.value, loop);
    if (!read_field(field, why)) return why;
  }
  const std::string_view sent_host = host_.value_or(std::string_view());
  if ((sent_host.empty() && head_.authority.empty()) || !is_host_field(head_.authority) || !is_host_field(sent_host)) {
    return {400, "neither host nor :authority, or one with a character that no host has"};
  }
  return {};
}

bool StreamRequest::read_field(const rpc::HttpField& field, Refusal& why) {
  if (field.name == "host") {
    // A proxy that reads the other one would send the request elsewhere.
    if (host_ || (!head_.authority.empty() && !equal_without_case(field.value, head_.authority))) {
      why = {400, "host twice, or another one than :authority"};
      return false;
    }
    host_ = field.value;
  } else if (field.name == "content-length") {
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(field.value.data(), field.value.data() + field.value.size(), number);
    const bool whole = error == std::errc() && end == field.value.data() + field.value.size();
    if (!whole || (length_ && *length_ != number)) {
      why = {400, "content-length is not a number, or comes twice with different values"};
      return false;
    }
    length_ = number;
  } else if (field.name == "expect") {
    if (!equal_without_case(field.value, "100-continue")) {
      why = {417, "an expectation other than 100-continue"};
      return false;
    }
    expects_ = true;
  }
  return true;
}

void StreamRequest::set_target(RequestHead& head, std::string_view target) const {
  head.target = target;
  const std::size_t question = target.find('?');
  head.path = target.substr(0, question);
  if (question != std::string_view::npos) head.query = target.substr(question + 1);
}

RequestHead StreamRequest::brief() const {
  RequestHead head;
  head.method = head_.method;
  set_target(head, head_.target);
  for (const rpc::HttpField& field : head_.fields) {
    if (field.name == "content-type" || field.name == "content-encoding")
      head.fields.push_back({field.name, field.value});
  }
  return head;
}

KeptHead StreamRequest::keep(bool gunzip) const {
  Buffer memory = Buffer::allocate(bytes_);
  char* to = reinterpret_cast<char*>(memory.mutable_data());
  const auto copy = [&](std::string_view text) {
    std::memcpy(to, text.data(), text.size());
    to += text.size();
    return std::string_view(to - text.size(), text.size());
  };
  RequestHead head;
  head.method = copy(head_.method);
  set_target(head, copy(head_.target));
  if (!host_ && !head_.authority.empty()) head.fields.push_back({"host", copy(head_.authority)});
  // HTTP/2 may divide the field; handlers see one (RFC 9113, 8.2.3).
  const char* const cookies = to;
  bool has_cookies = false;
  for (const rpc::HttpField& field : head_.fields) {
    if (field.name != "cookie") continue;
    if (to != cookies) copy("; ");
    copy(field.value);
    has_cookies = true;
  }
  if (has_cookies) {
    head.fields.push_back({"cookie", std::string_view(cookies, static_cast<std::size_t>(to - cookies))});
  }
  for (const rpc::HttpField& field : head_.fields) {
    if (field.name == "cookie" || (gunzip && (field.name == "content-encoding" || field.name == "content-length")))
      continue;
    const std::string_view name = copy(field.name);
    head.fields.push_back({name, copy(field.value)});
  }
  head.content_length = content_length();
  head.has_content_length = length_.has_value();
  return KeptHead(std::move(memory), std::move(head));
}

}  // namespace hawser::protocol::http
