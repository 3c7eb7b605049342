// The work of clients: calls, connecting, descriptions.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <coroutine>
#include <cstring>
#include <optional>
#include <utility>

#include "client.h"
#include "convert.h"
#include "hawser/detail/call_channel.h"
#include "hawser/detail/client_link.h"
#include "method.h"
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
  class Operation;
  void begin() override { run(std::static_pointer_cast<Call>(shared_from_this())); }
  static detail::Serving run(std::shared_ptr<Call> call);
  static Task<std::optional<Error>> try_once(Call& call);
  // Subtracts the time since the call was made from its timeout. False if nothing is left.
  bool count_wait();
  nb::object value() override;
  nb::object result(Message message, const nb::object& target);
  void release() noexcept override;

  const std::chrono::steady_clock::time_point made_ = std::chrono::steady_clock::now();
  std::optional<Duration> timeout_;
  detail::ReplyStorage storage_;
  detail::Received kept_;
};

class Call::Operation final : public detail::CallOperation {
 public:
  Operation(detail::ClientLink& link, Call& call) noexcept : CallOperation(link), call_(call) {
    const schema::Description& method = call.plan->description();
    request_.method = method.id;
    request_.signature = method.signature;
    request_.name = method.name;
    request_.options = &call.options;
    request_.arguments_last = true;
    request_.streams = call.streams != nullptr;
    request_.streams_in = method.incoming.has_value();
    request_.streams_out = method.outgoing.has_value();
    Operation::measure();
  }
  ~Operation() { withdraw(); }

  using CallOperation::done, CallOperation::error, CallOperation::resumed, CallOperation::start, CallOperation::stream,
      CallOperation::wait;

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
    call_.kept_ = reply;
    if (!detail::keep_reply(call_.kept_, memory(), call_.storage_)) {
      error() = Error::of_call(ErrorCode::limit_exceeded, "the reply's payload is larger than the memory of `into`");
    }
  }
  MutableBytes memory() const noexcept override { return call_.into.mutable_bytes(); }

  Call& call_;
};

Task<std::optional<Error>> Call::try_once(Call& call) {
  struct Ended {
    Operation& operation;
    bool await_ready() const noexcept { return operation.done(); }
    bool await_suspend(std::coroutine_handle<> waiting) const { return operation.wait(waiting); }
    void await_resume() const noexcept { operation.resumed(); }
  };
  Operation operation(detail::link_of(call.client_->client()), call);
  operation.start();
  detail::StreamCore* const core = operation.stream();
  const CallStreams::Attached attached(call.streams, core == nullptr ? nullptr : core->shared_from_this());
  Ended ended{operation};
  co_await ended;
  co_return std::move(operation.error());
}

detail::Serving Call::run(std::shared_ptr<Call> call) {
  Begun begun{*call};
  co_await begun;
  if (!call->client_->client().connected()) {
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
  call->error_ = co_await try_once(*call);
  // The calls in flight that this connection allows, which the server may have lowered.
  const bool no_place =
      call->error_ && call->error_->code == ErrorCode::overloaded && call->error_->initiator == Initiator::local;
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
  if (target.is_valid() && PyBytes_Check(made.ptr()) && kept_.attachment.empty()) {
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
  Message message{.body = kept_.body, .payload = kept_.payload};
  nb::object keeper;
  nb::object target;
  if (into) {
    target = nb::borrow(into.view());
    keeper = target;
    message.views = true;
  } else if (storage_.payload.size() != 0) {
    keeper = memory_object(storage_.payload);
  }
  message.keeper = keeper.ptr();
  nb::object made = result(message, target);
  if (!whole) return made;
  nb::object attached = nb::none();
  if (!kept_.attachment.empty()) attached = nb::steal(slice_of(keeper.ptr(), kept_.attachment));
  return hooks().make_reply(made, attached, metadata_list(kept_.metadata.copy()));
}

void Call::release() noexcept {
  arguments = {};
  attachment = {};
  into = {};
  storage_ = {};
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
    Client& client = work->client_->client();
    Result<schema::Description> described = co_await client.call<schema::describe>(std::string_view(work->name_));
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

std::shared_ptr<ClientCore> make_client(std::string address, double connect_timeout, nb::handle call_timeout,
                                        const std::vector<std::string>& transports, std::size_t message_bytes_max,
                                        std::size_t calls_in_flight_max, nb::handle tls) {
  ClientOptions options;
  options.connect_timeout = *duration_of(nb::float_(connect_timeout));
  options.call_timeout = duration_of(call_timeout).value_or(forever);
  options.message_bytes_max = message_bytes_max;
  options.calls_in_flight_max = calls_in_flight_max;
  options.transports.enabled = transports_of(transports);
  options.security = client_security(tls);
  return ClientCore::make(std::move(address), std::move(options));
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
      .def("describe",
           [](const std::shared_ptr<ClientCore>& client, const std::shared_ptr<Hub>& hub, const nb::object& future,
              std::string name) -> std::shared_ptr<Work> {
             auto work = std::make_shared<Describing>(client, hub, future, std::move(name));
             client->submit(work);
             return work;
           });
  module.def("make_client", &make_client, nb::arg("address"), nb::arg("connect_timeout"),
             nb::arg("call_timeout").none(), nb::arg("transports"), nb::arg("message_bytes_max"),
             nb::arg("calls_in_flight_max"), nb::arg("tls").none());
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
