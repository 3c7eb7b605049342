#include "hawser/detail/describe.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/message.h>

#include <algorithm>
#include <string>

#include "hawser/protobuf.h"
#include "hawser/protobuf_service.h"

namespace hawser::pb {
namespace {

using google::protobuf::FileDescriptor;

std::string encode_file(const void* file) {
  google::protobuf::FileDescriptorProto proto;
  static_cast<const FileDescriptor*>(file)->CopyTo(&proto);
  return proto.SerializeAsString();
}

void add_file(detail::SchemaBuilder& out, const FileDescriptor& file) {
  if (!out.add_file(file.name(), &encode_file, &file)) return;
  for (int i = 0; i < file.dependency_count(); ++i) add_file(out, *file.dependency(i));
}

}  // namespace

void describe_message(detail::SchemaBuilder& out, const google::protobuf::Message& message) {
  out.set_message(std::string(message.GetDescriptor()->full_name()));
  add_file(out, *message.GetDescriptor()->file());
}

void describe_message(detail::SchemaBuilder& out, const google::protobuf::MessageLite& message) {
  out.set_message(std::string(message.GetTypeName()));
}

void describe_service(detail::SchemaBuilder& out, std::string_view method) {
  std::string name(method);
  std::ranges::replace(name, '/', '.');
  // The pool has the files that are linked into this program; a service of the lite runtime is not among them.
  const auto* const found = google::protobuf::DescriptorPool::generated_pool()->FindMethodByName(name);
  if (found != nullptr) add_file(out, *found->file());
}

}  // namespace hawser::pb
