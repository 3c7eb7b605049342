#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include "hawser/transports.h"

// For authors of transports; not part of hawser.h. CONTRIBUTING.md, "Add a transport".
namespace hawser::transport {

class Transport;

// Properties of a transport, whatever its options are.
struct Traits {
  // As Transport::name(): 1 to 16 characters out of a-z, 0-9, - and _; not "stream". A literal.
  std::string_view name;
  // Without TransportOptions::order, transports of a lower rank are tried first: shm has 10, rdma 20, ucx 30. Equal
  // ranks are tried in the order in which they were enabled.
  int rank = 100;
};

// Makes one transport with fixed options. Immutable, thus thread-safe.
class Factory {
 public:
  explicit Factory(const Traits& traits) noexcept : traits_(traits) {}
  virtual ~Factory() = default;
  const Traits& traits() const noexcept { return traits_; }

  // Null if this build does not have the transport: then it counts as not enabled. Opens nothing:
  // Transport::attach() does.
  virtual std::shared_ptr<Transport> make() const = 0;
  // Whether `other`, a factory of the same name, makes the same transport. Clients and servers whose factories are the
  // same share one Transport.
  virtual bool same(const Factory& other) const = 0;

 private:
  const Traits traits_;
};

// A transport made by `make(options)`. Equal options (operator==) make the same transport:
//
//   hawser::TransportSpec pipes(PipeOptions options = {}) {
//     return hawser::transport::make_spec({.name = "pipes"}, std::move(options), &make_pipe_transport);
//   }
template <class Options, class Make>
TransportSpec make_spec(const Traits& traits, Options options, Make make) {
  class OptionsFactory final : public Factory {
   public:
    OptionsFactory(const Traits& of, Options with, Make by) : Factory(of), options_(std::move(with)), make_(by) {}
    std::shared_ptr<Transport> make() const override { return make_(options_); }
    bool same(const Factory& other) const override {
      const auto* const alike = dynamic_cast<const OptionsFactory*>(&other);
      return alike != nullptr && alike->options_ == options_;
    }

   private:
    const Options options_;
    const Make make_;
  };
  return TransportSpec(std::make_shared<OptionsFactory>(traits, std::move(options), make));
}

}  // namespace hawser::transport
