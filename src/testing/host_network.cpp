#include "testing/host_network.h"

#include <utility>

namespace hawser::testing {
namespace {

std::unexpected<Error> other_loop() {
  return fail(Error::of_connection(
      ErrorCode::invalid_argument,
      "a simulated network is used on the simulation's loop only: give its loop to the Server or Client"));
}

}  // namespace

std::string HostNetwork::own(std::string_view address) const {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string_view::npos) return std::string(address);
  const std::string_view host = address.substr(0, colon);
  const bool here = host.empty() || host == "0.0.0.0" || host == "[::]" || host == "localhost" || host == "127.0.0.1" ||
                    host == "[::1]";
  return (here ? host_ : std::string(host)) + std::string(address.substr(colon));
}

Result<std::unique_ptr<transport::Listener>> HostNetwork::listen(Loop& loop, std::string_view address,
                                                                 transport::AcceptSink& sink) {
  if (&loop != *loop_) return other_loop();
  return network_->listen(loop, own(address), sink);
}

Task<Result<std::unique_ptr<transport::Stream>>> HostNetwork::connect(Loop& loop, std::string address,
                                                                      Duration timeout) {
  if (&loop != *loop_) co_return other_loop();
  co_return co_await network_->connect_from(loop, host_, own(address), timeout);
}

}  // namespace hawser::testing
