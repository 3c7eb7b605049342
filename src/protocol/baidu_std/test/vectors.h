#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "hawser/bytes.h"

// Bytes that were written by hand from the description of the protocol, without the library's encoder.
namespace hawser::protocol::baidu_std::vectors {

// Bytes from hexadecimal digits; spaces are ignored.
inline std::vector<std::byte> hex(std::string_view digits) {
  std::vector<std::byte> bytes;
  int high = -1;
  for (const char one : digits) {
    if (one == ' ' || one == '\n') continue;
    const int value = one <= '9' ? one - '0' : one - 'a' + 10;
    if (high < 0) {
      high = value;
    } else {
      bytes.push_back(static_cast<std::byte>(high * 16 + value));
      high = -1;
    }
  }
  return bytes;
}

inline std::string to_hex(Bytes bytes) {
  std::string digits;
  for (const std::byte one : bytes) {
    constexpr char hex_digits[] = "0123456789abcdef";
    digits += hex_digits[static_cast<unsigned>(one) >> 4];
    digits += hex_digits[static_cast<unsigned>(one) & 15];
  }
  return digits;
}

// A request of example.EchoService.Echo with correlation_id 7. The data is the message {1: "hello"}.
inline constexpr std::string_view request =
    "50525043 00000026 0000001f"
    "0a1b 0a13 6578616d706c652e4563686f53657276696365 1204 4563686f 2007"
    "0a05 68656c6c6f";

// Its reply as a server of bRPC writes it: response {error_code: 0}, compress_type 0, correlation_id 7, content_type 0,
// checksum_type 0, checksum_value "".
inline constexpr std::string_view reply =
    "50525043 00000015 0000000e"
    "1202 0800 1800 2007 5000 5800 6200"
    "0a05 68656c6c6f";

// The reply to an unknown method with correlation_id 300: error_code 1002, error_text "no".
inline constexpr std::string_view refusal =
    "50525043 00000014 00000014"
    "1207 08ea07 1202 6e6f 1800 20ac02 5000 5800 6200";

// A DATA frame for stream 5 from stream 9 with the data "ab".
inline constexpr std::string_view stream_data = "5354524d 00000008 00000006 0805 1009 1803 6162";

// A FEEDBACK frame for stream 5 from stream 9: 300 bytes have been consumed.
inline constexpr std::string_view stream_feedback = "5354524d 0000000b 0000000b 0805 1009 1804 2a03 08ac02";

}  // namespace hawser::protocol::baidu_std::vectors
