#pragma once

#include <string>
#include <string_view>

#include "hawser/bytes.h"
#include "hawser/detail/json_transcoder.h"
#include "hawser/error.h"

namespace hawser::detail {

// States that the bodies of a method are protobuf messages, which this side can't convert to JSON.
class ProtobufBodies final : public JsonTranscoder {
 public:
  Result<Buffer> arguments_from_json(std::string_view) const override { return no_json(); }
  Result<std::string> result_to_json(Bytes, Bytes) const override { return no_json(); }
  std::string_view encoding() const noexcept override { return "proto"; }

 private:
  static std::unexpected<Error> no_json() {
    return fail(ErrorCode::invalid_argument, "this method takes protobuf messages and no JSON");
  }
};

}  // namespace hawser::detail
