#include "wire/message.h"

#include <string>

#include "base/decimal_text.h"

namespace hawser::wire {
namespace {

// The text is exact: it uses MiB or KiB only for multiples.
std::string bytes_text(std::size_t bytes) {
  constexpr std::size_t kib = 1024;
  constexpr std::size_t mib = kib * kib;
  if (bytes != 0 && bytes % mib == 0) return std::to_string(bytes / mib) + " MiB";
  if (bytes != 0 && bytes % kib == 0) return std::to_string(bytes / kib) + " KiB";
  return count_text(bytes, "byte");
}

}  // namespace

std::string too_long_text(std::size_t message_bytes, std::size_t bytes_max) {
  return "message of " + bytes_text(message_bytes) + " exceeds message_bytes_max (" + bytes_text(bytes_max) +
         "): send less, or raise message_bytes_max on both sides";
}

Error MessageLimit::exceeded_by(const MessagePrefix& message) const {
  return Error::of_connection(Initiator::peer, ErrorCode::protocol_error,
                              too_long_text(message.message_bytes(), bytes_max_));
}

}  // namespace hawser::wire
