#include "server.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <span>
#include <stop_token>
#include <utility>

#include "convert.h"
#include "grpc_peers.h"
#include "hawser/detail/const_buffers.h"
#include "hawser/detail/protobuf_bodies.h"
#include "hawser/detail/send_reply.h"
#include "hawser/detail/unimplemented.h"
#include "method.h"
#include "tls.h"

// The methods by which a server describes itself. The library's own describe functions that the compiler makes, and not
// what is known at run time only.
template <>
inline constexpr std::string_view hawser::method_name_override<&hawser::python::ServerCore::list> =
    "hawser::schema::list";
template <>
inline constexpr std::string_view hawser::method_name_override<&hawser::python::ServerCore::describe> =
    "hawser::schema::describe";
template <>
inline constexpr std::string_view hawser::method_name_override<&hawser::python::ServerCore::is_serving> =
    "hawser::is_serving";

namespace hawser::python {

class StopEvent final : public Event {
 public:
  explicit StopEvent(std::shared_ptr<IncomingCall> call) noexcept : call_(std::move(call)) {}
  bool deliver() override {
    call_->stopped_ = true;
    if (!call_->task_) return true;
    const Reference done(PyObject_CallMethod(call_->task_.get(), "cancel", nullptr));
    return static_cast<bool>(done);
  }

 private:
  std::shared_ptr<IncomingCall> call_;
};

namespace {

// Makes the thread of Python drop references, such as those to memory that has been sent.
class DropEvent final : public Event {
 public:
  bool deliver() override { return true; }
};

class FunctionHandler final : public detail::Handler {
 public:
  FunctionHandler(std::shared_ptr<const ServedFunction> function, ServerCore& server)
      : function_(std::move(function)), server_(server) {}
  void serve(const detail::IncomingRequest& request) override { run(request, function_, server_); }

 private:
  static detail::Serving run(const detail::IncomingRequest& request, std::shared_ptr<const ServedFunction> function,
                             ServerCore& server);
  static bool send(detail::ActiveCall& call, IncomingCall& answer, const ServedFunction& function);

  const std::shared_ptr<const ServedFunction> function_;
  ServerCore& server_;
};

// Removes a call from the list of its server, also if the coroutine is destroyed.
struct Entered {
  ServerCore& server;
  IncomingCall& call;
  Entered(ServerCore& of, IncomingCall& entered) : server(of), call(entered) { server.enter(call); }
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;
  ~Entered() { server.leave(call); }
};

detail::Serving FunctionHandler::run(const detail::IncomingRequest& request,
                                     std::shared_ptr<const ServedFunction> function, ServerCore& server) {
  detail::ReplySink& sink = request.sink;
  const std::uint32_t id = request.call;
  try {
    detail::ActiveCall call(request, detail::ActiveCall::Keep::copy_small);
    co_await call.self();
    if (!call.admitted()) co_return;
    const auto incoming = std::make_shared<IncomingCall>(function, call);
    {
      const Entered entered(server, *incoming);
      const auto stop = [one = incoming.get()] { one->on_stop(); };
      const std::stop_callback on_stop(call.token(), stop);
      const CallStreams::Attached attached(incoming->streams(),
                                           function->has_streams() ? call.share_stream() : nullptr);
      IncomingCall::Answered answered{*incoming};
      co_await answered;
    }
    // Behind an end, the error might come too late for the caller's loop over the items.
    if (function->has_streams() && !incoming->error) call.stream().end();
    const bool keeps = !incoming->result.kept.empty() || !incoming->attached.empty();
    if (send(call, *incoming, *function)) co_await call.released();
    incoming->result = {};
    incoming->attached = {};
    if (keeps) function->hub->push(std::make_shared<DropEvent>());
  } catch (...) {
    detail::reply_thrown(sink, id, function->plan->description().name, "answering the call");
  }
}

// True if memory is on loan to the connection.
bool FunctionHandler::send(detail::ActiveCall& call, IncomingCall& answer, const ServedFunction& function) {
  detail::ReplySink& sink = call.sink();
  if (answer.error) {
    const std::string_view name = function.plan->description().name;
    const Error error = answer.thrown
                            ? sink.exception_error(call.request().metadata, name, "the handler", answer.error->text)
                            : detail::handler_error(*answer.error);
    sink.reply_error(call.id(), error);
    return false;
  }
  const Encoded& result = answer.result;
  const codec::EncodedSize size{.body = result.body.size(), .payload = result.payload, .pieces = result.pieces.size()};
  const detail::ReplyExtras extras{answer.attached.bytes(), &answer.answer_metadata};
  detail::ConstBuffers pieces(size.pieces);
  const bool loans = size.pieces != 0 || !extras.attachment.empty();
  SendCompletion* const owner = loans ? &call.loan() : nullptr;
  std::byte* const body = sink.begin_reply(call.id(), size, extras);
  if (body == nullptr) {
    if (owner != nullptr) owner->on_send_complete();
    return false;
  }
  if (!result.body.empty()) std::memcpy(body, result.body.data(), result.body.size());
  std::ranges::copy(result.pieces, pieces.data());
  if (!extras.attachment.empty()) pieces.push({extras.attachment.data(), extras.attachment.size()});
  sink.end_reply(pieces.span(), owner);
  return loans;
}

// True if each body of the method, and each item of its streams, is one message.
bool has_message_bodies(const schema::Description& method) {
  const auto is_message = [&](std::uint32_t type) { return method.types[type].kind == schema::Kind::message; };
  const auto is_item = [&](const std::optional<std::uint32_t>& type) { return !type || is_message(*type); };
  const bool one_request = method.incoming ? method.arguments.empty() && is_message(*method.incoming)
                                           : method.arguments.size() == 1 && is_message(method.arguments[0]);
  const bool one_reply = method.outgoing ? !method.result : method.result.has_value();
  return one_request && one_reply && is_item(method.outgoing) && is_item(method.result);
}

Buffer kept(Block* block, Bytes bytes) {
  return bytes.empty() ? Buffer() : Buffer::keep(block, bytes.data(), bytes.size());
}

}  // namespace

// ---- IncomingCall ----

IncomingCall::IncomingCall(std::shared_ptr<const ServedFunction> function, const detail::ActiveCall& call)
    : function_(std::move(function)),
      streams_(function_->has_streams() ? std::make_shared<CallStreams>(function_->plan, function_->method().incoming,
                                                                        function_->method().outgoing, function_->hub)
                                        : nullptr),
      loop_(&call.sink().loop()) {
  const detail::IncomingRequest& request = call.request();
  if (request.deadline) {
    deadline_ = std::chrono::steady_clock::now() +
                std::chrono::duration_cast<std::chrono::steady_clock::duration>(*request.deadline - loop_->now());
  }
  // Python may read the request after the end of `call`, with which it shares the memory.
  const detail::IncomingRequest own = call.request_for(call.sink(), request.metadata);
  body_ = kept(own.head_block, own.body);
  payload_ = kept(own.payload_block, own.payload);
  attachment_ = kept(own.payload_block, own.attachment);
  if (!function_->wants_context) return;
  metadata_ = request.metadata.copy();
  peer_ = request.sink.peer();
  identity_ = request.sink.identity();
}

void IncomingCall::Answered::await_suspend(std::coroutine_handle<> waiting) {
  call.waiting_ = waiting;
  call.function_->hub->push(call.shared_from_this());
}

void IncomingCall::leave() noexcept {
  const std::lock_guard lock(mutex_);
  loop_ = nullptr;
  waiting_ = nullptr;
}

void IncomingCall::on_stop() { function_->hub->push(std::make_shared<StopEvent>(shared_from_this())); }

bool IncomingCall::claim() noexcept {
  const std::lock_guard lock(mutex_);
  return loop_ != nullptr && !std::exchange(answered_, true);
}

void IncomingCall::answer() {
  const std::lock_guard lock(mutex_);
  if (loop_ == nullptr) return;
  loop_->post([self = shared_from_this()] {
    if (const std::coroutine_handle<> waiting = std::exchange(self->waiting_, nullptr)) waiting.resume();
  });
}

void IncomingCall::abort() {
  if (!claim()) return;
  error = Error::of_call(ErrorCode::unavailable, "the interpreter of the server has ended");
  answer();
}

bool IncomingCall::deliver() {
  if (stopped_) {
    fail(static_cast<int>(ErrorCode::cancelled), 0, "the caller cancelled the call before it began");
    return true;
  }
  Error failed;
  nb::object keeper;
  if (!payload_.empty()) keeper = memory_object(payload_);
  const Message message{.body = body_.bytes(), .payload = payload_.bytes(), .keeper = keeper.ptr()};
  const Reference arguments(decode_arguments(*function_->plan, message, failed));
  if (!arguments) {
    if (failed.code == ErrorCode::ok) {
      failed = Error::of_call(ErrorCode::protocol_error, "the arguments do not fit their classes in Python");
      PyErr_WriteUnraisable(nullptr);
    }
    fail(static_cast<int>(failed.code), 0, std::move(failed.text));
    return true;
  }
  const nb::object self = nb::cast(shared_from_this());
  const Reference done(PyObject_CallFunctionObjArgs(function_->serve.get(), self.ptr(), arguments.get(), nullptr));
  if (done) return true;
  threw("the handler could not be started");
  return false;
}

void IncomingCall::reply(nb::handle value, nb::handle attachment, nb::handle metadata) {
  const std::optional<std::uint32_t> type = function_->plan->description().result;
  Encoded encoded;
  if (type && !encode_value(*function_->plan, *type, value.ptr(), encoded)) throw nb::python_error();
  if (!type && !value.is_none()) {
    PyErr_Format(PyExc_TypeError, "the handler of %s returns nothing by its annotation, not %R",
                 function_->plan->description().name.c_str(), value.ptr());
    throw nb::python_error();
  }
  BorrowedMemory memory;
  if (!attachment.is_none() && !memory.acquire(attachment.ptr(), PyBUF_C_CONTIGUOUS)) throw nb::python_error();
  Metadata beside = metadata_of(metadata);
  task_.reset();
  if (!claim()) return;
  answer_metadata = std::move(beside);
  if (memory) {
    const Bytes bytes = memory.bytes();
    attached = Buffer::of_foreign(bytes, [held = std::make_shared<BorrowedMemory>(std::move(memory))] {});
  }
  result = std::move(encoded);
  answer();
}

void IncomingCall::fail(int code, std::int32_t application_code, std::string text) {
  task_.reset();
  if (!claim()) return;
  error = Error{static_cast<ErrorCode>(code), ErrorScope::call, Initiator::local, application_code, std::move(text)};
  answer();
}

void IncomingCall::threw(std::string text) {
  task_.reset();
  if (!claim()) return;
  thrown = true;
  error = Error::of_call(ErrorCode::application, std::move(text));
  answer();
}

void IncomingCall::set_task(nb::handle task) { task_ = Reference::borrow(task.ptr()); }

nb::object IncomingCall::attachment() const { return attachment_.empty() ? nb::none() : memory_object(attachment_); }
nb::object IncomingCall::identity() const {
  const auto number = [](std::uint32_t id) { return id == Identity::no_user ? nb::none() : nb::cast(id); };
  return nb::make_tuple(to_string(identity_.kind), identity_.pid, number(identity_.uid), number(identity_.gid),
                        identity_.subject, identity_.issuer, nb::tuple(nb::cast(identity_.alt_names)),
                        identity_.spiffe_id, nb::tuple(nb::cast(identity_.claims)), identity_.text());
}
nb::object IncomingCall::metadata() const { return metadata_list(metadata_); }
std::optional<double> IncomingCall::remaining_s() const {
  if (!deadline_) return std::nullopt;
  return std::chrono::duration<double>(*deadline_ - std::chrono::steady_clock::now()).count();
}

// ---- ServerCore ----

ServerCore::ServerCore(ServerOptions options)
    : generation_(process_generation()), server_(std::make_unique<Server>(std::move(options))) {
  server_->register_handler<&ServerCore::list, &ServerCore::describe, &ServerCore::is_serving>(this);
  names_ = {"hawser::schema::list", "hawser::schema::describe", "hawser::is_serving"};
}

std::shared_ptr<ServerCore> ServerCore::make(ServerOptions options, bool grpc) {
  const std::size_t message_bytes_max = options.message_bytes_max;
  auto made = std::make_shared<ServerCore>(std::move(options));
  if (grpc) serve_grpc(*made->server_, message_bytes_max);
  Engine::add(made);
  return made;
}

ServerCore::~ServerCore() {
  if (generation_ != process_generation()) {
    static_cast<void>(server_.release());  // It belongs to the parent process.
    return;
  }
  abort();
}

void ServerCore::add(std::shared_ptr<ServedFunction> function) {
  const schema::Description& method = function->plan->description();
  functions_[method.name] = function;
  names_.push_back(method.name);
  server_->add_method({.id = method.id,
                       .signature = method.signature,
                       .name = method.name,
                       .handler = std::make_unique<FunctionHandler>(function, *this),
                       .streams_in = method.incoming.has_value(),
                       .streams_out = method.outgoing.has_value(),
                       .json = has_message_bodies(method) ? std::make_shared<detail::ProtobufBodies>() : nullptr});
}

void ServerCore::start() {
  std::ranges::sort(names_);
  Result<void> started;
  {
    const nb::gil_scoped_release release;
    const SignalsBlocked blocked;
    started = server_->start();
  }
  if (!started) raise(started.error());
}

void ServerCore::stop(double grace_s) {
  if (generation_ != process_generation() || server_ == nullptr) return;
  server_->stop(std::chrono::duration_cast<Duration>(std::chrono::duration<double>(std::min(grace_s, 1e9))));
}

void ServerCore::release() {
  for (auto& [name, function] : functions_) function->serve.reset();
}

std::string ServerCore::address() const { return server_->address(); }

void ServerCore::abort() noexcept {
  if (generation_ != process_generation()) return;
  std::vector<std::shared_ptr<IncomingCall>> calls;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(ending_, true)) return;
    for (const auto& [address, weak] : calls_) {
      if (std::shared_ptr<IncomingCall> call = weak.lock()) calls.push_back(std::move(call));
    }
  }
  for (const std::shared_ptr<IncomingCall>& call : calls) call->abort();
  server_->stop(Duration::zero());
}

void ServerCore::enter(IncomingCall& call) {
  const std::lock_guard lock(mutex_);
  calls_.emplace(&call, call.weak_from_this());
}

void ServerCore::leave(IncomingCall& call) noexcept {
  const std::lock_guard lock(mutex_);
  calls_.erase(&call);
}

schema::Names ServerCore::list(std::string_view after) const {
  const auto begin = after.empty() ? names_.begin() : std::ranges::upper_bound(names_, after);
  const auto count = std::min(static_cast<std::size_t>(names_.end() - begin), schema::names_max);
  const auto end = begin + static_cast<std::ptrdiff_t>(count);
  return {.names = {begin, end}, .more = end != names_.end()};
}

Result<schema::Description> ServerCore::describe(std::string_view name) const {
  const auto at = functions_.find(std::string(name));
  if (at != functions_.end()) return at->second->plan->description();
  return hawser::fail(ErrorCode::invalid_argument, "the server has no method " + std::string(name.substr(0, 200)) +
                                                       ": hawser::schema::list() and `hawser list` name its methods");
}

Result<bool> ServerCore::is_serving(std::string_view service) const {
  const HealthStatus status = ServerHealth(*server_).status(service);
  if (status != HealthStatus::unknown) return status == HealthStatus::serving;
  return hawser::fail(ErrorCode::invalid_argument,
                      "the server has no health of the service " + std::string(service.substr(0, 200)));
}

namespace {

std::shared_ptr<ServerCore> make_server(std::string listen, unsigned threads,
                                        const std::vector<std::string>& transports, std::size_t message_bytes_max,
                                        std::size_t calls_max, bool exception_texts, nb::handle tls, bool grpc) {
  ServerOptions options;
  options.listen = std::move(listen);
  options.threads = threads;
  options.message_bytes_max = message_bytes_max;
  options.receive_bytes_max = std::max(options.receive_bytes_max, 4 * message_bytes_max);
  options.calls_max = calls_max;
  options.exception_texts = exception_texts;
  options.describe = false;  // ServerCore does.
  options.transports.enabled = transports_of(transports);
  options.security = server_security(tls);
  return ServerCore::make(std::move(options), grpc);
}

}  // namespace

void bind_server(nb::module_& module) {
  nb::class_<IncomingCall>(module, "IncomingCall")
      .def("reply", &IncomingCall::reply, nb::arg("value").none(), nb::arg("attachment").none(),
           nb::arg("metadata").none())
      .def("fail", &IncomingCall::fail)
      .def("threw", &IncomingCall::threw)
      .def("set_task", &IncomingCall::set_task)
      .def_prop_ro("attachment", &IncomingCall::attachment)
      .def_prop_ro("metadata", &IncomingCall::metadata)
      .def_prop_ro("identity", &IncomingCall::identity)
      .def_prop_ro("peer", &IncomingCall::peer)
      .def_prop_ro("remaining_s", &IncomingCall::remaining_s)
      .def_prop_ro("streams", &IncomingCall::streams);
  nb::class_<ServerCore>(module, "ServerCore")
      .def("add",
           [](ServerCore& server, const Method& method, const std::shared_ptr<Hub>& hub, nb::object serve,
              bool wants_context) {
             server.add(std::make_shared<ServedFunction>(
                 ServedFunction{method.plan, hub, Reference(serve.release().ptr()), wants_context}));
           })
      .def("start", &ServerCore::start)
      .def("release", &ServerCore::release)
      .def("stop", &ServerCore::stop, nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("address", &ServerCore::address);
  module.attr("unimplemented_mark") = detail::unimplemented_mark;
  module.def("make_server", &make_server, nb::arg("listen"), nb::arg("threads"), nb::arg("transports"),
             nb::arg("message_bytes_max"), nb::arg("calls_max"), nb::arg("exception_texts"), nb::arg("tls").none(),
             nb::arg("grpc"));
}

}  // namespace hawser::python
