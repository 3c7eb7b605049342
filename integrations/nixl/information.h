#pragma once

#include <hawser/error.h>
#include <hawser/registered_buffer.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// The bytes that agents exchange through NIXL's metadata. Little endian on every processor.
namespace hawser::nixl {

// The addresses of an agent. `id` is a random number, by which a client recognises the agent behind an address.
struct AgentInformation {
  std::uint64_t id = 0;
  std::string host;                    // Equal on two agents of one host.
  std::vector<std::string> addresses;  // "host:port", in the order in which they are tried.
  friend bool operator==(const AgentInformation&, const AgentInformation&) = default;
};

std::string encode(const AgentInformation& information);
// Error: `invalid_argument` for bytes that encode() did not make.
Result<AgentInformation> decode_information(std::string_view bytes);

std::string encode(const RemoteRegion& region);
// Error: as decode_information().
Result<RemoteRegion> decode_region(std::string_view bytes);

}  // namespace hawser::nixl
