#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <concepts>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "hawser/detail/json_transcoder.h"
#include "hawser/detail/unimplemented.h"
#include "hawser/hawser.h"
#include "hawser/protobuf.h"

// For the code that protoc-gen-hawser generates. docs/services.md describes services.
namespace hawser::pb {

template <class Given, class T>
concept SameAs = std::same_as<std::remove_cvref_t<Given>, T>;

// Converts between JSON and the messages of a method by the rules of ProtoJSON: lowerCamelCase names, 64-bit integers
// and bytes as strings, fields without a value left out. Unknown names are refused. Values are nested at most 100 deep
// in arguments and 64 deep in results. Null stands for a method whose requests or replies form a stream: it has no
// arguments, or no result.
std::shared_ptr<const detail::JsonTranscoder> json_transcoder(const google::protobuf::Descriptor* request,
                                                              const google::protobuf::Descriptor* reply);

// Null for messages of the lite runtime, which JSON cannot describe.
template <IsMessage T>
const google::protobuf::Descriptor* descriptor_of() {
  if constexpr (std::derived_from<T, google::protobuf::Message>) {
    return T::descriptor();
  } else {
    return nullptr;
  }
}

// Adds the file that defines the service of a method, named "package.Service/Method".
void describe_service(detail::SchemaBuilder& out, std::string_view method);
template <auto method>
void describe_method(detail::SchemaBuilder& out) {
  detail::describe_method<method>(out);
  describe_service(out, detail::MethodFacts<method>::name);
}

// Registers a method of a service.
template <auto method, class Service>
void add_method(Server& server, Service* service, HandlerOptions options) {
  using Facts = detail::MethodFacts<method>;
  constexpr bool streams_in = !std::is_same_v<typename Facts::incoming, detail::NoStream>;
  constexpr bool streams_out = !std::is_same_v<typename Facts::outgoing, detail::NoStream>;
  const google::protobuf::Descriptor* request = nullptr;
  const google::protobuf::Descriptor* reply = nullptr;
  if constexpr (!streams_in) request = descriptor_of<std::tuple_element_t<0, typename Facts::args>>();
  if constexpr (!streams_out) reply = descriptor_of<typename Facts::result>();
  server.add_method({.id = Facts::id,
                     .signature = Facts::signature,
                     .name = std::string(Facts::name),
                     .handler = std::make_unique<detail::FunctionHandler<method, Service>>(service, options),
                     .streams_in = streams_in,
                     .streams_out = streams_out,
                     .json = json_transcoder(request, reply),
                     .describe = &describe_method<method>});
}

template <auto method, class Via, class... Given>
auto call(Via& via, Given&&... arguments) {
  return via.template call<method>(std::forward<Given>(arguments)...);
}

// Begins a call with streams.
template <auto method, class Via, class... Given>
auto open(Via& via, Given&&... arguments) {
  return via.template open<method>(std::forward<Given>(arguments)...);
}

}  // namespace hawser::pb
