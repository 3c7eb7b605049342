#pragma once

#include <cstdint>
#include <string_view>

namespace hawser::cluster {

// XXH64, with which xDS and gRPC place endpoints and keys (the specification of xxHash, version 0.1.1).
std::uint64_t xxh64(std::string_view bytes, std::uint64_t seed = 0) noexcept;

}  // namespace hawser::cluster
