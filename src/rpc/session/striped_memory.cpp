#include "hawser/striped_memory.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/decimal_text.h"
#include "exec/condition.h"
#include "hawser/loop.h"
#include "hawser/scope.h"
#include "os/dmabuf_range.h"
#include "rpc/session/path_rate.h"
#include "rpc/session/remote_access.h"

namespace hawser {

using detail::RemoteRequest;
using wire::MemoryAction;

namespace {

// The error with which a path refused the piece, if it has not failed.
std::optional<ErrorCode> refusal(bool begun, const Result<void>& outcome, const TransferBatch& piece) noexcept {
  if (outcome || outcome.error().code == ErrorCode::not_sent) return std::nullopt;
  const Error& error = outcome.error();
  bool refused = !begun;
  if (error.code == ErrorCode::unavailable) {
    // Either memory may be that of a descriptor. The peer says so in its reply.
    refused = begun ? error.scope == ErrorScope::call && error.initiator == Initiator::peer
                    : DmabufRange::names(piece.runs());
  }
  return refused ? std::optional(error.code) : std::nullopt;
}

}  // namespace

struct StripedMemory::State {
  struct Path {
    Client* client = nullptr;
    RemoteMemory memory;
    detail::PathRate rate = {};
    std::uint64_t bytes = 0;
    std::uint64_t failures = 0;
    Duration pause = Duration::zero();  // The last one. Zero: the path has not failed since its last success.
    Time retry_at = {};

    // A path that has failed gets one piece at a time until one succeeds.
    bool usable(Time now) const noexcept {
      return client->connected() && now >= retry_at && (pause == Duration::zero() || rate.outstanding() == 0);
    }
  };

  // Pieces that fail together are one failure.
  void failed(Path& path, Time began, Time now) const noexcept {
    ++path.failures;
    path.rate.forget();
    if (path.pause != Duration::zero() && began < path.retry_at) return;
    path.pause = std::clamp(2 * path.pause, options.retry_min, options.retry_max);
    path.retry_at = now + path.pause;
  }
  // The index of the path that is to carry a piece of `bytes` of `transfer` now. None if the piece has to wait, or if
  // no path is usable.
  std::optional<std::size_t> path_for(std::size_t bytes, const Transfer& transfer) const noexcept;

  StripeOptions options;
  std::vector<Path> paths;
};

// A part of an operation that one path carries.
struct StripedMemory::Piece {
  TransferBatch batch;
  bool unknown = false;  // A path failed that may have executed it.
  // The path did not carry it for a reason that concerns this operation only: there are too many accesses, its device
  // does not know the local memory, or it needs a processor for memory of a dma-buf descriptor. The path has not
  // failed.
  std::optional<ErrorCode> refused = std::nullopt;
};

// One operation in progress.
struct StripedMemory::Transfer {
  Transfer(State& of, RemoteRequest& what, Loop& on)
      : state(of),
        request(what),
        loop(on),
        runs(what.batch != nullptr ? what.batch->runs() : std::span<const TransferBatch::Run>(&what.single, 1)),
        in_progress(of.paths.size()),
        avoided(of.paths.size()),
        changed(on) {
    for (const TransferBatch::Run& one : runs) bytes += one.bytes;
    if (what.options.timeout < forever) deadline = on.after(what.options.timeout);
  }

  // Returns null if no piece is left.
  std::unique_ptr<Piece> next();
  bool may_retry(const Error& error, bool begun, bool by_device) const noexcept;
  // Ends the operation. The first error remains.
  void end_with(Error reason) {
    if (!error) error = std::move(reason);
  }
  Error all_failed() const;

  State& state;
  RemoteRequest& request;
  Loop& loop;
  const std::span<const TransferBatch::Run> runs;
  Time deadline = Time::max();
  std::size_t bytes = 0;
  std::size_t confirmed = 0;
  std::size_t under_way = 0;  // Bytes of the pieces in progress.
  std::size_t run = 0;        // The first byte that is in no piece.
  std::size_t offset = 0;
  std::vector<std::unique_ptr<Piece>> again;  // Pieces that failed on a path.
  std::vector<std::size_t> in_progress;       // Number of pieces, by path.
  std::size_t pieces = 0;                     // Their sum.
  // Paths that refused a piece get no other one before this time, unless they complete one.
  std::vector<Time> avoided;
  std::optional<Error> last_failure;  // The most recent failure of a path.
  std::optional<Error> error;         // The operation ends with it.
  exec::Condition changed;            // A piece ended.
};

// The path on which the piece is expected to complete first. If that path has its limit of pieces in progress, the
// piece goes to another one if it is expected to complete there before the full paths have carried all that is left. So
// a path that was measured while it was slow is measured again when it is not.
std::optional<std::size_t> StripedMemory::State::path_for(std::size_t bytes, const Transfer& transfer) const noexcept {
  const Time now = transfer.loop.now();
  // A path of unknown rate is regarded as the fastest, so that it is measured.
  double unknown = 1;
  for (const Path& path : paths) unknown = std::max(unknown, path.rate.bytes_per_second(now));
  struct Choice {
    std::optional<std::size_t> path;
    double seconds = 0;
    void consider(std::size_t other, double seconds_there) noexcept {
      if (path && seconds_there >= seconds) return;
      path = other;
      seconds = seconds_there;
    }
  };
  Choice all;
  Choice with_room;
  auto left = static_cast<double>(transfer.bytes - transfer.confirmed - transfer.under_way);
  double rate_of_full = 0;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    if (now < transfer.avoided[i] || !paths[i].usable(now)) continue;
    const detail::PathRate& rate = paths[i].rate;
    const double seconds = rate.seconds_until(bytes, unknown, now);
    all.consider(i, seconds);
    if (transfer.in_progress[i] < options.pieces_per_path) {
      with_room.consider(i, seconds);
    } else {
      const double known = rate.bytes_per_second(now);
      rate_of_full += known > 0 ? known : unknown;
      left += static_cast<double>(rate.outstanding());
    }
  }
  const bool worthwhile = with_room.path == all.path || with_room.seconds * rate_of_full <= left;
  return worthwhile ? with_room.path : std::nullopt;
}

std::unique_ptr<StripedMemory::Piece> StripedMemory::Transfer::next() {
  if (!again.empty()) {
    std::unique_ptr<Piece> failed = std::move(again.back());
    again.pop_back();
    return failed;
  }
  constexpr std::size_t blocks_max = 1024;
  std::unique_ptr<Piece> piece;
  while (run < runs.size()) {
    const TransferBatch::Run& from = runs[run];
    if (piece == nullptr) piece = std::make_unique<Piece>();
    const std::size_t part = std::min(from.bytes - offset, state.options.piece_bytes - piece->batch.bytes());
    if (part != 0) piece->batch.add({from.memory + offset, part}, from.offset + offset);
    offset += part;
    if (offset == from.bytes) {
      ++run;
      offset = 0;
    }
    if (piece->batch.bytes() == state.options.piece_bytes || piece->batch.blocks() == blocks_max) break;
  }
  return piece != nullptr && piece->batch.bytes() != 0 ? std::move(piece) : nullptr;
}

bool StripedMemory::Transfer::may_retry(const Error& failure, bool begun, bool by_device) const noexcept {
  switch (failure.code) {
    case ErrorCode::not_sent:
    case ErrorCode::unavailable:
    case ErrorCode::overloaded: return true;
    case ErrorCode::outcome_unknown:
      return request.action == MemoryAction::read || by_device || state.options.retry_frame_writes;
    case ErrorCode::cancelled:
    case ErrorCode::deadline_exceeded:
    case ErrorCode::stale_handle: return false;
    default: return !begun;  // For example: the device of this path does not know the local memory.
  }
}

Error StripedMemory::Transfer::all_failed() const {
  Error reason = Error::of_connection(
      ErrorCode::not_sent, "none of the " + count_text(state.paths.size(), "path") +
                               " is usable: connect their clients, or wait StripeOptions::retry_max after a failure");
  if (last_failure) {
    reason.code = last_failure->code;
    reason.text += "; the last failure was: " + last_failure->text;
  }
  const bool unknown =
      std::any_of(again.begin(), again.end(), [](const std::unique_ptr<Piece>& piece) { return piece->unknown; });
  if (unknown) {
    reason.code = ErrorCode::outcome_unknown;
  } else if (reason.code == ErrorCode::not_sent && confirmed != 0 && request.action == MemoryAction::write) {
    reason.code = ErrorCode::outcome_unknown;  // A part of it has been written.
  }
  return reason;
}

// Transfers the piece over one path. `local_use` expires when no device accesses the local memory any more.
Task<Result<void>> StripedMemory::attempt(Transfer& transfer, std::size_t index, Piece& piece,
                                          std::weak_ptr<const void>& local_use) {
  struct Outstanding {
    detail::PathRate& rate;
    std::size_t bytes;
    ~Outstanding() {
      if (bytes != 0) rate.withdrawn(bytes);
    }
  };
  State::Path& path = transfer.state.paths[index];
  const std::size_t bytes = piece.batch.bytes();
  RemoteRequest request = transfer.request;
  request.batch = &piece.batch;
  if (transfer.deadline != Time::max()) request.options.timeout = transfer.deadline - transfer.loop.now();
  const auto use = std::make_shared<char>();
  local_use = use;
  request.local_use = use;
  path.rate.started(bytes, transfer.loop.now());
  Outstanding outstanding{path.rate, bytes};
  Result<RemoteMemory::Access> begun = path.memory.begin(request);
  Result<void> outcome;
  if (begun) {
    outcome = co_await RemoteMemory::finish(*begun);
  } else {
    outcome = fail(begun.error());
  }
  piece.refused = refusal(begun.has_value(), outcome, piece.batch);
  if (outcome) {
    outstanding.bytes = 0;
    path.rate.completed(bytes, transfer.loop.now());
    path.bytes += bytes;
    path.pause = Duration::zero();
    co_return outcome;
  }
  piece.unknown = piece.unknown || outcome.error().code == ErrorCode::outcome_unknown;
  if (!transfer.may_retry(outcome.error(), begun.has_value(), begun && (*begun)->by_device())) {
    transfer.end_with(outcome.error());
  }
  co_return outcome;
}

Task<void> StripedMemory::carry(Transfer& transfer, std::size_t index, std::unique_ptr<Piece> piece) {
  std::weak_ptr<const void> local_use;
  const Time began = transfer.loop.now();
  Result<void> outcome;
  {
    outcome = co_await attempt(transfer, index, *piece, local_use);
  }
  const std::size_t bytes = piece->batch.bytes();
  if (outcome) {
    transfer.confirmed += bytes;
    transfer.avoided[index] = {};
  } else if (!transfer.error) {
    if (piece->refused) {
      // Accesses of others end at some time. Any other reason remains.
      const bool full = *piece->refused == ErrorCode::overloaded;
      transfer.avoided[index] = full ? transfer.loop.now() + transfer.state.options.retry_min : Time::max();
    } else {
      transfer.state.failed(transfer.state.paths[index], began, transfer.loop.now());
    }
    // The device of an ended connection may go on until its queue pair has been drained. The same bytes must not be
    // transferred twice at a time: a late read would overwrite what the application stores there afterwards.
    while (!local_use.expired() && transfer.loop.now() < transfer.deadline) {
      co_await transfer.loop.sleep(std::chrono::milliseconds(1));
    }
    if (!local_use.expired()) {
      transfer.end_with(
          Error::of_call(ErrorCode::deadline_exceeded,
                         "a path failed, and its device did not release the local memory within the timeout: " +
                             outcome.error().text));
    }
    transfer.last_failure = std::move(outcome.error());
    transfer.again.push_back(std::move(piece));
  }
  --transfer.in_progress[index];
  --transfer.pieces;
  transfer.under_way -= bytes;
  transfer.changed.notify_all();
}

Task<Result<void>> StripedMemory::run(std::shared_ptr<State> state, RemoteRequest request) {
  if (std::string wrong = detail::mistake(request); !wrong.empty()) {
    co_return fail(ErrorCode::invalid_argument, std::move(wrong));
  }
  request.priority = state->options.priority;
  Transfer transfer(*state, request, *Loop::current());
  Scope scope;
  while (!transfer.error) {
    std::unique_ptr<Piece> piece = transfer.next();
    if (piece == nullptr && transfer.pieces == 0) break;
    std::optional<std::size_t> path;
    if (piece != nullptr) path = state->path_for(piece->batch.bytes(), transfer);
    if (path) {
      ++transfer.in_progress[*path];
      ++transfer.pieces;
      transfer.under_way += piece->batch.bytes();
      scope.spawn(carry(transfer, *path, std::move(piece)));
      continue;
    }
    if (piece != nullptr) transfer.again.push_back(std::move(piece));
    if (transfer.pieces == 0) {
      transfer.end_with(transfer.all_failed());
      break;
    }
    co_await transfer.changed.wait();
  }
  if (!transfer.error) co_return Result<void>();
  Error error = std::move(*transfer.error);
  if (transfer.confirmed != 0) {
    error.text +=
        "; the peer has confirmed " + std::to_string(transfer.confirmed) + " of " + count_text(transfer.bytes, "byte");
  }
  co_return fail(std::move(error));
}

StripedMemory::StripedMemory(std::span<Client* const> paths, const StripeOptions& options)
    : state_(std::make_shared<State>()) {
  if (paths.empty() || std::find(paths.begin(), paths.end(), nullptr) != paths.end()) {
    throw std::invalid_argument("hawser: a StripedMemory needs at least one client, and none may be null");
  }
  state_->options = options;
  StripeOptions& kept = state_->options;
  kept.piece_bytes = std::clamp(options.piece_bytes, std::size_t{4} << 10, std::size_t{1} << 30);
  kept.pieces_per_path = std::clamp<std::size_t>(options.pieces_per_path, 1, 1024);
  kept.retry_min = std::clamp<Duration>(options.retry_min, std::chrono::milliseconds(1), std::chrono::hours(1));
  kept.retry_max = std::clamp<Duration>(options.retry_max, kept.retry_min, std::chrono::hours(1));
  for (Client* const client : paths) {
    state_->paths.push_back({.client = client, .memory = RemoteMemory(*client, options.priority)});
  }
}

Task<Result<void>> StripedMemory::read(RemoteRegion region, std::uint64_t offset, MutableBytes into,
                                       RemoteOptions options) {
  return run(state_, {.action = MemoryAction::read,
                      .region = region,
                      .single = {into.data(), offset, into.size()},
                      .options = options});
}

Task<Result<void>> StripedMemory::write(RemoteRegion region, std::uint64_t offset, Bytes from, RemoteOptions options) {
  return run(state_, {.action = MemoryAction::write,
                      .region = region,
                      .single = {const_cast<std::byte*>(from.data()), offset, from.size()},
                      .options = options});
}

Task<Result<void>> StripedMemory::read(RemoteRegion region, const TransferBatch& batch, RemoteOptions options,
                                       std::uint64_t base) {
  return run(state_,
             {.action = MemoryAction::read, .region = region, .batch = &batch, .base = base, .options = options});
}

Task<Result<void>> StripedMemory::write(RemoteRegion region, const TransferBatch& batch, RemoteOptions options,
                                        std::uint64_t base) {
  return run(state_,
             {.action = MemoryAction::write, .region = region, .batch = &batch, .base = base, .options = options});
}

std::vector<StripePath> StripedMemory::paths() const {
  std::vector<StripePath> all;
  const Loop* const loop = Loop::current();
  const Time now = loop != nullptr ? loop->now() : Time();
  for (const State::Path& path : state_->paths) {
    all.push_back({.usable = loop != nullptr && path.usable(now),
                   .one_sided = path.memory.capabilities().one_sided,
                   .bytes = path.bytes,
                   .failures = path.failures,
                   .outstanding_bytes = path.rate.outstanding(),
                   .bytes_per_second = path.rate.bytes_per_second(now)});
  }
  return all;
}

}  // namespace hawser
