#pragma once

#include <google/protobuf/descriptor.h>

#include <string>
#include <vector>

namespace hawser::protoc {

// The C++ name of a message class, such as "::demo::Order".
std::string message_class(const google::protobuf::Descriptor& message);
// The namespace of a package without leading "::", such as "demo::shop"; empty without a package.
std::string namespace_of(const google::protobuf::FileDescriptor& file);

// The C++ names of a service. A name that C++ or the generated class uses itself gets a "_" at its end.
struct ServiceNames {
  std::string service;
  std::vector<std::string> methods;  // In the order of the descriptor.
  std::string error;                 // Not empty: the service cannot be generated.
};
ServiceNames names_of(const google::protobuf::ServiceDescriptor& service);

}  // namespace hawser::protoc
