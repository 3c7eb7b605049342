#include "protocol/resp/requests_ahead.h"

#include <cstring>

namespace hawser::protocol::resp {
namespace {

// Longer arguments are left to the parser.
constexpr std::size_t argument_bytes_max = std::size_t{1} << 24;

// Takes "TYPE", a number and CR LF from the begin of [at, end). The number has no leading zero, as RespParser
// requires, and is at most argument_bytes_max. Returns false if they are not there.
bool take_long_header(const char*& at, const char* end, char type, std::size_t& number) noexcept {
  if (end - at < 4 || at[0] != type) return false;
  auto digit = static_cast<unsigned>(static_cast<unsigned char>(at[1])) - '0';
  if (digit > 9) return false;
  number = digit;
  at += 2;
  if (digit != 0) {
    while (at != end && (digit = static_cast<unsigned>(static_cast<unsigned char>(*at)) - '0') <= 9) {
      number = number * 10 + digit;
      if (number > argument_bytes_max) return false;
      ++at;
    }
  }
  if (end - at < 2 || at[0] != '\r' || at[1] != '\n') return false;
  at += 2;
  return true;
}

// The same. Nearly all numbers have one or two digits.
inline bool take_header(const char*& at, const char* end, char type, std::size_t& number) noexcept {
  constexpr std::uint32_t line_end = '\r' | std::uint32_t{'\n'} << 8;
  if (end - at < 5) return take_long_header(at, end, type, number);
  std::uint32_t word = 0;
  std::memcpy(&word, at, sizeof word);
  const std::uint32_t digit = ((word >> 8) & 0xff) - '0';
  if ((word & 0xff) == static_cast<unsigned char>(type) && digit <= 9) {
    if (word >> 16 == line_end) {
      number = digit;
      at += 4;
      return true;
    }
    const std::uint32_t second = ((word >> 16) & 0xff) - '0';
    if (digit != 0 && second <= 9 && word >> 24 == '\r' && at[4] == '\n') {
      number = digit * 10 + second;
      at += 5;
      return true;
    }
  }
  return take_long_header(at, end, type, number);
}

// True if `at` begins with CR LF.
inline bool ends_line(const char* at) noexcept {
  std::uint16_t ends = 0;
  std::memcpy(&ends, at, sizeof ends);
  return ends == ('\r' | '\n' << 8);
}

}  // namespace

std::span<ReadyRequest> RequestsAhead::find(Bytes bytes, const RequestLimits& limits) noexcept {
  const char* at = reinterpret_cast<const char*>(bytes.data());
  const char* const end = at + bytes.size();
  std::string_view* argument = arguments_.data();
  const std::string_view* const arguments_end = argument + arguments_max;
  std::size_t found = 0;
  while (found < requests_max) {
    const char* const begin = at;
    std::string_view* const first = argument;
    std::size_t count = 0;
    if (!take_header(at, end, '*', count) || count == 0 || count > limits.arguments_max ||
        count > static_cast<std::size_t>(arguments_end - argument)) {
      break;
    }
    std::size_t taken = 0;
    for (; taken < count; ++taken) {
      std::size_t size = 0;
      if (!take_header(at, end, '$', size) || size > limits.bulk_bytes_max ||
          static_cast<std::size_t>(at - begin) + size > limits.request_bytes_max ||
          static_cast<std::size_t>(end - at) < size + 2 || !ends_line(at + size)) {
        break;
      }
      *argument++ = {at, size};
      at += size + 2;
    }
    if (taken != count) break;
    ReadyRequest& request = requests_[found++];
    request.first = first;
    request.count = count;
    request.bytes = static_cast<std::size_t>(at - begin);
    request.hashed = false;
  }
  return {requests_.data(), found};
}

}  // namespace hawser::protocol::resp
