#include <algorithm>
#include <deque>
#include <set>
#include <utility>

#include "base/try.h"
#include "cli/call/grpc_reflection.pb.h"
#include "cli/call/peer.h"
#include "cli/call/raw_call.h"
#include "hawser/grpc_client.h"
#include "hawser/loop.h"
#include "protocol/http/json/value_types.h"

namespace hawser::cli {
namespace {

namespace reflection = grpc::reflection::v1;

// Files that a server may send in all, and their bytes.
constexpr std::size_t reflected_files_max = 1000;
constexpr std::size_t reflected_bytes_max = std::size_t{64} << 20;

GrpcClientOptions grpc_options(const PeerOptions& options) {
  GrpcClientOptions made;
  made.connect_timeout = options.timeout;
  made.call_timeout = options.timeout;
  made.security = options.security;
  made.message_bytes_max = reflected_bytes_max;
  return made;
}

class GrpcPeer final : public CallPeer {
 public:
  GrpcPeer(const PeerOptions& options, std::unique_ptr<ProtobufFiles> files)
      : CallPeer(options, grpc_client(grpc_options(options))), given_(std::move(files)) {}

  Task<Result<Duration>> ping() override {
    co_return fail(ErrorCode::invalid_argument, "hawser ping measures the native protocol: use hawser health");
  }

  Task<Result<std::vector<std::string>>> list() override {
    if (given_ != nullptr) co_return given_->methods();
    reflection::ServerReflectionRequest request;
    request.set_list_services("");
    CO_TRY(const reflection::ServerReflectionResponse& response, co_await ask(request));
    std::vector<std::string> all;
    for (const auto& service : response.list_services_response().service()) {
      if (all.size() > reflected_files_max) break;
      const Result<ProtobufFiles> files = co_await files_of(service.name());
      const std::string prefix = protocol::http::printable(service.name()) + "/";
      bool known = false;
      for (const std::string& method : files ? files->methods() : std::vector<std::string>()) {
        if (!method.starts_with(prefix)) continue;
        known = true;
        all.push_back(method);
      }
      if (!known) all.push_back(prefix + "?");  // Its methods are not known.
    }
    std::ranges::sort(all);
    co_return all;
  }

  Task<Result<Method>> find(std::string name) override {
    if (given_ != nullptr) co_return given_->method(name);
    CO_TRY(const ProtobufFiles& files, co_await files_of(name.substr(0, name.find('/'))));
    co_return files.method(name);
  }

  Task<Result<std::string>> describe(std::string name) override {
    if (given_ != nullptr) co_return given_->text(name);
    CO_TRY(const ProtobufFiles& files, co_await files_of(name.substr(0, name.find('/'))));
    co_return files.text(name);
  }

 private:
  // The definitions of a symbol, with all that its file imports.
  Task<Result<ProtobufFiles>> files_of(std::string symbol) {
    std::vector<std::string> encoded;
    std::set<std::string> have;
    std::set<std::string> asked;
    std::deque<std::string> wanted;
    std::size_t bytes = 0;
    reflection::ServerReflectionRequest request;
    request.set_file_containing_symbol(symbol);
    for (;;) {
      CO_TRY(reflection::ServerReflectionResponse&& response, co_await ask(request));
      if (response.has_error_response()) {
        co_return fail(ErrorCode::unknown_method,
                       "the server has no definition of " + protocol::http::printable(symbol) + ": " +
                           protocol::http::printable(response.error_response().error_message()));
      }
      for (const std::string& file : response.file_descriptor_response().file_descriptor_proto()) {
        grpc::reflection::v1::FileHead head;
        if (!head.ParseFromString(file)) co_return fail(ErrorCode::protocol_error, "a definition can't be read");
        if (!have.insert(head.name()).second) continue;
        bytes += file.size();
        encoded.push_back(file);
        if (encoded.size() > reflected_files_max || bytes > reflected_bytes_max) {
          co_return fail(ErrorCode::limit_exceeded, "the definitions of the server exceed 1,000 files or 64 MiB");
        }
        for (const std::string& import : head.dependency()) wanted.push_back(import);
      }
      // A server may send the imported files at once, or only when it is asked.
      while (!wanted.empty() && (have.contains(wanted.front()) || asked.contains(wanted.front()))) wanted.pop_front();
      if (wanted.empty()) co_return ProtobufFiles::of_encoded(encoded);
      if (asked.size() > reflected_files_max)
        co_return fail(ErrorCode::limit_exceeded, "the server's files import too many others");
      asked.insert(wanted.front());
      request.set_file_by_filename(wanted.front());
    }
  }

  Task<Result<reflection::ServerReflectionResponse>> ask(const reflection::ServerReflectionRequest& request) {
    const std::string bytes = request.SerializeAsString();
    for (;;) {
      Result<std::string> response = co_await ask_version(bytes, old_ ? "v1alpha" : "v1");
      if (!response && response.error().code == ErrorCode::unknown_method && !std::exchange(old_, true)) continue;
      if (!response) {
        Error error = std::move(response.error());
        if (error.code == ErrorCode::unknown_method) {
          error.text = "the server has no gRPC reflection: give --proto FILE";
        }
        co_return fail(std::move(error));
      }
      reflection::ServerReflectionResponse message;
      if (!message.ParseFromString(*response)) {
        co_return fail(ErrorCode::protocol_error, "the server's reflection answers with another message");
      }
      co_return message;
    }
  }

  Task<Result<std::string>> ask_version(std::string request, std::string version) {
    const Method method =
        protobuf_method("grpc.reflection." + version + ".ServerReflection/ServerReflectionInfo", true, true);
    CallOptions with = options_.call_options();
    RawCall call(link(), method, {}, std::move(with));
    call.send();
    const Result<void> written = co_await call.write(std::move(request));
    if (written) call.end_writing();
    Result<std::optional<RawCall::Answer>> item = co_await call.read();
    if (item && *item) co_return std::move((*item)->body);
    CO_TRY(co_await call.answer());
    co_return fail(ErrorCode::protocol_error, "the server's reflection ended without an answer");
  }

  std::unique_ptr<ProtobufFiles> given_;
  bool old_ = false;  // The server has the reflection of v1alpha only.
};

}  // namespace

std::unique_ptr<CallPeer> make_grpc_peer(const PeerOptions& options, std::unique_ptr<ProtobufFiles> files) {
  return std::make_unique<GrpcPeer>(options, std::move(files));
}

}  // namespace hawser::cli
