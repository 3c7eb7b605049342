#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "hawser/bytes.h"
#include "hawser/error.h"

namespace hawser::cli {

// A method of a server, and how its values are converted. An empty function: the method has no such value.
struct Method {
  using FromJson = std::function<Result<std::string>(std::string_view json)>;
  using ToJson = std::function<Result<std::string>(Bytes body, Bytes payload)>;

  std::string name;
  std::uint32_t id = 0;
  std::uint32_t signature = 0;
  bool streams_in = false;   // The caller sends a stream.
  bool streams_out = false;  // The handler sends a stream.
  FromJson arguments = {};   // Empty: no arguments beside the stream.
  FromJson item = {};
  ToJson result = {};
  ToJson answer_item = {};
  std::string text = {};  // The description for people. Has no control characters beside newlines.
};

// The id and the signature of a method with protobuf messages.
Method protobuf_method(std::string name, bool streams_in, bool streams_out);

}  // namespace hawser::cli
