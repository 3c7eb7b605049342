#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/decimal_text.h"
#include "base/try.h"
#include "hawser/detail/describe.h"
#include "hawser/grpc_reflection.h"
#include "hawser/stream.h"
#include "protocol/grpc/own_files.h"
#include "protocol/grpc/own_method.h"
#include "protocol/grpc/proto_bytes.h"
#include "rpc/server/inspector.h"

namespace hawser {
namespace {

using protocol::grpc::add_bytes_field;
using protocol::grpc::add_number_field;
using protocol::grpc::ProtoBytes;
using protocol::grpc::ProtoField;
using protocol::grpc::visit_fields;

constexpr unsigned not_found = 5;
constexpr unsigned unimplemented = 12;
// A reply repeats its request, and waits in the handler until the caller takes it.
constexpr std::size_t request_bytes_max = 16 * 1024;

// Collects the files that the methods of a server name.
class FileCollector final : public detail::SchemaBuilder {
 public:
  void set(const detail::TypeFacts& facts) override {
    for (const detail::DescribeType* part = facts.parts; part != nullptr && *part != nullptr; ++part) visit(*part);
  }
  void set_message(std::string) override {}
  bool add_file(std::string_view name, std::string (*encode)(const void* file), const void* file) override {
    const auto [at, added] = files.try_emplace(std::string(name));
    if (added) at->second = encode(file);
    return added;
  }
  void set_method(const detail::DescribeType* arguments, detail::DescribeType incoming, detail::DescribeType outgoing,
                  detail::DescribeType result) override {
    for (; *arguments != nullptr; ++arguments) visit(*arguments);
    for (const detail::DescribeType type : {incoming, outgoing, result}) {
      if (type != nullptr) visit(type);
    }
  }

  std::map<std::string, std::string, std::less<>> files;

 private:
  void visit(detail::DescribeType type) {
    if (seen_.insert(type).second) type(*this);
  }
  std::unordered_set<detail::DescribeType> seen_;
};

// The files of a server, and where each name is defined. Made once; read by all loops.
class Definitions {
 public:
  explicit Definitions(const Server& server) {
    FileCollector collector;
    std::set<std::string> undescribed;
    for (const detail::ServedMethod* method : rpc::Inspector::served_methods(server)) {
      const std::size_t slash = method->name.find('/');
      if (slash == std::string::npos || method->json == nullptr || method->json->encoding() != "proto") continue;
      services.insert(method->name.substr(0, slash));
      if (method->describe != nullptr) {
        method->describe(collector);
      } else {
        undescribed.insert(method->name.substr(0, slash));
      }
    }
    if (undescribed.contains("grpc.health.v1.Health")) {
      collector.files.try_emplace(std::string(protocol::grpc::health_file_name), protocol::grpc::health_file());
    }
    for (const std::string version : {"v1", "v1alpha"}) {
      if (!undescribed.contains("grpc.reflection." + version + ".ServerReflection")) continue;
      collector.files.try_emplace(protocol::grpc::reflection_file_name(version),
                                  protocol::grpc::reflection_file(version));
    }
    for (auto& [name, bytes] : collector.files) {
      File& file = files_[name];
      file.bytes = std::move(bytes);
      read(name, file);
    }
  }

  // The file that defines a message, a service, a method, an enumeration or an extension. Empty if there is none.
  std::string_view file_of(std::string_view symbol) const {
    const auto found = symbols_.find(symbol);
    return found == symbols_.end() ? std::string_view() : found->second;
  }
  std::string_view file_of(std::string_view message, std::uint64_t extension) const {
    const auto of_message = extensions_.find(message);
    if (of_message == extensions_.end()) return {};
    const auto found = of_message->second.find(extension);
    return found == of_message->second.end() ? std::string_view() : found->second;
  }
  const std::map<std::uint64_t, std::string>* extensions_of(std::string_view message) const {
    const auto found = extensions_.find(message);
    return found == extensions_.end() ? nullptr : &found->second;
  }
  // Appends the file and those that it imports, each once, as fields 1 of a FileDescriptorResponse.
  bool add_files(std::string_view name, std::string& response) const {
    std::set<std::string_view> added;
    std::vector<std::string_view> waiting{name};
    while (!waiting.empty()) {
      const auto file = files_.find(waiting.back());
      waiting.pop_back();
      if (file == files_.end() || !added.insert(file->first).second) continue;
      add_bytes_field(response, 1, file->second.bytes);
      waiting.insert(waiting.end(), file->second.imports.begin(), file->second.imports.end());
    }
    return !added.empty();
  }

  std::set<std::string> services;

 private:
  struct File {
    std::string bytes;
    std::vector<std::string> imports;
  };

  void define(const std::string& symbol, const std::string& file) { symbols_.emplace(symbol, file); }
  static std::string within(std::string_view scope, std::string_view message) {
    const std::string name = protocol::grpc::string_field(message, 1).value_or("");
    return scope.empty() ? name : std::string(scope) + "." + name;
  }
  void read_enum(std::string_view scope, std::string_view bytes, const std::string& file) {
    define(within(scope, bytes), file);
    // Values lie in the scope of their enumeration.
    visit_fields(bytes, [&](const ProtoField& field) {
      if (field.number == 2 && field.is_bytes) define(within(scope, field.bytes), file);
    });
  }
  void read_extension(std::string_view scope, std::string_view bytes, const std::string& file) {
    define(within(scope, bytes), file);
    std::string extended = protocol::grpc::string_field(bytes, 2).value_or("");
    if (extended.starts_with('.')) extended.erase(0, 1);
    visit_fields(bytes, [&](const ProtoField& field) {
      if (field.number == 3 && !field.is_bytes) extensions_[extended].emplace(field.value, file);
    });
  }
  void read_message(std::string_view scope, std::string_view bytes, const std::string& file) {
    const std::string name = within(scope, bytes);
    define(name, file);
    visit_fields(bytes, [&](const ProtoField& field) {
      if (!field.is_bytes) return;
      if (field.number == 3) read_message(name, field.bytes, file);
      if (field.number == 4) read_enum(name, field.bytes, file);
      if (field.number == 6) read_extension(name, field.bytes, file);
      if (field.number == 2 || field.number == 8) define(within(name, field.bytes), file);  // Fields, oneofs.
    });
  }
  void read_service(std::string_view scope, std::string_view bytes, const std::string& file) {
    const std::string name = within(scope, bytes);
    define(name, file);
    visit_fields(bytes, [&](const ProtoField& field) {
      if (field.number == 2 && field.is_bytes) define(within(name, field.bytes), file);
    });
  }
  // Reads a FileDescriptorProto.
  void read(const std::string& name, File& file) {
    const std::string package = protocol::grpc::string_field(file.bytes, 2).value_or("");
    visit_fields(file.bytes, [&](const ProtoField& field) {
      if (!field.is_bytes) return;
      switch (field.number) {
        case 3: file.imports.emplace_back(field.bytes); break;
        case 4: read_message(package, field.bytes, name); break;
        case 5: read_enum(package, field.bytes, name); break;
        case 6: read_service(package, field.bytes, name); break;
        case 7: read_extension(package, field.bytes, name); break;
        default: break;
      }
    });
  }

  std::map<std::string, File, std::less<>> files_;
  std::map<std::string, std::string, std::less<>> symbols_;
  std::map<std::string, std::map<std::uint64_t, std::string>, std::less<>> extensions_;
};

// The handlers own it, and the server owns them.
class Reflection {
 public:
  explicit Reflection(const Server& server) : server_(server) {}

  Task<Result<void>> info(Context&, Reader<ProtoBytes> in, Writer<ProtoBytes> out) {
    for (;;) {
      CO_TRY(const std::optional<ProtoBytes>& request, co_await in.next());
      if (!request) co_return Result<void>();
      if (request->bytes.size() > request_bytes_max) {
        co_return fail(ErrorCode::invalid_argument, "the request has " + count_text(request->bytes.size(), "byte") +
                                                        ": the limit is " + std::to_string(request_bytes_max) +
                                                        " bytes: send a shorter one");
      }
      const std::optional<std::string> reply = answer(request->bytes);
      if (!reply) co_return fail(ErrorCode::invalid_argument, "the request is not a ServerReflectionRequest");
      const ProtoBytes message(*reply);  // Lives until it has been written.
      CO_TRY(co_await out.write(message));
    }
  }

 private:
  const Definitions& definitions() {
    // All methods are registered when the first call arrives.
    std::call_once(once_, [this] { definitions_ = std::make_unique<const Definitions>(server_); });
    return *definitions_;
  }

  // Returns a ServerReflectionResponse; nothing for a malformed request.
  std::optional<std::string> answer(std::string_view request) {
    ProtoField asked;
    std::string host;
    const bool sound = visit_fields(request, [&](const ProtoField& field) {
      if (!field.is_bytes) return;
      if (field.number == 1) host = field.bytes;
      if (field.number >= 3 && field.number <= 7) asked = field;
    });
    if (!sound) return std::nullopt;
    std::string response;
    if (!host.empty()) add_bytes_field(response, 1, host);
    add_bytes_field(response, 2, request);
    const Definitions& known = definitions();
    const auto refuse = [&](unsigned code, const std::string& text) {
      std::string error;
      add_number_field(error, 1, code);
      add_bytes_field(error, 2, text);
      add_bytes_field(response, 7, error);
    };
    const std::string name(asked.bytes);
    const auto add_files = [&](std::string_view file) {
      std::string files;
      if (file.empty() || !known.add_files(file, files)) return refuse(not_found, "there is no definition of it");
      add_bytes_field(response, 4, files);
    };
    switch (asked.number) {
      case 3: add_files(name); break;
      case 4: add_files(known.file_of(name)); break;
      case 5: {
        const std::string message = protocol::grpc::string_field(asked.bytes, 1).value_or("");
        std::uint64_t number = 0;
        visit_fields(asked.bytes, [&](const ProtoField& field) {
          if (field.number == 2 && !field.is_bytes) number = field.value;
        });
        add_files(known.file_of(message, number));
        break;
      }
      case 6: {
        const auto* const numbers = known.extensions_of(name);
        if (numbers == nullptr && known.file_of(name).empty()) {
          refuse(not_found, "there is no definition of it");
          break;
        }
        std::string list;
        add_bytes_field(list, 1, name);
        if (numbers != nullptr) {
          for (const auto& [number, file] : *numbers) add_number_field(list, 2, number);
        }
        add_bytes_field(response, 5, list);
        break;
      }
      case 7: {
        std::string list;
        for (const std::string& service : known.services) {
          std::string entry;
          add_bytes_field(entry, 1, service);
          add_bytes_field(list, 1, entry);
        }
        add_bytes_field(response, 6, list);
        break;
      }
      default: refuse(unimplemented, "the request asks for nothing that this server knows"); break;
    }
    return response;
  }

  const Server& server_;
  std::once_flag once_;
  std::unique_ptr<const Definitions> definitions_;
};

}  // namespace

void add_grpc_reflection(Server& server) {
  const auto reflection = std::make_shared<Reflection>(server);
  for (const std::string_view version : {"v1", "v1alpha"}) {
    protocol::grpc::add_own_method<&Reflection::info>(
        server, reflection, "grpc.reflection." + std::string(version) + ".ServerReflection/ServerReflectionInfo");
  }
}

}  // namespace hawser
