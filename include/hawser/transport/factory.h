#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "hawser/transports.h"

// For authors of transports; not part of hawser.h. CONTRIBUTING.md, "Add a transport".
namespace hawser::transport {

class Transport;

// Properties of a transport, whatever its options are.
struct Traits {
  // The name, as in Transport::name(): 1 to 16 characters out of a-z, 0-9, - and _; not "stream". A literal.
  std::string_view name;
  // Without TransportOptions::order, transports of a lower rank are tried first: shm has 10, rdma 20, ucx 30. Equal
  // ranks are tried in the order in which they were enabled.
  int rank = 100;
  // The resources that clients and servers with equal options share, such as "devices and registered memory", for the
  // log line about options that differ. A literal. Empty: nothing that matters, and no line.
  std::string_view shared = {};
};

// Makes one transport with fixed options. Immutable, thus thread-safe.
class Factory {
 public:
  explicit Factory(const Traits& traits) noexcept : traits_(traits) {}
  virtual ~Factory() = default;
  const Traits& traits() const noexcept { return traits_; }

  // Null if this build does not have the transport: then it counts as not enabled. Opens nothing:
  // Transport::attach() does. `kept` belongs to the Runtime: it is null at first, and the same for all transports of
  // this name there. A transport keeps there what they have in common whatever their options are. One thread at a time:
  // the Runtime is locked, so this must not create clients, servers or pools.
  virtual std::shared_ptr<Transport> make(std::shared_ptr<void>& kept) const = 0;
  // Empty if `other`, a factory of the same name, makes the same transport: the clients and servers of a Runtime whose
  // factories are the same share one Transport. Otherwise the name of the first option that differs.
  virtual std::string difference(const Factory& other) const = 0;

 private:
  const Traits traits_;
};

// A transport made by `make(options)`, or `make(options, kept)`. Equal options make the same transport. `difference(a,
// b)` is as Factory::difference(), for two values of Options:
//
//   hawser::TransportSpec pipes(PipeOptions options = {}) {
//     return hawser::transport::make_spec({.name = "pipes"}, std::move(options), &make_pipe_transport);
//   }
template <class Options, class Make, class Difference>
TransportSpec make_spec(const Traits& traits, Options options, Make make, Difference difference) {
  class OptionsFactory final : public Factory {
   public:
    OptionsFactory(const Traits& of, Options with, Make by, Difference compared)
        : Factory(of), options_(std::move(with)), make_(by), difference_(compared) {}
    std::shared_ptr<Transport> make(std::shared_ptr<void>& kept) const override {
      if constexpr (std::is_invocable_v<const Make&, const Options&, std::shared_ptr<void>&>) {
        return make_(options_, kept);
      } else {
        return make_(options_);
      }
    }
    std::string difference(const Factory& other) const override {
      const auto* const alike = dynamic_cast<const OptionsFactory*>(&other);
      return alike == nullptr ? "the factory" : std::string(difference_(options_, alike->options_));
    }

   private:
    const Options options_;
    const Make make_;
    const Difference difference_;
  };
  return TransportSpec(std::make_shared<OptionsFactory>(traits, std::move(options), make, difference));
}
// Like make_spec() above, for options that operator== compares.
template <class Options, class Make>
TransportSpec make_spec(const Traits& traits, Options options, Make make) {
  return make_spec(traits, std::move(options), make,
                   [](const Options& a, const Options& b) { return a == b ? "" : "an option"; });
}

}  // namespace hawser::transport
