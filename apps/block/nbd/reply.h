#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "block/nbd/exports.h"
#include "block/nbd/request.h"
#include "hawser/bytes.h"
#include "hawser/error.h"

namespace hawser::block::nbd {

// A reply, without the data of a read: these follow the head.
class ReplyHead {
 public:
  // The request has succeeded, and has no data.
  static ReplyHead success(const NbdRequest& request) noexcept;
  // All bytes of the read follow.
  static ReplyHead data(const NbdRequest& request, bool structured) noexcept;
  // `error` is not 0.
  static ReplyHead failure(const NbdRequest& request, bool structured, std::uint32_t error, std::string_view text);
  // Structured replies only. `extents` is not empty. Extents beyond the request are cut, and so are those beyond one if
  // the request demands one.
  static ReplyHead block_status(const NbdRequest& request, const std::vector<Extent>& extents);

  Bytes bytes() const noexcept {
    return long_.empty() ? Bytes(short_).first(size_) : hawser::as_bytes(std::string_view(long_));
  }

 private:
  std::array<std::byte, 32> short_;
  std::size_t size_ = 0;
  std::string long_;  // In place of `short_`, if it is not empty.
};

// The error number of the protocol for an error of a NbdDevice.
std::uint32_t status_of(const Error& error) noexcept;

}  // namespace hawser::block::nbd
