#include "hawser/change_option.h"

#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include "base/try.h"
#include "rpc/server/inspector.h"
#include "rpc/server/live_options.h"
#include "rpc/server/server_state.h"

namespace hawser {
namespace {

// Pauses between two looks at the loops.
constexpr Duration look_interval = std::chrono::microseconds(200);

template <class Value>
Result<void> change_member(Server& server, const rpc::OptionMember& member, Value value, std::string_view by) {
  const std::string_view name = rpc::LiveOptions::name_of(member);
  if (name.empty()) {
    return fail(ErrorCode::invalid_argument,
                "this option of ServerOptions cannot be changed while the server runs: changeable_options() lists "
                "those that can be changed");
  }
  return rpc::Inspector::change_option(server, name, rpc::option_text(value), by);
}

}  // namespace

Result<void> Server::State::change_option(std::string_view name, std::string_view value, std::string_view by) {
  if (in_child()) {
    return fail(ErrorCode::invalid_argument, "the server was started by the parent of this process: change it there");
  }
  TRY(rpc::LiveOptions::Done&& done, shared.live.change(name, value, by));
  try {
    const std::lock_guard guard(counting);
    if (done.for_loops) {
      for (const auto& loop : loops) loop->request_options();
    }
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::limit_exceeded,
                "an option has changed, but memory is exhausted and some loops do not know it: change it again");
  }
  log_sink()(LogLevel::info, "audit", done.line);
  return {};
}

LogSink Server::State::log_sink() const {
  const std::lock_guard guard(counting);
  return loops.empty() ? shared.options.loop.log : loops.front()->loop().options().log;
}

namespace rpc {

Result<void> Inspector::change_option(Server& server, std::string_view name, std::string_view value,
                                      std::string_view by) {
  return server.state_->change_option(name, value, by);
}

void Inspector::add_option(Server& server, OwnOption option) { server.state_->shared.live.add(std::move(option)); }

std::vector<OptionState> Inspector::changeable_options(const Server& server) {
  return server.state_->shared.live.list();
}

void Inspector::audit(const Server& server, std::string_view line) {
  server.state_->log_sink()(LogLevel::info, "audit", line);
}

ServerOptions Inspector::current_options(const Server& server) {
  ServerOptions options = server.state_->shared.options;
  static_cast<void>(server.state_->shared.live.take(options));
  return options;
}

Task<std::vector<std::size_t>> Inspector::options_taken(const Server& server, Loop& here) {
  Server::State& state = *server.state_;
  const std::uint64_t number = state.shared.live.number();
  const Time end = here.after(wait_max);
  for (;;) {
    std::vector<std::size_t> late;
    {
      const std::lock_guard guard(state.counting);
      for (std::size_t i = 0; i < state.loops.size(); ++i) {
        if (state.loops[i]->options_taken() < number) late.push_back(i);
      }
    }
    if (late.empty() || here.now() >= end) co_return late;
    co_await here.sleep(look_interval);
  }
}

}  // namespace rpc

Result<void> change_option(Server& server, std::string_view name, std::string_view value, std::string_view by) {
  return rpc::Inspector::change_option(server, name, value, by);
}
Result<void> change_option(Server& server, std::size_t ServerOptions::* option, std::size_t value,
                           std::string_view by) {
  return change_member(server, option, std::uint64_t{value}, by);
}
Result<void> change_option(Server& server, std::uint32_t ServerOptions::* option, std::uint32_t value,
                           std::string_view by) {
  return change_member(server, option, std::uint64_t{value}, by);
}
Result<void> change_option(Server& server, Duration ServerOptions::* option, Duration value, std::string_view by) {
  return change_member(server, option, value, by);
}
Result<void> change_option(Server& server, bool ServerOptions::* option, bool value, std::string_view by) {
  return change_member(server, option, value, by);
}
Result<void> change_option(Server& server, Duration LoopOptions::* option, Duration value, std::string_view by) {
  return change_member(server, option, value, by);
}

void add_option(Server& server, OwnOption option) { rpc::Inspector::add_option(server, std::move(option)); }

std::vector<OptionState> changeable_options(const Server& server) { return rpc::Inspector::changeable_options(server); }

}  // namespace hawser
