#include "block/nbd/session.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <optional>
#include <utility>

#include "block/nbd/protocol.h"
#include "block/store/store_error.h"

namespace hawser::block::nbd {
namespace {

constexpr std::size_t extents_listed_max = 1024;

// Bytes of memory that the request needs.
std::size_t request_data_bytes(const NbdRequest& request) noexcept {
  return request.type == command::read || request.type == command::write ? request.length : 0;
}

Error out_of_memory() { return Error::application(ENOMEM, "the machine has no memory for the request"); }

}  // namespace

// ---- The connection ----

NbdSession::NbdSession(Loop& loop, SocketStream socket, NbdPeer peer, Exports& exports, Semaphore& memory,
                       const SessionLimits& limits, std::shared_ptr<transport::ServerSecurity> security)
    : loop_(loop),
      handshake_timeout_(limits.handshake_timeout),
      socket_(std::move(socket)),
      negotiation_(loop, socket_, input_, std::move(peer), exports, std::move(security)),
      admission_(loop, limits.requests_in_flight_max, limits.bytes_in_flight_max, memory) {
  activity_.begin(loop_.now());
}

NbdSession::~NbdSession() {
  replies_.clear();
  loop_.remove_tick_end(*this);
}

Task<void> NbdSession::run() {
  timer_.start(loop_, loop_.after(handshake_timeout_));
  try {
    watches_.spawn(watch_socket());
    device_ = co_await negotiation_.run();
    if (device_) {
      timer_.stop();
      const std::stop_callback ends_with_device(device_->lost(), [this] { abort(); });
      disconnected_ = co_await transmit();
      if (!disconnected_ && socket_.peer_ended()) device_->abandon();
    }
  } catch (const std::bad_alloc&) {
    abort();
  }
  // The offload threads use the memory of the requests until they have ended.
  co_await requests_.join();
  timer_.start(loop_, loop_.after(handshake_timeout_));
  replies_.send(socket_);
  if (!replies_.empty()) co_await send_rest();
  socket_.stop_receiving();
  (void)co_await socket_.finish();
  timer_.stop();
}

// Notices the peer's end and a break also while nothing is received or sent.
Task<void> NbdSession::watch_socket() {
  try {
    co_await socket_.wait(SocketEvent::peer_end);
    // Requests that wait for permits do not begin: see NbdDevice::abandon(). Others before a disconnect do.
    stopping_.request_stop();
    co_await socket_.wait(SocketEvent::broken);
    on_tick_end();
  } catch (const std::bad_alloc&) {
    abort();
  }
}

// Sends the replies that the socket has not accepted.
Task<void> NbdSession::send_rest() {
  sending_ = true;
  try {
    while (!replies_.empty() && !socket_.broken()) {
      co_await socket_.wait(SocketEvent::writable);
      replies_.send(socket_);
    }
  } catch (const std::bad_alloc&) {
    abort();
  }
  sending_ = false;
}

void NbdSession::stop() {
  stopping_.request_stop();
  socket_.stop_receiving();
}

void NbdSession::abort() noexcept {
  stopping_.request_stop();
  socket_.abort();
  on_tick_end();
}

void NbdSession::check_rights() {
  if (!device_ || ended() || negotiation_.permits(device_->info())) return;
  loop_.log(LogLevel::info, "nbd",
            "a connection of " + peer().client() + " to volume " + device_->info().name +
                " was ended: the rules have changed");
  abort();
}

void NbdSession::observe_pace(std::size_t bytes_min) noexcept {
  const std::uint64_t moved = input_.received_bytes() + replies_.sent_bytes();
  activity_.observe(loop_.now(), {.holds = held_bytes() > 0, .works = !requests_.empty()}, moved, bytes_min);
}

NbdMemoryHolder NbdSession::holder(Duration silence_max) const noexcept {
  const std::size_t unreceived = incomplete_bytes_ > 0 ? reader_.data_bytes() : 0;
  return {.held_bytes = held_bytes(),
          .missing_bytes = unreceived + (replies_.held_bytes() > 0 ? replies_.unsent_bytes() : 0),
          .silent = activity_.silence(loop_.now()) >= silence_max};
}

void NbdSession::on_tick_end() {
  replies_.send(socket_);
  if (socket_.broken()) {
    stopping_.request_stop();
    if (device_ && !disconnected_) device_->abandon();
    replies_.clear();
    socket_.stop_receiving();
  } else if (!replies_.empty() && !sending_) {
    try {
      watches_.spawn(send_rest());
    } catch (const std::bad_alloc&) {
      abort();
    }
  }
}

// Receives behind the unused bytes. `missing`: see NbdInput::room(). The client has the replies first, so that it
// makes requests while others are executed.
Task<Result<void>> NbdSession::fill(std::size_t missing) {
  on_tick_end();
  batches_left_ = batches_max;
  return receive_input(socket_, input_, missing);
}

// ---- Requests ----

// Returns true after a disconnect.
Task<bool> NbdSession::transmit() {
  for (;;) {
    const RequestReader::Step step = reader_.next(input_.unused());
    if (step.event == RequestReader::Event::invalid) {
      abort();
      co_return false;
    }
    if (step.event == RequestReader::Event::more) {
      if (!co_await fill()) co_return false;
      continue;
    }
    input_.use(step.consumed);
    const NbdRequest& request = step.request;
    if (request.type == command::disconnect) co_return true;
    if (can_run_now(request)) {
      while (input_.unused().size() < reader_.data_bytes()) {
        if (!co_await fill(reader_.data_bytes() - input_.unused().size())) co_return false;
      }
      if (socket_.broken()) co_return false;
      if (run_now(request)) continue;
    }
    if (!co_await begin(request)) co_return false;
  }
}

bool NbdSession::can_run_now(const NbdRequest& request) const {
  return (request.type == command::read || request.type == command::write) &&
         request.length <= std::min(device_->direct_bytes_max(), run_now_bytes_max) &&
         check(request, device_->info(), negotiation_.negotiated()).error == status::ok;
}

// Executes a read or a write without a task and without memory of its own: a write from the buffer that has received
// its data, which contains all of them, and a read into the memory of the reply. Returns false if the request has to
// wait.
bool NbdSession::run_now(const NbdRequest& request) {
  const bool reads = request.type == command::read;
  const ReplyHead head =
      reads ? ReplyHead::data(request, negotiation_.negotiated().structured_replies) : ReplyHead::success(request);
  const std::size_t head_bytes = head.bytes().size();
  const std::size_t reply_bytes = head_bytes + (reads ? request.length : 0);
  Permit slot = acquire_slot_now(reply_bytes);
  if (!slot) return false;
  const MutableBytes reply = replies_.batch().memory(reply_bytes);
  std::optional<Result<void>> done;
  try {
    done = reads ? device_->read_now(request.offset, reply.subspan(head_bytes))
                 : device_->write_now(request.offset, input_.unused().first(request.length),
                                      (request.flags & command_flag::fua) != 0);
  } catch (const std::bad_alloc&) {
    done = std::unexpected(out_of_memory());
  }
  if (!done) return false;
  input_.use(reader_.data_bytes());
  reader_.took_data(reader_.data_bytes());
  if (*done) {
    std::memcpy(reply.data(), head.bytes().data(), head_bytes);
    replies_.batch().add(reply_bytes, std::move(slot));
    loop_.at_tick_end(*this);
  } else {
    auto pending = std::make_unique<PendingRequest>();
    pending->request = request;
    pending->slot = std::move(slot);
    answer_with(*done, std::move(pending));
  }
  return true;
}

// For a request with a reply in the batch. Empty if the batch has no room, if too many requests are in progress, or if
// the connection has ended.
Permit NbdSession::acquire_slot_now(std::size_t reply_bytes) {
  if (replies_.batch_room() < reply_bytes && batches_left_ > 0) {
    --batches_left_;
    on_tick_end();
  }
  const bool refused = replies_.batch_room() < reply_bytes || socket_.broken();
  return refused ? Permit() : admission_.try_slot();
}

Task<bool> NbdSession::begin(NbdRequest request) {
  auto pending = std::make_unique<PendingRequest>();
  pending->request = request;
  pending->slot = admission_.try_slot();
  if (!pending->slot && !co_await admission_.acquire_slot(*pending, stopping_.get_token())) co_return false;
  Refusal refusal = check(request, device_->info(), negotiation_.negotiated());
  if (refusal.error == status::ok && (request.flags & command_flag::fast_zero) != 0 &&
      !device_->fast_zeroes(request.length, (request.flags & command_flag::no_hole) == 0)) {
    refusal = {status::not_supported, "zeros are not faster than a write here"};
  }
  const std::size_t bytes = refusal.error == status::ok ? request_data_bytes(request) : 0;
  if (bytes > 0) {
    if (!co_await admission_.acquire_memory(*pending, bytes, stopping_.get_token())) co_return false;
    try {
      pending->data.emplace(bytes);
    } catch (const std::bad_alloc&) {
      refusal = {status::no_memory, "the machine has no memory for the request"};
    }
  }
  if (refusal.error != status::ok) co_return co_await refuse(std::move(pending), refusal);
  if (request.type == command::write && !co_await receive_data(pending->data->bytes())) co_return false;
  if (socket_.broken()) co_return false;
  requests_.spawn(execute(std::move(pending)));
  co_return true;
}

Task<bool> NbdSession::refuse(std::unique_ptr<PendingRequest> pending, Refusal refusal) {
  if (!co_await skip_data()) co_return false;
  pending->reply =
      ReplyHead::failure(pending->request, negotiation_.negotiated().structured_replies, refusal.error, refusal.text);
  answer(std::move(pending));
  co_return true;
}

Task<bool> NbdSession::receive_data(MutableBytes into) {
  const std::size_t there = std::min(into.size(), input_.unused().size());
  std::memcpy(into.data(), input_.unused().data(), there);
  input_.use(there);
  reader_.took_data(there);
  incomplete_bytes_ = permitted_bytes(into.size());
  for (into = into.subspan(there); !into.empty();) {
    const Result<std::size_t> got = co_await socket_.receive(into);
    if (!got || *got == 0) break;
    reader_.took_data(*got);
    input_.count(*got);
    into = into.subspan(*got);
  }
  incomplete_bytes_ = 0;
  co_return into.empty();
}

// Discards the data of a write.
Task<bool> NbdSession::skip_data() {
  while (reader_.data_bytes() > 0) {
    if (input_.unused().empty() && !co_await fill()) co_return false;
    const std::size_t part = std::min(reader_.data_bytes(), input_.unused().size());
    input_.use(part);
    reader_.took_data(part);
  }
  co_return true;
}

Task<void> NbdSession::execute(std::unique_ptr<PendingRequest> pending) {
  Result<void> done;
  try {
    done = co_await run_request(*pending);
  } catch (const std::bad_alloc&) {
    done = std::unexpected(out_of_memory());
  }
  try {
    answer_with(done, std::move(pending));
  } catch (const std::bad_alloc&) {
    abort();
  }
}

Task<Result<void>> NbdSession::run_request(PendingRequest& pending) {
  const NbdRequest& request = pending.request;
  const bool fua = (request.flags & command_flag::fua) != 0;
  pending.reply = ReplyHead::success(request);
  switch (request.type) {
    case command::read:
      pending.reply = ReplyHead::data(request, negotiation_.negotiated().structured_replies);
      pending.sends_data = true;
      co_return co_await device_->read(request.offset, pending.data->bytes());
    case command::write: co_return co_await device_->write(request.offset, pending.data->bytes(), fua);
    case command::flush: co_return co_await device_->flush();
    case command::trim: {
      Result<void> done = co_await device_->discard(request.offset, request.length);
      if (done && fua) done = co_await device_->flush();
      co_return done;
    }
    case command::write_zeroes:
      co_return co_await device_->write_zeroes(request.offset, request.length,
                                               (request.flags & command_flag::no_hole) == 0, fua);
    default: co_return co_await read_extents(pending);
  }
}

Task<Result<void>> NbdSession::read_extents(PendingRequest& pending) {
  const NbdRequest& request = pending.request;
  const bool one = (request.flags & command_flag::one_extent) != 0;
  const Result<std::vector<Extent>> extents =
      co_await device_->extents(request.offset, request.length, one ? 1 : extents_listed_max);
  if (!extents) co_return std::unexpected(extents.error());
  pending.reply = ReplyHead::block_status(request, *extents);
  co_return Result<void>{};
}

void NbdSession::answer_with(const Result<void>& done, std::unique_ptr<PendingRequest> pending) {
  if (!done) {
    pending->sends_data = false;
    pending->reply = ReplyHead::failure(pending->request, negotiation_.negotiated().structured_replies,
                                        status_of(done.error()), done.error().text);
  }
  answer(std::move(pending));
}

void NbdSession::answer(std::unique_ptr<PendingRequest> pending) {
  if (socket_.broken()) return;
  // The reply needs no data of the request.
  if (!pending->sends_data) {
    pending->data.reset();
    pending->bytes.release();
    pending->memory.release();
  }
  replies_.push(std::move(pending));
  loop_.at_tick_end(*this);
}

}  // namespace hawser::block::nbd
