#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/try.h"
#include "cli/call/outcome.h"
#include "cli/call/peer.h"
#include "cli/call/raw_call.h"
#include "cli/call/server_name.h"
#include "cli/command.h"
#include "hawser/http_client.h"
#include "hawser/loop.h"
#include "hawser/scope.h"
#include "json/writer.h"

namespace hawser::cli {
namespace {

struct CallOptionsGiven {
  PeerOptions peer;
  double timeout_s = 10;
  std::string method;
  std::vector<std::string> arguments;
  bool json = false;
};

// The request and the items of the caller's stream.
struct Inputs {
  std::string request;
  std::vector<std::string> items;
};

bool is_blank(std::string_view text) { return text.find_first_not_of(" \t\r\n") == std::string_view::npos; }

// The first argument is the request, if the method takes one; the others are items. A file or the standard input has an
// item on each line.
Result<Inputs> inputs_of(const Method& method, const std::vector<std::string>& given) {
  Inputs inputs;
  std::size_t next = 0;
  if (method.arguments) {
    TRY(std::string&& json, given.empty() ? Result<std::string>(std::string()) : read_argument(given[0]));
    TRY(std::string&& bytes, method.arguments(json));
    inputs.request = std::move(bytes);
    next = 1;
  }
  if (next < given.size() && !method.item) {
    return fail(ErrorCode::invalid_argument, fmt::format("{} takes one JSON argument: {} were given; put several "
                                                         "arguments of a function into one JSON array",
                                                         method.name, given.size()));
  }
  for (; next < given.size(); ++next) {
    TRY(std::string&& text, read_argument(given[next]));
    const bool lines = given[next] == "-" || given[next].starts_with('@');
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = lines ? std::min(text.find('\n', begin), text.size()) : text.size();
      const std::string_view one = std::string_view(text).substr(begin, end - begin);
      begin = end + 1;
      if (is_blank(one)) continue;
      TRY(std::string&& bytes, method.item(one));
      inputs.items.push_back(std::move(bytes));
    }
  }
  return inputs;
}

// The call's answer says why writing failed.
Task<void> write_items(RawCall& call, std::vector<std::string> items) {
  for (std::string& item : items) {
    const Result<void> written = co_await call.write(std::move(item));
    if (!written) co_return;
  }
  call.end_writing();
}

Task<Result<void>> run_call(CallPeer& peer, const Method& method, Inputs inputs, CallOptions options,
                            const Output& output) {
  RawCall call(peer.link(), method, std::move(inputs.request), std::move(options));
  call.send();
  Scope writing;
  if (method.streams_in) writing.spawn(write_items(call, std::move(inputs.items)));
  while (method.streams_out) {
    const Result<std::optional<RawCall::Answer>> item = co_await call.read();
    if (!item || !*item) break;  // The answer has the error.
    CO_TRY(const std::string& json, method.answer_item(as_bytes((*item)->body), as_bytes((*item)->payload)));
    output.line(json);
  }
  CO_TRY(const RawCall::Answer& answer, co_await call.answer());
  if (method.result) {
    CO_TRY(const std::string& json, method.result(as_bytes(answer.body), as_bytes(answer.payload)));
    output.line(json);
  }
  co_return Result<void>();
}

// The server converts the JSON itself.
Task<int> call_http(CallOptionsGiven given, Output output) {
  if (given.arguments.size() > 1) {
    co_return output.error(Error::of_call(ErrorCode::invalid_argument,
                                          "HTTP carries one JSON argument: put several arguments into one JSON array"));
  }
  Result<std::string> json = given.arguments.empty() ? std::string("{}") : read_argument(given.arguments[0]);
  if (!json) co_return output.error(json.error());
  const auto addresses = co_await addresses_of(given.peer.address, given.peer.timeout);
  if (!addresses) co_return output.error(addresses.error());
  HttpClient client(*Loop::current(), {.security = given.peer.security});
  HttpClientRequest request;
  request.method = "POST";
  request.url = programs::scheme_of(given.peer.security) + "://hawser/" + given.method;
  request.content_type = "application/json";
  request.body = std::move(*json);
  request.timeout = given.peer.timeout;
  request.headers = given.peer.metadata;
  const Result<HttpClientResponse> response = co_await send_to_any(client, *addresses, request);
  if (!response) co_return output.error(response.error());
  std::string_view body = response->body;
  while (body.ends_with('\n')) body.remove_suffix(1);
  if (response->status == 200) {
    output.line(body);
    co_return succeeded;
  }
  const ErrorCode code = response->status == 404   ? ErrorCode::unknown_method
                         : response->status == 504 ? ErrorCode::deadline_exceeded
                                                   : ErrorCode::application;
  co_return output.error({code, ErrorScope::call, Initiator::peer, response->status,
                          fmt::format("status {}: {}", response->status, body.substr(0, 4096))});
}

Task<int> call(CallOptionsGiven given, Output output) {
  if (given.peer.protocol == "http") {
    co_return co_await call_http(std::move(given), output);
  }
  const Result<std::unique_ptr<CallPeer>> peer = co_await connect_peer(given.peer);
  if (!peer) co_return output.error(peer.error());
  Result<Method> method = co_await (*peer)->find(given.method);
  if (!method) co_return output.unknown_method(method.error());
  Result<Inputs> inputs = inputs_of(*method, given.arguments);
  if (!inputs) {
    if (!output.json && !method->text.empty()) fmt::print(stderr, "{}", method->text);
    co_return output.error(inputs.error());
  }
  const Result<void> done = co_await run_call(**peer, *method, std::move(*inputs), given.peer.call_options(), output);
  if (!done) co_return output.error(done.error());
  co_return succeeded;
}

struct NameOptions {
  PeerOptions peer;
  double timeout_s = 10;
  std::string name;
  bool json = false;
};

std::string json_list(const std::vector<std::string>& texts) {
  std::string json = "[";
  for (const std::string& text : texts) {
    if (json.size() > 1) json += ",";
    json::append_text(json, text);
  }
  return json + "]";
}

Task<int> list(NameOptions given, Output output) {
  const Result<std::unique_ptr<CallPeer>> peer = co_await connect_peer(given.peer);
  if (!peer) co_return output.error(peer.error());
  const Result<std::vector<std::string>> names = co_await (*peer)->list();
  if (!names) co_return output.error(names.error());
  if (output.json) {
    output.line(json_list(*names));
  } else {
    for (const std::string& name : *names) output.line(name);
  }
  co_return succeeded;
}

// Returns the methods of the service or namespace `name`; none if the server has no such methods or does not say.
Task<std::vector<std::string>> methods_within(CallPeer& peer, std::string name) {
  Result<std::vector<std::string>> all = co_await peer.list();
  if (!all) co_return std::vector<std::string>();
  std::erase_if(*all,
                [&](const std::string& one) { return !one.starts_with(name + "/") && !one.starts_with(name + "::"); });
  co_return std::move(*all);
}

Task<int> describe(NameOptions given, Output output) {
  const Result<std::unique_ptr<CallPeer>> peer = co_await connect_peer(given.peer);
  if (!peer) co_return output.error(peer.error());
  std::vector<std::string> names{given.name};
  bool named = !given.name.empty();
  if (!named) {
    Result<std::vector<std::string>> all = co_await (*peer)->list();
    if (!all) co_return output.error(all.error());
    names = std::move(*all);
  }
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < names.size();) {
    const std::string name = names[i];
    Result<std::string> text = co_await (*peer)->describe(name);
    if (!text && named) {
      if (text.error().code == ErrorCode::invalid_argument) {
        names = co_await methods_within(**peer, name);
        named = false;
        if (!names.empty()) continue;
      }
      co_return output.unknown_method(text.error());
    }
    // A method of which the server knows the name alone.
    texts.push_back(text ? std::move(*text) : name + "\n  its types are not known\n");
    ++i;
  }
  if (output.json) {
    output.line(json_list(texts));
  } else {
    for (std::size_t i = 0; i < texts.size(); ++i) {
      while (texts[i].ends_with('\n')) texts[i].pop_back();
      output.line((i == 0 ? "" : "\n") + texts[i]);
    }
  }
  co_return succeeded;
}

}  // namespace

Run add_call(CLI::App& command) {
  auto options = std::make_shared<CallOptionsGiven>();
  add_peer_options(command, options->peer, options->timeout_s);
  command.add_option("method", options->method, "Method: Service/Method or namespace::function; hawser list names all")
      ->required();
  command.add_option("arguments", options->arguments,
                     "Arguments as JSON: an object, or an array with one element for each; then the items of a stream. "
                     "@FILE and - read a file and the standard input, an item on each line");
  command.add_flag("--json", options->json, "Print errors as JSON too");
  command.footer(std::string("Items of a stream are printed one a line. ") + statuses);
  return [options] {
    options->peer.timeout = duration_of(options->timeout_s);
    return sync_wait(call(*options, {.command = "call", .json = options->json}));
  };
}

Run add_list(CLI::App& command) {
  auto options = std::make_shared<NameOptions>();
  add_peer_options(command, options->peer, options->timeout_s);
  command.add_flag("--json", options->json, "Print JSON");
  command.footer(statuses);
  return [options] {
    options->peer.timeout = duration_of(options->timeout_s);
    return sync_wait(list(*options, {.command = "list", .json = options->json}));
  };
}

Run add_describe(CLI::App& command) {
  auto options = std::make_shared<NameOptions>();
  add_peer_options(command, options->peer, options->timeout_s);
  command.add_option("name", options->name,
                     "Method; with gRPC also a service, message or enumeration. Absent: all methods");
  command.add_flag("--json", options->json, "Print JSON");
  command.footer(statuses);
  return [options] {
    options->peer.timeout = duration_of(options->timeout_s);
    return sync_wait(describe(*options, {.command = "describe", .json = options->json}));
  };
}

}  // namespace hawser::cli
