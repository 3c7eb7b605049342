#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "hawser/bytes.h"
#include "protocol/resp/request_parser.h"

namespace hawser::protocol::resp {

// A request that has arrived completely. No member has a default, because a RequestsAhead is made for each receive.
struct ReadyRequest {
  const std::string_view* first;  // The arguments.
  std::size_t count;              // At least 1.
  std::size_t bytes;              // Length of the request.
  std::uint64_t key_hash;         // Hash of the second argument, if `hashed`. The application writes both.
  bool hashed;

  std::span<const std::string_view> arguments() const noexcept { return {first, count}; }
};

// Finds complete requests without keeping a state, for which RespParser exists: these are nearly all requests. One
// thread.
class RequestsAhead {
 public:
  static constexpr std::size_t requests_max = 16;
  // The limit of all requests together. Sixteen SET fit.
  static constexpr std::size_t arguments_max = 48;

  RequestsAhead() noexcept {}  // Leaves requests_ uninitialised.

  // Returns the requests at the front of `bytes`, which begins with a request, up to the first one that is incomplete,
  // invalid, empty, inline, or too long for this object: RespParser takes that one. The views are valid as long as
  // `bytes` are, and until the next call.
  std::span<ReadyRequest> find(Bytes bytes, const RequestLimits& limits) noexcept;

 private:
  std::array<ReadyRequest, requests_max> requests_;
  std::array<std::string_view, arguments_max> arguments_;
};

}  // namespace hawser::protocol::resp
