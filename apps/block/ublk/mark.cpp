#include "block/ublk/mark.h"

namespace hawser::block::ublk {
namespace {

constexpr unsigned client_bits = 16;
constexpr unsigned medium_bits = 24;
constexpr unsigned volume_bits = 24;
constexpr unsigned volume_shift = client_bits + medium_bits;
static_assert(volume_shift + volume_bits == 64);

// FNV-1a, folded to `bits`.
std::uint64_t checksum_of(std::string_view text, unsigned bits) noexcept {
  std::uint64_t sum = 0xcbf29ce484222325;
  for (const char character : text) sum = (sum ^ static_cast<unsigned char>(character)) * 0x100000001b3;
  return (sum ^ (sum >> 32)) & ((std::uint64_t{1} << bits) - 1);
}

}  // namespace

std::uint64_t mark_of(std::string_view unique_name, std::string_view medium, std::string_view client_name) noexcept {
  return checksum_of(unique_name, volume_bits) << volume_shift | checksum_of(medium, medium_bits) << client_bits |
         checksum_of(client_name, client_bits);
}

UblkMarkPart difference_of(std::uint64_t mark, std::uint64_t other) noexcept {
  const std::uint64_t bits = mark ^ other;
  if (bits >> volume_shift != 0) return UblkMarkPart::volume;
  if (bits >> client_bits != 0) return UblkMarkPart::medium;
  return bits != 0 ? UblkMarkPart::client : UblkMarkPart::none;
}

}  // namespace hawser::block::ublk
