#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "hawser/detail/describe.h"
#include "hawser/detail/reply_sink.h"

namespace hawser::detail {

class JsonTranscoder;

// A method of a server with its handler. Clients of the library's own protocol name it by `id` and `signature`, other
// protocols by `name`, such as "package.Service/Method".
struct ServedMethod {
  std::uint32_t id = 0;
  std::uint32_t signature = 0;
  std::string name;
  std::unique_ptr<Handler> handler;
  bool streams_in = false;                          // The caller sends a stream.
  bool streams_out = false;                         // The handler sends a stream.
  std::shared_ptr<const JsonTranscoder> json = {};  // Null: only the library's own protocol can call the method.
  std::uint32_t index = 0;                          // Position in the order of registration; the server sets it.
  DescribeType describe = nullptr;                  // Describes the types of the method. Null: they are not known.
};

}  // namespace hawser::detail
