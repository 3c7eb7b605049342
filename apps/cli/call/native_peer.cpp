#include <algorithm>
#include <set>
#include <utility>

#include "base/try.h"
#include "cli/call/peer.h"
#include "hawser/client.h"
#include "hawser/health.h"
#include "hawser/schema.h"
#include "protocol/http/json/value_json.h"

namespace hawser::cli {
namespace {

using protocol::http::ValueTypes;
using schema::Kind;

// Methods that a command lists.
constexpr std::size_t methods_max = 100'000;

ClientOptions native_options(const PeerOptions& options) {
  ClientOptions made;
  made.connect_timeout = options.timeout;
  made.call_timeout = options.timeout;
  made.security = options.security;
  if (!options.others) {
    for (const std::string_view name : {"shm", "rdma", "ucx"}) made.transports.disable(name);
  }
  return made;
}

// One line for each struct and enumeration that the method uses.
std::string describe_text(const ValueTypes& types) {
  const schema::Description& known = types.description();
  const auto values = [&](const std::vector<std::uint32_t>& list) {
    std::string text;
    for (const std::uint32_t type : list) text += (text.empty() ? "" : ", ") + protocol::http::label(known, type);
    return text;
  };
  std::string text = protocol::http::printable(known.name) + "(" + values(known.arguments) + ")";
  if (known.incoming) text += "\n  reads a stream of " + protocol::http::label(known, *known.incoming);
  if (known.outgoing) text += "\n  writes a stream of " + protocol::http::label(known, *known.outgoing);
  text += "\n  returns " + (known.result ? protocol::http::label(known, *known.result) : std::string("nothing")) + "\n";
  std::set<std::string> seen;
  for (const schema::Type& type : known.types) {
    const bool fields = type.kind == Kind::structure || type.kind == Kind::evolving;
    if ((!fields && type.names.empty()) || !seen.insert(type.name).second) continue;
    text += "\n" + std::string(fields ? "struct " : "enum ") + protocol::http::printable(type.name) + " {\n";
    for (std::size_t i = 0; i < type.names.size(); ++i) {
      const std::string name = protocol::http::printable(type.names[i]);
      text += fields ? "  " + name + ": " + protocol::http::label(known, type.parts[i])
                     : "  " + name + " = " + std::to_string(type.values[i]);
      if (type.kind == Kind::evolving && i >= type.size) text += " (appended)";
      text += "\n";
    }
    text += "}\n";
  }
  return text;
}

class NativePeer final : public CallPeer {
 public:
  explicit NativePeer(const PeerOptions& options) : CallPeer(options, native_options(options)) {
    for (const std::string& name : options.transports) {
      if (name == "shm") client_.enable_shm();
      if (name == "rdma") client_.enable_rdma();
      if (name == "ucx") client_.enable_ucx();
    }
  }

  Task<Result<Duration>> ping() override { return client_.ping(); }
  Task<Result<bool>> is_serving(std::string service) override {
    CallOptions with = options_.call_options();
    co_return co_await client_.call<hawser::is_serving>(with, std::string_view(service));
  }

  Task<Result<std::vector<std::string>>> list() override {
    std::vector<std::string> all;
    std::string after;
    for (;;) {
      CallOptions with = options_.call_options();
      Result<schema::Names> names = co_await client_.call<schema::list>(with, std::string_view(after));
      if (!names) co_return fail(explained(std::move(names.error())));
      for (const std::string& name : names->names) all.push_back(protocol::http::printable(name));
      // A server that repeats itself must not hold the command.
      if (!names->more || names->names.empty() || names->names.back() <= after) co_return all;
      if (all.size() >= methods_max) co_return fail(ErrorCode::limit_exceeded, "the server has over 100,000 methods");
      after = names->names.back();
    }
  }

  Task<Result<Method>> find(std::string name) override {
    CallOptions with = options_.call_options();
    Result<schema::Description> described = co_await client_.call<schema::describe>(with, std::string_view(name));
    if (!described) co_return fail(explained(std::move(described.error())));
    co_return method_of(std::move(*described));
  }

  Task<Result<std::string>> describe(std::string name) override {
    CO_TRY(Method&& method, co_await find(name));
    co_return std::move(method.text);
  }

 private:
  static Error explained(Error error) {
    if (error.code == ErrorCode::unknown_method) {
      error.text =
          "the server does not describe its methods: ServerOptions::describe is false there, or the server is "
          "older than this program";
    }
    return error;
  }

  static Result<Method> method_of(schema::Description description) {
    std::vector<std::string> files = std::move(description.files);
    TRY(ValueTypes&& checked, ValueTypes::check(std::move(description)));
    const auto types = std::make_shared<const ValueTypes>(std::move(checked));
    const schema::Description& known = types->description();
    Method method{.name = known.name,
                  .id = known.id,
                  .signature = known.signature,
                  .streams_in = known.incoming.has_value(),
                  .streams_out = known.outgoing.has_value(),
                  .text = describe_text(*types)};
    std::unique_ptr<ProtobufFiles> messages;
    // A value that is one protobuf message is exactly its bytes.
    const auto is_message = [&](std::uint32_t type) { return types->at(type).kind == Kind::message; };
    const auto definitions = [&]() -> Result<void> {
      if (messages != nullptr) return {};
      TRY(ProtobufFiles&& made, ProtobufFiles::of_encoded(files));
      messages = std::make_unique<ProtobufFiles>(std::move(made));
      return {};
    };
    const auto reader = [&](std::uint32_t type) -> Result<Method::ToJson> {
      if (!is_message(type)) {
        return [types, type](Bytes body, Bytes payload) {
          return protocol::http::value_to_json(*types, type, body, payload);
        };
      }
      TRY(definitions());
      return messages->to_json(types->at(type).name);
    };
    const auto writer = [&](std::uint32_t type) -> Result<Method::FromJson> {
      if (!is_message(type)) {
        return [types, type](std::string_view json) { return protocol::http::value_from_json(*types, type, json); };
      }
      TRY(definitions());
      return messages->from_json(types->at(type).name);
    };
    if (known.arguments.size() == 1 && is_message(known.arguments[0])) {
      TRY(Method::FromJson&& made, writer(known.arguments[0]));
      method.arguments = std::move(made);
    } else if (!known.arguments.empty() || !known.incoming) {
      method.arguments = [types](std::string_view json) {
        return protocol::http::arguments_from_json(*types, types->description().arguments, json);
      };
    }
    if (known.incoming) {
      TRY(Method::FromJson&& made, writer(*known.incoming));
      method.item = std::move(made);
    }
    for (const auto& [type, to] :
         {std::pair(known.result, &method.result), std::pair(known.outgoing, &method.answer_item)}) {
      if (!type) continue;
      TRY(Method::ToJson&& made, reader(*type));
      *to = std::move(made);
    }
    return method;
  }
};

}  // namespace

std::unique_ptr<CallPeer> make_native_peer(const PeerOptions& options) { return std::make_unique<NativePeer>(options); }

}  // namespace hawser::cli
