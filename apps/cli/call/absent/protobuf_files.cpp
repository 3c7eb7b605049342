#include "cli/call/protobuf_files.h"

namespace hawser::cli {

struct ProtobufFiles::Definitions {};

namespace {

std::unexpected<Error> absent() {
  return fail(ErrorCode::invalid_argument,
              "the method takes protobuf messages, and this build of hawser has no protobuf: install libprotobuf-dev "
              "and libprotoc-dev and build it again");
}

}  // namespace

Result<ProtobufFiles> ProtobufFiles::of_encoded(const std::vector<std::string>&) { return absent(); }
Result<ProtobufFiles> ProtobufFiles::of_source(const std::string&, const std::vector<std::string>&) { return absent(); }
Result<Method> ProtobufFiles::method(std::string_view) const { return absent(); }
std::vector<std::string> ProtobufFiles::methods() const { return {}; }
Result<Method::FromJson> ProtobufFiles::from_json(std::string_view) const { return absent(); }
Result<Method::ToJson> ProtobufFiles::to_json(std::string_view) const { return absent(); }
Result<std::string> ProtobufFiles::text(std::string_view) const { return absent(); }

}  // namespace hawser::cli
