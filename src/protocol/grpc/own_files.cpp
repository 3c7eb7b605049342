#include "protocol/grpc/own_files.h"

#include <initializer_list>

#include "protocol/grpc/proto_bytes.h"

// The numbers are those of the fields in descriptor.proto.
namespace hawser::protocol::grpc {
namespace {

enum class FieldType : unsigned { int32 = 5, string = 9, message = 11, bytes = 12, enumeration = 14 };

struct FieldText {
  std::string_view name;
  unsigned number;
  FieldType type = FieldType::string;
  std::string type_name = {};  // The message or the enumeration, with a dot in front.
  bool repeated = false;
  bool in_oneof = false;
};

struct MethodText {
  std::string_view name;
  std::string input;
  std::string output;
  bool client_streaming = false;
  bool server_streaming = false;
};

std::string named(std::string_view name) {
  std::string out;
  add_bytes_field(out, 1, name);
  return out;
}

// "host_name" is "hostName" in JSON.
std::string json_name(std::string_view name) {
  std::string out;
  bool upper = false;
  for (const char letter : name) {
    if (letter == '_') {
      upper = true;
      continue;
    }
    out += upper ? static_cast<char>(letter - 'a' + 'A') : letter;
    upper = false;
  }
  return out;
}

std::string field_text(const FieldText& field) {
  std::string out = named(field.name);
  add_number_field(out, 3, field.number);
  add_number_field(out, 4, field.repeated ? 3 : 1);
  add_number_field(out, 5, static_cast<unsigned>(field.type));
  if (!field.type_name.empty()) add_bytes_field(out, 6, field.type_name);
  if (field.in_oneof) add_number_field(out, 9, 0);
  add_bytes_field(out, 10, json_name(field.name));
  return out;
}

std::string message_text(std::string_view name, std::initializer_list<FieldText> fields, std::string_view oneof = {}) {
  std::string out = named(name);
  for (const FieldText& field : fields) add_bytes_field(out, 2, field_text(field));
  if (!oneof.empty()) add_bytes_field(out, 8, named(oneof));
  return out;
}

std::string service_text(std::string_view name, std::initializer_list<MethodText> methods) {
  std::string out = named(name);
  for (const MethodText& method : methods) {
    std::string one = named(method.name);
    add_bytes_field(one, 2, method.input);
    add_bytes_field(one, 3, method.output);
    if (method.client_streaming) add_number_field(one, 5, 1);
    if (method.server_streaming) add_number_field(one, 6, 1);
    add_bytes_field(out, 2, one);
  }
  return out;
}

std::string file_text(std::string_view name, std::string_view package, std::initializer_list<std::string> messages,
                      std::string_view service) {
  std::string out = named(name);
  add_bytes_field(out, 2, package);
  for (const std::string& message : messages) add_bytes_field(out, 4, message);
  add_bytes_field(out, 6, service);
  add_bytes_field(out, 12, "proto3");
  return out;
}

}  // namespace

std::string health_file() {
  const std::string scope = ".grpc.health.v1.";
  std::string status = named("ServingStatus");
  unsigned number = 0;
  for (const std::string_view name : {"UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"}) {
    std::string value = named(name);
    add_number_field(value, 2, number++);
    add_bytes_field(status, 2, value);
  }
  std::string reply = message_text("HealthCheckResponse", {{.name = "status",
                                                            .number = 1,
                                                            .type = FieldType::enumeration,
                                                            .type_name = scope + "HealthCheckResponse.ServingStatus"}});
  add_bytes_field(reply, 4, status);
  // A map is a repeated message with the option map_entry.
  std::string entry = message_text(
      "StatusesEntry",
      {{.name = "key", .number = 1},
       {.name = "value", .number = 2, .type = FieldType::message, .type_name = scope + "HealthCheckResponse"}});
  std::string map_entry;
  add_number_field(map_entry, 7, 1);
  add_bytes_field(entry, 7, map_entry);
  std::string list = message_text("HealthListResponse", {{.name = "statuses",
                                                          .number = 1,
                                                          .type = FieldType::message,
                                                          .type_name = scope + "HealthListResponse.StatusesEntry",
                                                          .repeated = true}});
  add_bytes_field(list, 3, entry);
  const std::string request = scope + "HealthCheckRequest";
  const std::string response = scope + "HealthCheckResponse";
  return file_text(
      health_file_name, "grpc.health.v1",
      {message_text("HealthCheckRequest", {{.name = "service", .number = 1}}), reply,
       message_text("HealthListRequest", {}), list},
      service_text("Health",
                   {{.name = "Check", .input = request, .output = response},
                    {.name = "Watch", .input = request, .output = response, .server_streaming = true},
                    {.name = "List", .input = scope + "HealthListRequest", .output = scope + "HealthListResponse"}}));
}

std::string reflection_file_name(std::string_view version) {
  return "grpc/reflection/" + std::string(version) + "/reflection.proto";
}

std::string reflection_file(std::string_view version) {
  const std::string package = "grpc.reflection." + std::string(version);
  const std::string scope = "." + package + ".";
  const auto text = [](std::string_view name, unsigned number) {
    return FieldText{.name = name, .number = number, .in_oneof = true};
  };
  const auto message = [&](std::string_view name, unsigned number, const std::string& type) {
    return FieldText{
        .name = name, .number = number, .type = FieldType::message, .type_name = scope + type, .in_oneof = true};
  };
  return file_text(
      reflection_file_name(version), package,
      {message_text("ServerReflectionRequest",
                    {{.name = "host", .number = 1},
                     text("file_by_filename", 3),
                     text("file_containing_symbol", 4),
                     message("file_containing_extension", 5, "ExtensionRequest"),
                     text("all_extension_numbers_of_type", 6),
                     text("list_services", 7)},
                    "message_request"),
       message_text("ExtensionRequest", {{.name = "containing_type", .number = 1},
                                         {.name = "extension_number", .number = 2, .type = FieldType::int32}}),
       message_text("ServerReflectionResponse",
                    {{.name = "valid_host", .number = 1},
                     {.name = "original_request",
                      .number = 2,
                      .type = FieldType::message,
                      .type_name = scope + "ServerReflectionRequest"},
                     message("file_descriptor_response", 4, "FileDescriptorResponse"),
                     message("all_extension_numbers_response", 5, "ExtensionNumberResponse"),
                     message("list_services_response", 6, "ListServiceResponse"),
                     message("error_response", 7, "ErrorResponse")},
                    "message_response"),
       message_text("FileDescriptorResponse",
                    {{.name = "file_descriptor_proto", .number = 1, .type = FieldType::bytes, .repeated = true}}),
       message_text("ExtensionNumberResponse",
                    {{.name = "base_type_name", .number = 1},
                     {.name = "extension_number", .number = 2, .type = FieldType::int32, .repeated = true}}),
       message_text("ListServiceResponse", {{.name = "service",
                                             .number = 1,
                                             .type = FieldType::message,
                                             .type_name = scope + "ServiceResponse",
                                             .repeated = true}}),
       message_text("ServiceResponse", {{.name = "name", .number = 1}}),
       message_text("ErrorResponse", {{.name = "error_code", .number = 1, .type = FieldType::int32},
                                      {.name = "error_message", .number = 2}})},
      service_text("ServerReflection", {{.name = "ServerReflectionInfo",
                                         .input = scope + "ServerReflectionRequest",
                                         .output = scope + "ServerReflectionResponse",
                                         .client_streaming = true,
                                         .server_streaming = true}}));
}

}  // namespace hawser::protocol::grpc
