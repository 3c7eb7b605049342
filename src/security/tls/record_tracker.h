#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "hawser/bytes.h"

namespace hawser::security::tls {

// Follows the records that OpenSSL reads (RFC 8446, 5.1), and the lengths of the messages that a client sends in plain
// text (RFC 8446, 4). OpenSSL allocates the memory for a message when its length has arrived.
class RecordTracker {
 public:
  // `hello_bytes_max`: limit for a ClientHello. 0: there is none.
  explicit RecordTracker(std::size_t hello_bytes_max) noexcept : hello_bytes_max_(hello_bytes_max) {}

  // `tls13`: this version has been negotiated, so that a ChangeCipherSpec has no meaning.
  void add(Bytes bytes, bool tls13) noexcept {
    while (!bytes.empty()) {
      if (body_left_ == 0) {
        header_[header_bytes_++] = bytes.front();
        bytes = bytes.subspan(1);
        if (header_bytes_ == header_.size()) begin_body(tls13);
        continue;
      }
      const Bytes part = bytes.first(std::min(bytes.size(), body_left_));
      if (watching_ && header_[0] == handshake) add_messages(part);
      body_left_ -= part.size();
      bytes = bytes.subspan(part.size());
    }
  }

  // A record has begun, and its end is missing.
  bool incomplete() const noexcept { return header_bytes_ != 0 || body_left_ != 0; }
  // The number of records that have begun since forget_records().
  std::size_t records() const noexcept { return records_; }
  void forget_records() noexcept { records_ = 0; }
  // The length of a ClientHello that exceeds the limit; 0: none does.
  std::size_t excess() const noexcept { return excess_; }

 private:
  static constexpr std::byte change_cipher_spec{20};
  static constexpr std::byte handshake{22};
  static constexpr std::byte application_data{23};
  static constexpr std::byte client_hello{1};

  static std::size_t number(Bytes bytes) noexcept {
    std::size_t value = 0;
    for (const std::byte one : bytes) value = value << 8 | std::to_integer<std::size_t>(one);
    return value;
  }
  void begin_body(bool tls13) noexcept {
    header_bytes_ = 0;
    ++records_;
    body_left_ = number(Bytes(header_).subspan(3));
    // Later messages are encrypted, and a ClientHello is not among them.
    if (header_[0] == application_data || (header_[0] == change_cipher_spec && !tls13)) watching_ = false;
  }
  void add_messages(Bytes bytes) noexcept {
    while (!bytes.empty()) {
      if (message_left_ != 0) {
        const std::size_t part = std::min(bytes.size(), message_left_);
        message_left_ -= part;
        bytes = bytes.subspan(part);
        continue;
      }
      message_[message_bytes_++] = bytes.front();
      bytes = bytes.subspan(1);
      if (message_bytes_ < message_.size()) continue;
      message_bytes_ = 0;
      message_left_ = number(Bytes(message_).subspan(1));
      if (message_[0] == client_hello && hello_bytes_max_ != 0 && message_left_ > hello_bytes_max_) {
        excess_ = message_left_;
      }
    }
  }

  const std::size_t hello_bytes_max_;
  std::array<std::byte, 5> header_{};
  std::size_t header_bytes_ = 0;  // The part of the next header that has arrived.
  std::size_t body_left_ = 0;
  std::array<std::byte, 4> message_{};
  std::size_t message_bytes_ = 0;
  std::size_t message_left_ = 0;
  std::size_t excess_ = 0;
  std::size_t records_ = 0;
  bool watching_ = true;
};

}  // namespace hawser::security::tls
