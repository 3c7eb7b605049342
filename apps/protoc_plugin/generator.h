#pragma once

#include <google/protobuf/compiler/code_generator.h>

#include <cstdint>
#include <string>

namespace hawser::protoc {

// Generates FILE.hawser.h with the services of FILE.proto: for each service a class with virtual coroutines, its Stub,
// and its registration. The messages are those of protoc's own C++ generator.
class Generator final : public google::protobuf::compiler::CodeGenerator {
 public:
  bool Generate(const google::protobuf::FileDescriptor* file, const std::string& parameter,
                google::protobuf::compiler::GeneratorContext* context, std::string* error) const override;
  std::uint64_t GetSupportedFeatures() const override { return FEATURE_PROTO3_OPTIONAL; }
};

}  // namespace hawser::protoc
