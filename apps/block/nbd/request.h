#pragma once

#include <cstddef>
#include <cstdint>

#include "block/nbd/exports.h"
#include "block/nbd/handshake.h"
#include "hawser/bytes.h"

namespace hawser::block::nbd {

// A request of the client, without the data of a write.
struct NbdRequest {
  std::uint16_t flags = 0;
  std::uint16_t type = 0;
  std::uint64_t cookie = 0;
  std::uint64_t offset = 0;
  std::uint32_t length = 0;
};

// Why a request is refused: an error number of the protocol, and its text. `error` is 0 for a valid request.
struct Refusal {
  std::uint32_t error = 0;
  const char* text = "";
};

// Divides the bytes of a client into requests and the data of writes. It does no I/O and keeps no data: the caller
// takes them from its received bytes or receives them into memory of its own, and reports them by took_data().
class RequestReader {
 public:
  static constexpr std::size_t header_bytes = 28;

  enum class Event : std::uint8_t {
    more,     // More bytes are needed.
    request,  // `request` is complete. data_bytes() bytes of data follow it.
    invalid,  // Not a request: the connection ends, because the place of the next one is unknown.
  };
  struct Step {
    Event event = Event::more;
    std::size_t consumed = 0;
    NbdRequest request = {};
  };

  // Only called when data_bytes() is 0.
  Step next(Bytes in) noexcept;
  // Bytes of data of the last request that have not been taken.
  std::size_t data_bytes() const noexcept { return data_bytes_; }
  void took_data(std::size_t bytes) noexcept { data_bytes_ -= bytes; }

 private:
  std::size_t data_bytes_ = 0;
};

// Whether a connection may make the request to an export.
Refusal check(const NbdRequest& request, const ExportInfo& info, const Negotiated& negotiated) noexcept;

}  // namespace hawser::block::nbd
