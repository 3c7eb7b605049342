#include "tests/grpc/raw_service.h"

#include <charconv>

#include "hawser/detail/protobuf_bodies.h"

namespace hawser::testing_tools {
// A named namespace: GCC warns of coroutine frames whose types have no linkage.
namespace raw_handlers {

struct Running {
  Running() { ++raw_handlers_running(); }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  ~Running() { --raw_handlers_running(); }
};

int number_of(std::string_view text) {
  int number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// Answers with the request, and sends back metadata whose names begin with "echo-".
Raw repeat(Context& context, Raw request) {
  for (auto& [name, value] : context.metadata().copy()) {
    if (name.starts_with("echo-initial")) {
      add_grpc_initial_metadata(context, name, value);
    } else if (name.starts_with("echo-")) {
      context.add_metadata(name, value);
    } else if (name == "compress-reply") {
      set_grpc_compression(context, value == "zstd" ? GrpcCompression::zstd : GrpcCompression::gzip);
    }
  }
  return request;
}

// Answers with as many bytes as the request, a number, says.
Raw bulk(Raw request) { return {std::string(static_cast<std::size_t>(std::stoul(request.bytes)), 'b')}; }

Task<Result<Raw>> sleep(Context& context, Raw request) {
  const Running running;
  Result<void> slept = co_await context.loop().sleep(std::chrono::hours(1), context.token());
  if (!slept) co_return std::unexpected(slept.error());
  co_return request;
}

Raw running_handlers(Raw) { return {std::to_string(raw_handlers_running().load())}; }

// The milliseconds until the deadline.
Raw deadline(Context& context, Raw) {
  if (!context.deadline()) return {"none"};
  const auto left = *context.deadline() - context.loop().now();
  return {std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(left).count())};
}

// Fails with the status that the request's first two digits name, and with its rest as the text.
Result<Raw> fail_with(Context& context, Raw request) {
  add_grpc_trailing_metadata(context, "grpc-status-details-bin", std::string("\0details\xFF", 9));
  const int status = number_of(std::string_view(request.bytes).substr(0, 2));
  return std::unexpected(grpc_error(status, request.bytes.substr(2)));
}

// Fails until the caller's attempt is the one that the request names, with UNAVAILABLE and a pushback of 1 ms; "never"
// forbids another attempt.
Result<Raw> succeed_at(Context& context, Raw request) {
  const std::string attempts(context.metadata().find("grpc-previous-rpc-attempts").value_or("0"));
  if (attempts == request.bytes) return request;
  set_grpc_retry_pushback(context, request.bytes == "never" ? Duration(-1) : Duration(std::chrono::milliseconds(1)));
  set_grpc_status_details(context, "earlier attempts: " + attempts);
  return std::unexpected(grpc_error(14, "not yet"));
}

// Sends as many messages as the request says, of 0, 1000, 2000... bytes.
Task<Result<void>> count(Raw request, Writer<Raw> out) {
  const int most = number_of(request.bytes);
  for (int i = 0; i < most; ++i) {
    const Raw item{std::string(static_cast<std::size_t>(i % 50) * 1000, static_cast<char>('a' + i % 26))};
    Result<void> written = co_await out.write(item);
    if (!written) co_return std::unexpected(written.error());
  }
  co_return Result<void>();
}

// Answers with the number of messages and of their bytes.
Task<Result<Raw>> sum(Reader<Raw> in) {
  std::size_t messages = 0;
  std::size_t bytes = 0;
  while (true) {
    auto item = co_await in.next();
    if (!item) co_return std::unexpected(item.error());
    if (!*item) break;
    ++messages;
    bytes += (*item)->bytes.size();
  }
  co_return Raw{std::to_string(messages) + " " + std::to_string(bytes)};
}

// Answers each message with the same.
Task<Result<void>> converse(Context& context, Reader<Raw> in, Writer<Raw> out) {
  const Running running;
  for (auto& [name, value] : context.metadata().copy()) {
    if (name.starts_with("echo-initial")) add_grpc_initial_metadata(context, name, value);
    if (name.starts_with("echo-trailing")) add_grpc_trailing_metadata(context, name, value);
  }
  while (true) {
    auto item = co_await in.next();
    if (!item) co_return std::unexpected(item.error());
    if (!*item) co_return Result<void>();
    if ((*item)->bytes.starts_with("fail")) co_return std::unexpected(grpc_error(9, "as the client wants"));
    Result<void> written = co_await out.write(std::move(**item));
    if (!written) co_return std::unexpected(written.error());
  }
}

// Reads none of the messages.
Task<Result<Raw>> hold(Context& context, Reader<Raw>) {
  const Running running;
  Result<void> slept = co_await context.loop().sleep(std::chrono::hours(1), context.token());
  if (!slept) co_return std::unexpected(slept.error());
  co_return Raw();
}

// Sends messages until the server stops or the caller cancels.
Task<Result<void>> watch(Context& context, Raw, Writer<Raw> out) {
  const Running running;
  while (!context.stopping().stop_requested() && !context.token().stop_requested()) {
    const Raw event{"event"};
    Result<void> written = co_await out.write(event);
    if (!written) break;
    co_await context.loop().sleep(std::chrono::milliseconds(1));
  }
  co_return Result<void>();
}

template <auto F>
void add(Server& server, std::string_view method) {
  using Facts = detail::MethodFacts<F>;
  std::string name = "test.Raw/" + std::string(method);
  const std::uint32_t id = codec::fnv1a32(name);
  server.add_method({.id = id,
                     .signature = Facts::signature,
                     .name = std::move(name),
                     .handler = std::make_unique<detail::FunctionHandler<F, void>>(nullptr, HandlerOptions()),
                     .streams_in = !std::is_same_v<typename Facts::incoming, detail::NoStream>,
                     .streams_out = !std::is_same_v<typename Facts::outgoing, detail::NoStream>,
                     .json = std::make_shared<detail::ProtobufBodies>()});
}

}  // namespace raw_handlers

std::atomic<int>& raw_handlers_running() {
  static std::atomic<int> running{0};
  return running;
}

void register_raw_service(Server& server) {
  using namespace raw_handlers;
  add<repeat>(server, "Echo");
  add<bulk>(server, "Bulk");
  add<sleep>(server, "Sleep");
  add<running_handlers>(server, "Running");
  add<deadline>(server, "Deadline");
  add<fail_with>(server, "Fail");
  add<count>(server, "Count");
  add<sum>(server, "Sum");
  add<converse>(server, "Converse");
  add<watch>(server, "Watch");
  add<hold>(server, "Hold");
  add<succeed_at>(server, "SucceedAt");
}

}  // namespace hawser::testing_tools
