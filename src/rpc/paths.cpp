#include "rpc/paths.h"

#include <algorithm>
#include <utility>

#include "hawser/loop.h"
#include "transport/framed_connection.h"

namespace hawser::rpc {
namespace {

const std::vector<std::string>& usual_order() {
  static const std::vector<std::string> usual = {"shm", "rdma", "ucx"};
  return usual;
}

}  // namespace

static_assert(transport::path_offer_bytes_max == wire::path_offer_bytes_max);
static_assert(transport::path_parameters_bytes_max == wire::path_parameters_bytes_max);

transport::PathLimits path_limits(std::size_t theirs, std::size_t ours) noexcept {
  constexpr std::size_t prefix = transport::FramedConnection::prefix_bytes;
  return {.send_bytes_max = std::min(theirs, ours) - prefix, .receive_bytes_max = ours - prefix};
}

Paths::Paths(Loop& loop, const std::vector<std::shared_ptr<transport::DataPath>>& paths,
             const TransportOptions& options)
    : loop_(loop), retry_min_(options.retry_min) {
  for (const std::string& name : options.order.empty() ? usual_order() : options.order) {
    if (!options.demand.empty() && options.demand != name) continue;
    for (const auto& path : paths) {
      if (path->name() == name && paths_.size() < wire::paths_max) paths_.push_back(path);
    }
  }
}

void Paths::attach() {
  const bool first = attached_.empty();
  // Looking for devices takes longer than a handshake.
  if (!first && loop_.now() - tried_ < retry_min_) return;
  tried_ = loop_.now();
  for (std::size_t i = 0; i < paths_.size(); ++i) {
    if (first) attached_.push_back({.name = paths_[i]->name()});
    Path& path = attached_[i];
    if (path.end != nullptr && path.end->usable()) continue;
    // Let go of first, so that a device that has gone can be taken away. Connections keep what they need.
    path.end.reset();
    Result<std::shared_ptr<transport::PathEnd>> end = paths_[i]->attach(loop_);
    if (end) {
      path.end = std::move(*end);
      continue;
    }
    path.reason = std::move(end.error().text);
    if (first) loop_.log(LogLevel::warning, "rpc", std::string(path.name) + " can't be used: " + path.reason);
  }
}

const Paths::Path* Paths::find(std::string_view name) const noexcept {
  const auto at = std::find_if(attached_.begin(), attached_.end(), [&](const Path& path) { return path.name == name; });
  return at == attached_.end() ? nullptr : &*at;
}

Result<void> check_names(const TransportOptions& options,
                         const std::vector<std::shared_ptr<transport::DataPath>>& paths) {
  const auto known = [&](const std::string& name) {
    return std::ranges::find(usual_order(), name) != usual_order().end() ||
           std::ranges::any_of(paths, [&](const auto& path) { return path->name() == name; });
  };
  const auto unknown = [](const char* option, const std::string& name, const char* rest) {
    return fail(ErrorCode::invalid_argument, std::string("TransportOptions::") + option + " names \"" + name +
                                                 "\", and there is no such transport: shm, rdma, ucx" + rest);
  };
  for (const std::string& name : options.order) {
    if (!known(name)) return unknown("order", name, "");
  }
  if (!options.demand.empty() && options.demand != "stream" && !known(options.demand)) {
    return unknown("demand", options.demand, " or stream");
  }
  return {};
}

bool Proposals::propose(wire::Hello& hello) {
  half_.reset();
  while (half_ == nullptr && next_ < paths_.all().size()) {
    const Paths::Path& path = paths_.all()[next_++];
    path_ = path.name;
    const auto offer =
        std::find_if(offers_.begin(), offers_.end(), [&](const wire::NamedBytes& one) { return one.name == path_; });
    if (offer == offers_.end()) continue;
    if (path.end == nullptr) {
      failed(path.reason);
      continue;
    }
    Result<std::unique_ptr<transport::PathHalf>> half = path.end->toward(local_).propose(offer->bytes, limits_);
    if (half) {
      half_ = std::move(*half);
    } else {
      failed(std::move(half.error().text));
    }
  }
  if (half_ != nullptr) {
    hello.proposal = {std::string(path_), half_->parameters()};
  } else {
    // Those that this server does not have at all.
    for (const wire::NamedBytes& offer : offers_) {
      if (paths_.find(offer.name) != nullptr) continue;
      path_ = offer.name;
      failed("the server has not enabled it");
    }
    path_ = {};
  }
  hello.declined = std::exchange(declined_, {});
  return half_ != nullptr;
}

void Proposals::failed(std::string reason) {
  half_.reset();
  ++failures_;
  const Bytes bytes = as_bytes(reason);
  declined_.push_back({std::string(path_), {bytes.begin(), bytes.end()}});
}

}  // namespace hawser::rpc
