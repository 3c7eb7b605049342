#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "hawser/bytes.h"
#include "tests/raw_peer.h"

// Packets of RoCE v2, for an attacker: parts can be replaced, and frame() makes lengths and checksums right again. Only
// reliable connections over IPv4 without options (InfiniBand specification, 9.2 to 9.4, A17).
namespace hawser::testing_tools {

enum class RoceCode : std::uint8_t {
  send_first = 0x00,
  send_only = 0x04,
  send_only_immediate = 0x05,
  write_first = 0x06,
  write_only = 0x0a,
  read_request = 0x0c,
  read_response_first = 0x0d,
  read_response_only = 0x10,
  acknowledge = 0x11,
};

constexpr std::uint32_t psn_mask = 0xffffff;
// The distance from `b` to `a` in numbers of 24 bits.
constexpr std::int32_t psn_distance(std::uint32_t a, std::uint32_t b) {
  const std::uint32_t difference = (a - b) & psn_mask;
  return static_cast<std::int32_t>(difference) - (difference > psn_mask / 2 ? 1 << 24 : 0);
}

class RocePacket {
 public:
  // The fields of a write or of a request to read.
  struct Access {
    std::uint64_t address = 0;
    std::uint32_t key = 0;
    std::uint32_t bytes = 0;
  };

  static std::optional<RocePacket> parse(Bytes frame) {
    constexpr std::size_t least = lower_bytes + base_bytes + 4;
    if (frame.size() < least || big(frame, 12, 2) != 0x0800 || frame[14] != std::byte{0x45}) return std::nullopt;
    if (frame[23] != std::byte{17} || big(frame, 36, 2) != 4791) return std::nullopt;
    const std::size_t end = 14 + static_cast<std::size_t>(big(frame, 16, 2));
    if (end > frame.size() || end < least) return std::nullopt;
    RocePacket packet;
    packet.lower_ = octets_of(frame.first(lower_bytes));
    packet.base_ = octets_of(frame.subspan(lower_bytes, base_bytes));
    const std::size_t extension = extension_bytes(packet.code());
    const std::size_t pad = (std::to_integer<std::size_t>(packet.base_[1]) >> 4) & 3;
    const std::size_t begin = lower_bytes + base_bytes + extension;
    if (end < begin + pad + 4) return std::nullopt;
    packet.extension = octets_of(frame.subspan(lower_bytes + base_bytes, extension));
    packet.payload = octets_of(frame.subspan(begin, end - begin - pad - 4));
    packet.intact_ = packet.frame() == octets_of(frame.first(end));
    return packet;
  }

  RoceCode code() const { return static_cast<RoceCode>(base_[0]); }
  std::uint32_t queue_pair() const { return static_cast<std::uint32_t>(big(base_, 5, 3)); }
  std::uint32_t psn() const { return static_cast<std::uint32_t>(big(base_, 9, 3)); }
  void set_code(RoceCode code) { base_[0] = static_cast<std::byte>(code); }
  void set_queue_pair(std::uint32_t number) { put(base_, 5, 3, number); }
  void set_psn(std::uint32_t psn) { put(base_, 9, 3, psn & psn_mask); }
  void request_acknowledge() { base_[8] |= std::byte{0x80}; }
  // Answers the peer's requests, whose numbers it has. Other packets have numbers of their sender.
  bool response() const { return code() >= RoceCode::read_response_first && code() <= RoceCode::acknowledge; }
  bool read_response() const { return response() && code() != RoceCode::acknowledge; }
  std::optional<Access> access() const {
    if (code() != RoceCode::write_first && code() != RoceCode::write_only && code() != RoceCode::read_request)
      return std::nullopt;
    return Access{big(extension, 0, 8), static_cast<std::uint32_t>(big(extension, 8, 4)),
                  static_cast<std::uint32_t>(big(extension, 12, 4))};
  }
  void set_access(RoceCode code, const Access& access) {
    set_code(code);
    extension.assign(16, std::byte{0});
    put(extension, 0, 8, access.address);
    put(extension, 8, 4, access.key);
    put(extension, 12, 4, access.bytes);
  }
  // Makes this an answer to all requests of the other side up to `psn`. `syndrome`: 31 for an acknowledgement without a
  // limit of credits, 0x60 to 0x64 for a refusal.
  void set_acknowledge(std::uint32_t psn, std::uint8_t syndrome) {
    set_code(RoceCode::acknowledge);
    set_psn(psn);
    base_[8] = std::byte{0};
    extension.assign(4, std::byte{0});
    extension[0] = std::byte{syndrome};
    payload.clear();
  }
  // True if this was parsed from a frame to which frame() would be equal: its checksums were right.
  bool intact() const { return intact_; }

  // The Ethernet frame.
  Octets frame() const {
    const std::size_t pad = (4 - payload.size() % 4) % 4;
    Octets out = lower_;
    out.insert(out.end(), base_.begin(), base_.end());
    out[lower_bytes + 1] = (out[lower_bytes + 1] & std::byte{0xcf}) | static_cast<std::byte>(pad << 4);
    out.insert(out.end(), extension.begin(), extension.end());
    out.insert(out.end(), payload.begin(), payload.end());
    out.insert(out.end(), pad, std::byte{0});
    const std::size_t length = out.size() - 14 + 4;
    put(out, 16, 2, length);
    put(out, 38, 2, length - 20);
    put(out, 40, 2, 0);  // No checksum of UDP.
    put(out, 24, 2, 0);
    std::uint64_t sum = 0;
    for (std::size_t at = 14; at < 34; at += 2) sum += big(out, at, 2);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    put(out, 24, 2, ~sum & 0xffff);
    const std::uint32_t check = invariant_checksum(out);
    for (int i = 0; i < 4; ++i) out.push_back(static_cast<std::byte>(check >> (8 * i)));
    return out;
  }

  Octets extension;  // The headers between the base header and the payload.
  Octets payload;

 private:
  static constexpr std::size_t lower_bytes = 14 + 20 + 8;  // Ethernet, IPv4, UDP.
  static constexpr std::size_t base_bytes = 12;

  static Octets octets_of(Bytes bytes) { return {bytes.begin(), bytes.end()}; }
  static std::uint64_t big(Bytes from, std::size_t at, std::size_t bytes) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < bytes; ++i) value = value << 8 | std::to_integer<std::uint64_t>(from[at + i]);
    return value;
  }
  static void put(Octets& to, std::size_t at, std::size_t bytes, std::uint64_t value) {
    for (std::size_t i = bytes; i-- > 0; value >>= 8) to[at + i] = static_cast<std::byte>(value);
  }
  static std::size_t extension_bytes(RoceCode code) {
    constexpr std::array<std::uint8_t, 18> bytes{0, 0, 0, 4, 0, 4, 16, 0, 0, 4, 16, 20, 16, 4, 0, 4, 4, 4};
    return static_cast<std::size_t>(code) < bytes.size() ? bytes[static_cast<std::size_t>(code)] : 0;
  }
  // CRC-32 over a frame without its checksum. Bits that routers change count as ones.
  static std::uint32_t invariant_checksum(Bytes frame) {
    static const std::array<std::uint32_t, 256> table = [] {
      std::array<std::uint32_t, 256> made{};
      for (std::uint32_t i = 0; i < 256; ++i) {
        made[i] = i;
        for (int bit = 0; bit < 8; ++bit) made[i] = made[i] >> 1 ^ ((made[i] & 1) != 0 ? 0xedb88320U : 0);
      }
      return made;
    }();
    std::uint32_t check = ~0U;
    const auto add = [&check](std::uint32_t one) { check = table[(check ^ one) & 255] ^ check >> 8; };
    for (int i = 0; i < 8; ++i) add(255);
    for (std::size_t at = 14; at < frame.size(); ++at) {
      // Type of service, time to live, checksum of IP, checksum of UDP, reserved byte of the base header.
      const bool variant = at == 15 || at == 22 || at == 24 || at == 25 || at == 40 || at == 41 || at == 46;
      add(variant ? 255 : std::to_integer<std::uint32_t>(frame[at]));
    }
    return ~check;
  }

  Octets lower_;
  Octets base_;
  bool intact_ = false;
};

}  // namespace hawser::testing_tools
