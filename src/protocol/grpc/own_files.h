#pragma once

#include <string>
#include <string_view>

namespace hawser::protocol::grpc {

// The files that define the services of this component, each as a google.protobuf.FileDescriptorProto, for reflection.
// grpc.health.v1.Health.
std::string health_file();
// ServerReflection of `version`, which is v1 or v1alpha.
std::string reflection_file(std::string_view version);

// The names under which those files import each other.
inline constexpr std::string_view health_file_name = "grpc/health/v1/health.proto";
std::string reflection_file_name(std::string_view version);

}  // namespace hawser::protocol::grpc
