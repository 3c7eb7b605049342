// The work of clients: calls, connecting, descriptions.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <coroutine>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "client.h"
#include "convert.h"
#include "grpc_peers.h"
#include "hawser/detail/call_channel.h"
#include "hawser/detail/client_link.h"
#include "method.h"
#include "names.h"
#include "streams.h"
#include "tls.h"

namespace hawser::python {
namespace {

// A call of a method. Its arguments are encoded when it is made, and its reply is decoded when it is delivered.
class Call final : public Work {
 public:
  using Work::Work;

  std::shared_ptr<const Plan> plan;
  Encoded arguments;
  CallOptions options;
  BorrowedMemory attachment;
  BorrowedMemory into;
  bool whole = false;                    // The future gets a Reply.
  std::shared_ptr<CallStreams> streams;  // Null: the method has none.

  void set_timeout(std::optional<Duration> timeout) noexcept { timeout_ = timeout; }

 private:
  // A received reply with its memory.
  struct Answer {
    detail::ReplyStorage storage;
    detail::Received reply;
  };
  class Operation;
  using Sent = Result<std::unique_ptr<Operation>>;
  void begin() override { run(std::static_pointer_cast<Call>(shared_from_this())); }
  static detail::Serving run(std::shared_ptr<Call> call);
  // Makes the call at one server. With streams, the task ends when the request has been sent.
  static Task<Sent> make(Call& call, Client& client, const CallOptions& options);
  static Task<Sent> make_by_name(Call& call, ClusterClient& cluster);
  // Waits for the end of a call with streams.
  static Task<std::optional<Error>> end(Call& call, Operation& operation);
  // Subtracts the time since the call was made from its timeout. False if nothing is left.
  bool count_wait();
  nb::object value() override;
  nb::object result(Message message, const nb::object& target);
  void release() noexcept override;

  const std::chrono::steady_clock::time_point made_ = std::chrono::steady_clock::now();
  std::optional<Duration> timeout_;
  Answer answer_;
};

class Call::Operation final : public detail::CallOperation {
 public:
  Operation(detail::ClientLink& link, Call& call, const CallOptions& options)
      : CallOperation(link), call_(call), options_(options) {
    const schema::Description& method = call.plan->description();
    request_.method = method.id;
    request_.signature = method.signature;
    request_.name = method.name;
    request_.options = &options_;
    request_.arguments_last = true;
    request_.streams = call.streams != nullptr;
    request_.streams_in = method.incoming.has_value();
    request_.streams_out = method.outgoing.has_value();
    Operation::measure();
  }
  ~Operation() { withdraw(); }

  using CallOperation::done, CallOperation::error, CallOperation::start, CallOperation::stream;
  // Waits for the end of the call, or until its request has been sent.
  auto until(bool ended) noexcept {
    struct Awaiter {
      Operation& operation;
      const bool ended;
      bool await_ready() const noexcept { return operation.done(); }
      bool await_suspend(std::coroutine_handle<> waiting) const {
        return ended ? operation.wait(waiting) : operation.wait_sent(waiting);
      }
      void await_resume() const noexcept { operation.resumed(); }
    };
    return Awaiter{*this, ended};
  }
  Answer take() noexcept { return std::move(answer_); }

 private:
  void measure() noexcept override {
    const Encoded& from = call_.arguments;
    request_.size = {.body = from.body.size(), .payload = from.payload, .pieces = from.pieces.size()};
  }
  void encode(std::byte* body, ConstBuffer* pieces) override {
    const Encoded& from = call_.arguments;
    if (!from.body.empty()) std::memcpy(body, from.body.data(), from.body.size());
    for (const ConstBuffer& piece : from.pieces) *pieces++ = piece;
  }
  void decode(const detail::Received& reply) override {
    answer_.reply = reply;
    if (!detail::keep_reply(answer_.reply, memory(), answer_.storage)) {
      error() = Error::of_call(ErrorCode::limit_exceeded, "the reply's payload is larger than the memory of `into`");
    }
  }
  MutableBytes memory() const noexcept override { return call_.into.mutable_bytes(); }

  Call& call_;
  const CallOptions options_;
  Answer answer_;
};

Task<Call::Sent> Call::make(Call& call, Client& client, const CallOptions& options) {
  auto operation = std::make_unique<Operation>(detail::link_of(client), call, options);
  operation->start();
  co_await operation->until(call.streams == nullptr);
  if (operation->done() && operation->error()) co_return std::unexpected(std::move(*operation->error()));
  co_return operation;
}

Task<Call::Sent> Call::make_by_name(Call& call, ClusterClient& cluster) {
  // Copies would receive into the same memory, and send the same streams.
  const bool copies = !call.into && call.streams == nullptr;
  return cluster.send_request(
      call.plan->description().name, call.options,
      [&call](Client& client, const CallOptions& options) { return make(call, client, options); }, copies);
}

Task<std::optional<Error>> Call::end(Call& call, Operation& operation) {
  detail::StreamCore* const core = operation.stream();
  const CallStreams::Attached attached(call.streams, core == nullptr ? nullptr : core->shared_from_this());
  co_await operation.until(true);
  co_return std::move(operation.error());
}

detail::Serving Call::run(std::shared_ptr<Call> call) {
  Begun begun{*call};
  co_await begun;
  ClusterClient* const cluster = call->client_->cluster();
  if (cluster == nullptr && !call->client_->client().connected()) {
    Result<void> connected = co_await call->client_->connect();
    if (!connected) {
      call->fail(std::move(connected.error()));
      co_return;
    }
  }
  if (!call->count_wait()) {
    call->fail(Error::of_call(ErrorCode::deadline_exceeded,
                              "the timeout passed before the call was sent: it waited for a connection, or for the end "
                              "of other calls (calls_in_flight_max)"));
    co_return;
  }
  Task<Sent> making =
      cluster != nullptr ? make_by_name(*call, *cluster) : make(*call, call->client_->client(), call->options);
  Sent sent = co_await std::move(making);
  if (!sent) {
    call->error_ = std::move(sent.error());
  } else {
    if (call->streams != nullptr) call->error_ = co_await end(*call, **sent);
    call->answer_ = (*sent)->take();
  }
  // The calls in flight that this connection allows, which the server may have lowered.
  const bool no_place = cluster == nullptr && call->error_ && call->error_->code == ErrorCode::overloaded &&
                        call->error_->initiator == Initiator::local;
  if (no_place) {
    call->error_.reset();
    call->client_->wait_for_turn(*call);
    co_return;
  }
  call->finish();
}

bool Call::count_wait() {
  const Duration timeout = timeout_.value_or(streams == nullptr ? client_->call_timeout() : forever);
  if (timeout == forever) {
    options.timeout = forever;
    return true;
  }
  options.timeout = timeout - std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now() - made_);
  return *options.timeout > Duration::zero();
}

// `target` is the memoryview of `into`, or none.
nb::object Call::result(Message message, const nb::object& target) {
  const std::optional<std::uint32_t> type = plan->description().result;
  Error error;
  if (!type) {
    codec::Decoder decoder(message.body, message.payload, decode_limits);
    if (!decoder.finish()) raise(decoder.error());
    return nb::none();
  }
  nb::object made = nb::steal(decode_value(*plan, *type, message, error));
  if (!made.is_valid() && error.code == ErrorCode::ok) throw nb::python_error();
  if (!made.is_valid()) raise(error);
  // A short result lies in the body and is copied to `into`.
  if (target.is_valid() && PyBytes_Check(made.ptr()) && answer_.reply.attachment.empty()) {
    const Bytes bytes =
        as_bytes({PyBytes_AS_STRING(made.ptr()), static_cast<std::size_t>(PyBytes_GET_SIZE(made.ptr()))});
    const MutableBytes memory = into.mutable_bytes();
    if (bytes.size() > memory.size()) {
      raise(Error::of_call(ErrorCode::limit_exceeded, "the result is larger than the memory of `into`"));
    }
    if (!bytes.empty()) std::memcpy(memory.data(), bytes.data(), bytes.size());
    return nb::steal(slice_of(target.ptr(), Bytes(memory.data(), bytes.size())));
  }
  return made;
}

nb::object Call::value() {
  Message message{.body = answer_.reply.body, .payload = answer_.reply.payload};
  nb::object keeper;
  nb::object target;
  if (into) {
    target = nb::borrow(into.view());
    keeper = target;
    message.views = true;
  } else if (answer_.storage.payload.size() != 0) {
    keeper = memory_object(answer_.storage.payload);
  }
  message.keeper = keeper.ptr();
  nb::object made = result(message, target);
  if (!whole) return made;
  nb::object attached = nb::none();
  if (!answer_.reply.attachment.empty()) attached = nb::steal(slice_of(keeper.ptr(), answer_.reply.attachment));
  return hooks().make_reply(made, attached, metadata_list(answer_.reply.metadata.copy()));
}

void Call::release() noexcept {
  arguments = {};
  attachment = {};
  into = {};
  answer_ = {};
}

class Connecting final : public Work {
 public:
  using Work::Work;

 private:
  void begin() override { run(std::static_pointer_cast<Connecting>(shared_from_this())); }
  static detail::Serving run(std::shared_ptr<Connecting> work) {
    Begun begun{*work};
    co_await begun;
    Result<void> connected = co_await work->client_->connect();
    if (!connected) work->error_ = std::move(connected.error());
    work->finish();
  }
  nb::object value() override { return nb::none(); }
};

// Asks the server for the types of a method. The future gets a Method.
class Describing final : public Work {
 public:
  Describing(std::shared_ptr<ClientCore> client, std::shared_ptr<Hub> hub, nb::handle future, std::string name)
      : Work(std::move(client), std::move(hub), future), name_(std::move(name)) {}

 private:
  void begin() override { run(std::static_pointer_cast<Describing>(shared_from_this())); }
  static detail::Serving run(std::shared_ptr<Describing> work) {
    Begun begun{*work};
    co_await begun;
    Result<void> connected = co_await work->client_->connect();  // At once, if there is a connection.
    if (!connected) {
      work->fail(std::move(connected.error()));
      co_return;
    }
    const std::string_view name = work->name_;
    Result<schema::Description> described;
    if (ClusterClient* const cluster = work->client_->cluster()) {
      described = co_await cluster->call<schema::describe>(name);
    } else {
      described = co_await work->client_->client().call<schema::describe>(name);
    }
    if (described) {
      work->description_ = std::move(*described);
    } else {
      work->error_ = explained(std::move(described.error()), work->name_);
    }
    work->finish();
  }
  static Error explained(Error error, const std::string& name) {
    // The name was asked for in an argument of the call above.
    if (error.code == ErrorCode::invalid_argument)
      error.code = ErrorCode::unknown_method;
    else if (error.code == ErrorCode::unknown_method) {
      error.text = "the server does not describe its methods (ServerOptions::describe), so that " +
                   name.substr(0, 200) + " cannot be called by its name alone: declare it with hawser.declare()";
    }
    return error;
  }
  nb::object value() override {
    auto plan = Plan::make(std::move(description_), nullptr, nullptr, hooks().make_struct.ptr());
    if (plan == nullptr) throw nb::python_error();
    return nb::cast(Method{std::move(plan)});
  }

  const std::string name_;
  schema::Description description_;
};

// The future gets the name of the connection's transport, and pairs of another transport and the reason against it.
class TransportQuestion final : public Work {
 public:
  using Work::Work;

 private:
  void begin() override {
    const Client& client = client_->client();
    name_ = client.transport();
    reasons_ = client.fallback_reasons();
    finish();
  }
  nb::object value() override {
    nb::dict reasons;
    for (const TransportFallback& one : reasons_) reasons[one.transport.c_str()] = one.reason;
    return nb::make_tuple(name_, reasons);
  }

  std::string name_;
  std::vector<TransportFallback> reasons_;
};

class Closing final : public Work {
 public:
  using Work::Work;

 private:
  void begin() override {
    // After finish(), Python may drop this object's reference to the client at any time.
    const std::shared_ptr<ClientCore> client = client_;
    finish();
    client->close();
  }
  nb::object value() override { return nb::none(); }
};

std::shared_ptr<Work> start_call(const std::shared_ptr<ClientCore>& client, const std::shared_ptr<Hub>& hub,
                                 const nb::object& future, const Method& method, const nb::tuple& arguments,
                                 nb::handle timeout, nb::handle attachment, nb::handle into, nb::handle metadata,
                                 bool whole, bool idempotent, const std::shared_ptr<CallStreams>& streams) {
  const auto call = std::make_shared<Call>(client, hub, future);
  call->plan = method.plan;
  call->whole = whole;
  call->streams = streams;
  PyObject* const* const values = &PyTuple_GET_ITEM(arguments.ptr(), 0);
  if (!encode_arguments(*method.plan, values, nb::len(arguments), call->arguments)) throw nb::python_error();
  call->set_timeout(duration_of(timeout));
  call->options.idempotent = idempotent;
  if (!metadata.is_none()) call->options.metadata = metadata_of(metadata);
  if (!attachment.is_none()) {
    if (!call->attachment.acquire(attachment.ptr(), PyBUF_C_CONTIGUOUS)) throw nb::python_error();
    call->options.attachment = call->attachment.bytes();
  }
  if (!into.is_none() && !call->into.acquire(into.ptr(), PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)) throw nb::python_error();
  client->submit(call);
  return call;
}

template <class Kind>
std::shared_ptr<Work> start_work(const std::shared_ptr<ClientCore>& client, const std::shared_ptr<Hub>& hub,
                                 const nb::object& future) {
  auto work = std::make_shared<Kind>(client, hub, future);
  client->submit(work);
  return work;
}

// False: `address` is that of one server.
bool is_name(std::string_view address, const std::vector<NamingScheme>& schemes) {
  const std::string_view head = address.substr(0, address.find(':'));
  return std::ranges::any_of(schemes, [&](const NamingScheme& one) { return one.name == head; });
}

Balancing balancing_of(const std::string& name) {
  static constexpr std::pair<std::string_view, Balancing> kinds[] = {
      {"p2c", Balancing::p2c},
      {"least_request", Balancing::least_request},
      {"round_robin", Balancing::round_robin},
      {"weighted_round_robin", Balancing::weighted_round_robin},
      {"random", Balancing::random},
      {"pick_first", Balancing::pick_first},
  };
  for (const auto& [known, kind] : kinds) {
    if (known == name) return kind;
  }
  throw nb::value_error(
      "hawser: balancing is \"p2c\", \"least_request\", \"round_robin\", \"weighted_round_robin\", \"random\" or "
      "\"pick_first\"");
}

Duration pause_of(nb::handle seconds) {
  const std::optional<Duration> pause = duration_of(seconds);
  if (!pause) throw nb::type_error("hawser: a pause of Retry is a number of seconds, not None");
  return *pause;
}

// From an object of hawser.Retry.
RetryPolicy retry_of(nb::handle given) {
  RetryPolicy policy;
  policy.attempts_max = nb::cast<unsigned>(given.attr("attempts_max"));
  policy.backoff_first = pause_of(given.attr("backoff_first"));
  policy.backoff_max = pause_of(given.attr("backoff_max"));
  policy.codes.clear();
  for (const nb::handle code : given.attr("codes")) {
    policy.codes.push_back(static_cast<ErrorCode>(nb::cast<int>(nb::int_(code))));
  }
  return policy;
}

std::shared_ptr<ClientCore> make_client(std::string address, double connect_timeout, nb::handle call_timeout,
                                        const std::vector<std::string>& transports, std::string require,
                                        std::size_t message_bytes_max, std::size_t calls_in_flight_max, nb::handle tls,
                                        const std::optional<std::string>& balancing, nb::handle retry, bool grpc) {
  ClusterOptions options;
  ClientOptions& client = options.pool.client;
  client.connect_timeout = *duration_of(nb::float_(connect_timeout));
  client.call_timeout = duration_of(call_timeout).value_or(forever);
  client.message_bytes_max = message_bytes_max;
  client.calls_in_flight_max = calls_in_flight_max;
  client.transports.enabled = transports_of(transports);
  client.transports.required = std::move(require);
  client.security = client_security(tls);
  if (grpc) client = grpc_client_options(client);
  options.naming = naming_schemes();
  if (!is_name(address, options.naming)) options.naming.clear();
  if (options.naming.empty() && (balancing || !retry.is_none())) {
    throw nb::value_error(
        "hawser: balancing and retry are options of a name, such as list:host:port,host:port, and this is the address "
        "of "
        "one server");
  }
  if (balancing) options.balancing.kind = balancing_of(*balancing);
  if (!retry.is_none()) options.retry = retry_of(retry);
  return ClientCore::make(std::move(address), std::move(options), grpc);
}

}  // namespace

void bind_client(nb::module_& module) {
  nb::class_<Work>(module, "Work").def("cancel", &Work::cancel);
  nb::class_<ClientCore>(module, "ClientCore")
      .def("call", &start_call, nb::arg("hub"), nb::arg("future"), nb::arg("method"), nb::arg("arguments"),
           nb::arg("timeout").none(), nb::arg("attachment").none(), nb::arg("into").none(), nb::arg("metadata").none(),
           nb::arg("whole"), nb::arg("idempotent"), nb::arg("streams").none())
      .def("connect", &start_work<Connecting>)
      .def("close", &start_work<Closing>)
      .def("carrier",
           [](const std::shared_ptr<ClientCore>& client, const std::shared_ptr<Hub>& hub, const nb::object& future) {
             client->require_address("the transport");
             return start_work<TransportQuestion>(client, hub, future);
           })
      .def("describe",
           [](const std::shared_ptr<ClientCore>& client, const std::shared_ptr<Hub>& hub, const nb::object& future,
              std::string name) -> std::shared_ptr<Work> {
             client->require_descriptions();
             auto work = std::make_shared<Describing>(client, hub, future, std::move(name));
             client->submit(work);
             return work;
           });
  module.def("make_client", &make_client, nb::arg("address"), nb::arg("connect_timeout"),
             nb::arg("call_timeout").none(), nb::arg("transports"), nb::arg("require"), nb::arg("message_bytes_max"),
             nb::arg("calls_in_flight_max"), nb::arg("tls").none(), nb::arg("balancing").none(),
             nb::arg("retry").none(), nb::arg("grpc"));
  nb::class_<Hub>(module, "Hub")
      .def(nb::new_([] { return std::make_shared<Hub>(); }))
      .def_prop_ro("descriptor", &Hub::descriptor)
      .def("drain",
           [](Hub& hub) {
             if (!with_interpreter([&] { return hub.drain(); })) throw nb::python_error();
           })
      .def("wait", [](const Hub& hub, int timeout_ms) {
        PyThreadState* const state = PyEval_SaveThread();
        hub.wait(timeout_ms);
        with_interpreter([&] { PyEval_RestoreThread(state); });
      });
}

}  // namespace hawser::python
