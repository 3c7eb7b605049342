#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "hawser/brpc.h"
#include "protocol/baidu_std/server_session.h"
#include "rpc/port/port_protocol.h"

namespace hawser {
namespace protocol::baidu_std {
namespace {

class BaiduStdProtocol final : public rpc::PortProtocol {
 public:
  explicit BaiduStdProtocol(BaiduStdOptions options)
      : options_(std::make_shared<const BaiduStdOptions>(std::move(options))) {}

  std::string_view name() const noexcept override { return "baidu_std"; }
  Match match(Bytes first) const noexcept override {
    const std::size_t same = matching_magic(first);
    return same == 4 ? Match::yes : same == first.size() ? Match::more : Match::no;
  }
  std::unique_ptr<rpc::PortSession> open(rpc::PortHost& host, std::unique_ptr<transport::Stream> stream,
                                         Bytes first) const override {
    return std::make_unique<BaiduStdServerSession>(host, std::move(stream), first, options_, refusal_lines_);
  }
  bool refuses_requests() const noexcept override { return true; }

 private:
  const std::shared_ptr<const BaiduStdOptions> options_;
  const std::shared_ptr<RefusalLines> refusal_lines_ = std::make_shared<RefusalLines>();
};

}  // namespace
}  // namespace protocol::baidu_std

ProtocolSpec baidu_std(BaiduStdOptions options) {
  if (options.authenticate && options.verify) {
    throw std::invalid_argument("hawser: BaiduStdOptions has `authenticate` and `verify`: set one of them");
  }
  if (options.authenticate_timeout <= Duration::zero()) {
    throw std::invalid_argument("hawser: BaiduStdOptions::authenticate_timeout is " +
                                std::to_string(options.authenticate_timeout.count()) + " ns: it must be more than 0");
  }
  return ProtocolSpec(std::make_shared<const protocol::baidu_std::BaiduStdProtocol>(std::move(options)));
}

}  // namespace hawser
