#include "cli/call/protobuf_files.h"

#include <google/protobuf/compiler/importer.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/descriptor_database.h>

#include <algorithm>
#include <filesystem>
#include <mutex>

#include "base/try.h"
#include "hawser/protobuf_service.h"
#include "protocol/http/json/value_types.h"

namespace hawser::cli {

namespace proto = google::protobuf;

// Collects the first defects that the pool or the compiler reports.
class DefinitionDefects final : public proto::DescriptorPool::ErrorCollector,
                                public proto::compiler::MultiFileErrorCollector {
 public:
  // libprotobuf to 21 calls AddError(), and later ones RecordError(): one of them overrides.
  void AddError(const std::string& file, const std::string& element, const proto::Message* of, ErrorLocation at,
                const std::string& message) {
    RecordError(file, element, of, at, message);
  }
  void RecordError(std::string_view file, std::string_view element, const proto::Message*, ErrorLocation,
                   std::string_view message) {
    add(std::string(file).append(": ").append(element).append(": ").append(message));
  }
  void AddError(const std::string& file, int line, int column, const std::string& message) {
    RecordError(file, line, column, message);
  }
  void RecordError(std::string_view file, int line, int column, std::string_view message) {
    add(std::string(file) + ":" + std::to_string(line + 1) + ":" + std::to_string(column + 1) + ": " +
        std::string(message));
  }
  std::string text() const { return text_.empty() ? "the definitions are invalid" : text_; }

 private:
  void add(const std::string& defect) {
    if (text_.size() < 2000) text_ += (text_.empty() ? "" : "; ") + protocol::http::printable(defect);
  }
  std::string text_;
};

namespace {

constexpr std::size_t files_max = 1000;

// Methods named as in a URL: package.Service/Method.
std::string dotted(std::string_view name) {
  std::string out(name);
  std::ranges::replace(out, '/', '.');
  return out;
}

// The text of definitions may have comments and options with any bytes.
std::string clean(const std::string& text) {
  std::string out;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    out += protocol::http::printable(std::string_view(text).substr(begin, end - begin));
    if (end != text.size()) out += '\n';
    begin = end + 1;
  }
  return out;
}

}  // namespace

struct ProtobufFiles::Definitions {
  DefinitionDefects defects;
  proto::SimpleDescriptorDatabase database;
  std::vector<const proto::FileDescriptor*> roots;
  std::unique_ptr<proto::compiler::DiskSourceTree> tree;
  std::unique_ptr<proto::compiler::Importer> importer;
  std::unique_ptr<proto::DescriptorPool> own_pool;

  const proto::DescriptorPool& pool() const { return importer != nullptr ? *importer->pool() : *own_pool; }
  const proto::Descriptor* message(std::string_view name) const {
    return pool().FindMessageTypeByName(std::string(name));
  }
};

Result<ProtobufFiles> ProtobufFiles::of_encoded(const std::vector<std::string>& files) {
  if (files.size() > files_max) return fail(ErrorCode::limit_exceeded, "the server describes more than 1,000 files");
  auto made = std::make_shared<Definitions>();
  std::vector<std::string> names;
  for (const std::string& bytes : files) {
    proto::FileDescriptorProto file;
    if (!file.ParseFromString(bytes)) {
      return fail(ErrorCode::protocol_error, "the server's definition of a .proto file can't be read");
    }
    names.push_back(file.name());
    if (!made->database.Add(file)) {
      return fail(ErrorCode::protocol_error, "the server defines " + protocol::http::printable(file.name()) + " twice");
    }
  }
  made->own_pool = std::make_unique<proto::DescriptorPool>(&made->database, &made->defects);
  for (const std::string& name : names) {
    const proto::FileDescriptor* const file = made->own_pool->FindFileByName(name);
    if (file == nullptr) return fail(ErrorCode::protocol_error, "the server's definitions: " + made->defects.text());
    made->roots.push_back(file);
  }
  return ProtobufFiles(std::move(made));
}

Result<ProtobufFiles> ProtobufFiles::of_source(const std::string& path, const std::vector<std::string>& folders) {
  auto made = std::make_shared<Definitions>();
  made->tree = std::make_unique<proto::compiler::DiskSourceTree>();
  for (const std::string& folder : folders) made->tree->MapPath("", folder);
  const std::filesystem::path file(path);
  made->tree->MapPath("", file.has_parent_path() ? file.parent_path().string() : ".");
  made->tree->MapPath("", "/usr/include");
  made->importer = std::make_unique<proto::compiler::Importer>(made->tree.get(), &made->defects);
  // Its name within the first folder that contains it, as other files import it.
  std::string name;
  std::string hidden_by;
  if (made->tree->DiskFileToVirtualFile(path, &name, &hidden_by) == proto::compiler::DiskSourceTree::NO_MAPPING) {
    name = file.filename().string();
  }
  const proto::FileDescriptor* const root = made->importer->Import(name);
  if (root == nullptr) return fail(ErrorCode::invalid_argument, "--proto " + path + ": " + made->defects.text());
  made->roots.push_back(root);
  return ProtobufFiles(std::move(made));
}

Result<Method::FromJson> ProtobufFiles::from_json(std::string_view message) const {
  const proto::Descriptor* const type = definitions_->message(message);
  if (type == nullptr) return fail(ErrorCode::protocol_error, "no definition of " + protocol::http::printable(message));
  return
      [keep = definitions_, json = pb::json_transcoder(type, nullptr)](std::string_view text) -> Result<std::string> {
        TRY(Buffer&& bytes, json->arguments_from_json(text));
        return std::string(as_text(bytes.bytes()));
      };
}

Result<Method::ToJson> ProtobufFiles::to_json(std::string_view message) const {
  const proto::Descriptor* const type = definitions_->message(message);
  if (type == nullptr) return fail(ErrorCode::protocol_error, "no definition of " + protocol::http::printable(message));
  return [keep = definitions_, json = pb::json_transcoder(nullptr, type)](Bytes body, Bytes payload) {
    return json->result_to_json(body, payload);
  };
}

Result<Method> ProtobufFiles::method(std::string_view name) const {
  const proto::MethodDescriptor* const found = definitions_->pool().FindMethodByName(dotted(name));
  if (found == nullptr || name.find('/') == std::string_view::npos) {
    return fail(ErrorCode::unknown_method, "the definitions have no method " + protocol::http::printable(name) +
                                               ": methods are named package.Service/Method");
  }
  Method method = protobuf_method(std::string(name), found->client_streaming(), found->server_streaming());
  TRY(Method::FromJson&& in, from_json(found->input_type()->full_name()));
  TRY(Method::ToJson&& out, to_json(found->output_type()->full_name()));
  (method.streams_in ? method.item : method.arguments) = std::move(in);
  (method.streams_out ? method.answer_item : method.result) = std::move(out);
  Result<std::string> described = text(name);
  method.text = described ? std::move(*described) : std::string();
  return method;
}

std::vector<std::string> ProtobufFiles::methods() const {
  std::vector<std::string> names;
  for (const proto::FileDescriptor* const file : definitions_->roots) {
    for (int i = 0; i < file->service_count(); ++i) {
      const proto::ServiceDescriptor& service = *file->service(i);
      for (int k = 0; k < service.method_count(); ++k) {
        names.push_back(
            protocol::http::printable(std::string(service.full_name()).append("/").append(service.method(k)->name())));
      }
    }
  }
  std::ranges::sort(names);
  return names;
}

Result<std::string> ProtobufFiles::text(std::string_view name) const {
  const proto::DescriptorPool& pool = definitions_->pool();
  const std::string full = dotted(name);
  if (const auto* method = pool.FindMethodByName(full)) {
    std::string text = method->DebugString();
    for (const proto::Descriptor* type : {method->input_type(), method->output_type()}) {
      if (type == method->output_type() && type == method->input_type() && text.find("message") != std::string::npos)
        break;
      text += "\n" + type->DebugString();
    }
    return clean(text);
  }
  if (const auto* service = pool.FindServiceByName(full)) return clean(service->DebugString());
  if (const auto* message = pool.FindMessageTypeByName(full)) return clean(message->DebugString());
  if (const auto* enumeration = pool.FindEnumTypeByName(full)) return clean(enumeration->DebugString());
  return fail(ErrorCode::invalid_argument,
              "there is no service, method, message or enumeration " + protocol::http::printable(name));
}

}  // namespace hawser::cli
