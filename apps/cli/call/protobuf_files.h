#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/call/method.h"

namespace hawser::cli {

// Definitions of .proto files. In a build without protobuf, each function that makes one fails and says so.
class ProtobufFiles {
 public:
  struct Definitions;

  // `files` are FileDescriptorProtos, encoded, in any order. They may come from a hostile server.
  static Result<ProtobufFiles> of_encoded(const std::vector<std::string>& files);
  // Compiles a .proto file; imports are looked for beside it and in `folders`.
  static Result<ProtobufFiles> of_source(const std::string& path, const std::vector<std::string>& folders);

  // The method "package.Service/Method".
  Result<Method> method(std::string_view name) const;
  // The names of all methods.
  std::vector<std::string> methods() const;
  // Conversions of one message.
  Result<Method::FromJson> from_json(std::string_view message) const;
  Result<Method::ToJson> to_json(std::string_view message) const;
  // The definition of a service, method, message or enumeration, as in a .proto file.
  Result<std::string> text(std::string_view name) const;

 private:
  explicit ProtobufFiles(std::shared_ptr<const Definitions> definitions) : definitions_(std::move(definitions)) {}
  std::shared_ptr<const Definitions> definitions_;
};

}  // namespace hawser::cli
