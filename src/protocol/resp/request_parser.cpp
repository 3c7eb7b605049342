#include "protocol/resp/request_parser.h"

#include <algorithm>
#include <cstring>

#include "protocol/resp/number.h"

namespace hawser::protocol::resp {
namespace {

// Capacity for arguments that a parser keeps between requests.
constexpr std::size_t kept_arguments = 64;

bool is_space(char c) noexcept { return c == ' ' || (c >= '\t' && c <= '\r'); }

// True if another limit than `max` allows the number that a client has announced.
bool valid(std::int64_t announced, std::size_t max, std::size_t valid_max) noexcept {
  return announced > static_cast<std::int64_t>(max) && announced <= static_cast<std::int64_t>(valid_max);
}

int hex_digit(char c) noexcept {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

RespParser::Step RespParser::fail(std::string text) {
  error_text_ = std::move(text);
  return {Event::error, 0};
}

RespParser::Step RespParser::complete(std::string_view text) {
  if (arguments_.capacity() > kept_arguments && parts_.size() <= kept_arguments) {
    std::vector<std::string_view>().swap(arguments_);
  }
  arguments_.resize(parts_.size());
  for (std::size_t i = 0; i < parts_.size(); ++i) arguments_[i] = text.substr(parts_[i].offset, parts_[i].size);
  if (parts_.capacity() > kept_arguments) {
    std::vector<Part>().swap(parts_);
  } else {
    parts_.clear();
  }
  const std::size_t consumed = at_;
  at_ = searched_ = 0;
  arguments_left_ = 0;
  bulk_bytes_ = -1;
  waiting_ = false;
  return {Event::request, consumed};
}

RespParser::Step RespParser::next(Bytes bytes) {
  const std::string_view text = as_text(bytes);
  if (text.empty()) return {Event::more, 0};
  if (at_ == 0) {
    if (inline_arguments_.capacity() > kept_arguments) std::vector<std::string>().swap(inline_arguments_);
    if (text.front() != '*') return parse_inline(text);
    const std::size_t end = text.find('\r', std::max<std::size_t>(searched_, 1));
    if (end == std::string_view::npos || end + 1 == text.size()) {
      if (end == std::string_view::npos && text.size() > limits_.line_bytes_max) {
        return fail("too big mbulk count string");
      }
      searched_ = end == std::string_view::npos ? text.size() : end;
      waiting_ = true;
      return {Event::more, 0};
    }
    std::int64_t count = 0;
    if (!parse_number(text.substr(1, end - 1), count) || count > static_cast<std::int64_t>(limits_.arguments_max)) {
      return fail(valid(count, limits_.arguments_max, limits_.arguments_valid_max) ? "unauthenticated multibulk length"
                                                                                   : "invalid multibulk length");
    }
    at_ = end + 2;
    searched_ = at_;
    if (count <= 0) return complete(text);
    arguments_left_ = count;
  }
  while (arguments_left_ > 0) {
    if (bulk_bytes_ < 0) {
      const std::string_view rest = text.substr(std::min(at_, text.size()));
      if (rest.empty()) break;
      const std::size_t end = text.find('\r', std::max(searched_, at_));
      if (end == std::string_view::npos) {
        if (rest.size() > limits_.line_bytes_max) return fail("too big bulk count string");
        searched_ = text.size();
        break;
      }
      searched_ = end;
      if (end + 1 == text.size()) break;
      if (rest.front() != '$') return fail(std::string("expected '$', got '") + rest.front() + "'");
      std::int64_t size = 0;
      if (!parse_number(text.substr(at_ + 1, end - at_ - 1), size) || size < 0 ||
          size > static_cast<std::int64_t>(limits_.bulk_bytes_max)) {
        return fail(valid(size, limits_.bulk_bytes_max, limits_.bulk_bytes_valid_max) ? "unauthenticated bulk length"
                                                                                      : "invalid bulk length");
      }
      bulk_bytes_ = size;
      at_ = end + 2;
      if (at_ + static_cast<std::size_t>(size) > limits_.request_bytes_max) return fail("invalid bulk length");
    }
    const std::size_t size = static_cast<std::size_t>(bulk_bytes_);
    if (text.size() < at_ + size + 2) break;
    // Otherwise a wrong length would store a part of an argument, and execute the rest of it.
    if (text[at_ + size] != '\r' || text[at_ + size + 1] != '\n') return fail("an argument does not end with CRLF");
    parts_.push_back({static_cast<std::uint32_t>(at_), static_cast<std::uint32_t>(size)});
    at_ += size + 2;
    searched_ = at_;
    bulk_bytes_ = -1;
    --arguments_left_;
  }
  return arguments_left_ == 0 ? complete(text) : Step{Event::more, 0};
}

RespParser::Step RespParser::parse_inline(std::string_view text) {
  const std::size_t end = text.find('\n', searched_);
  if (end == std::string_view::npos) {
    if (text.size() > limits_.line_bytes_max) return fail("too big inline request");
    searched_ = text.size();
    waiting_ = true;
    return {Event::more, 0};
  }
  std::string_view line = text.substr(0, end);
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  // As in C: the line ends at its first zero byte.
  line = line.substr(0, line.find('\0'));
  if (!split_line(line)) return fail("unbalanced quotes in request");
  at_ = end + 1;
  const Step done = complete(text);
  arguments_.assign(inline_arguments_.begin(), inline_arguments_.end());
  return done;
}

// Splits an inline request into its words. False if quotes are not balanced.
bool RespParser::split_line(std::string_view line) {
  inline_arguments_.clear();
  std::size_t i = 0;
  const auto at = [&](std::size_t index) { return index < line.size() ? line[index] : '\0'; };
  for (;;) {
    while (i < line.size() && is_space(line[i])) ++i;
    if (i >= line.size()) return true;
    std::string word;
    for (bool done = false; !done;) {
      if (at(i) == '"') {
        for (++i; at(i) != '"'; ++i) {
          if (i >= line.size()) return false;
          if (line[i] != '\\' || i + 1 >= line.size()) {
            word += line[i];
          } else if (line[i + 1] == 'x' && hex_digit(at(i + 2)) >= 0 && hex_digit(at(i + 3)) >= 0) {
            word += static_cast<char>(hex_digit(line[i + 2]) * 16 + hex_digit(line[i + 3]));
            i += 3;
          } else {
            constexpr std::string_view from = "nrtba";
            constexpr std::string_view to = "\n\r\t\b\a";
            const std::size_t special = from.find(line[++i]);
            word += special == std::string_view::npos ? line[i] : to[special];
          }
        }
        ++i;
        if (i < line.size() && !is_space(line[i])) return false;
        done = true;
      } else if (at(i) == '\'') {
        for (++i; at(i) != '\''; ++i) {
          if (i >= line.size()) return false;
          if (line[i] == '\\' && at(i + 1) == '\'') ++i;
          word += line[i];
        }
        ++i;
        if (i < line.size() && !is_space(line[i])) return false;
        done = true;
      } else if (i >= line.size() || is_space(line[i])) {
        done = true;
      } else {
        word += line[i++];
      }
    }
    inline_arguments_.push_back(std::move(word));
  }
}

}  // namespace hawser::protocol::resp
