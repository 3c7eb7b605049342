#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "hawser/concurrency_limit.h"
#include "hawser/interceptor.h"

// A server that refuses calls early, before a queue makes all of them late. Component hawser::cluster.
//
//   const hawser::Admission admission;
//   server.use(admission);   // admission.state() is for metrics.
namespace hawser {

struct AdmissionOptions {
  LimitOptions limit = {};
  // Metadata of a call whose value is its priority: "critical", "default" or "sheddable". Any other value, and none, is
  // "default". Any client may claim any priority: an interceptor before this one may replace it.
  std::string priority_metadata = "hawser-priority";
  // The part of the limit that calls of a priority may fill, from 0 to 1. Critical ones may fill all of it.
  double default_part = 0.9;
  double sheddable_part = 0.6;
};

struct AdmissionState {
  unsigned limit;
  unsigned in_flight;
  std::array<std::uint64_t, 3> refused;  // Critical, default, sheddable.
};

// An interceptor that limits the calls in flight of a server by an adaptive limit. A call beyond it fails with
// `overloaded`, which clients may try elsewhere. Calls with streams are counted while they last, and are not measured.
// Copies share their state. Any thread.
class Admission {
 public:
  // Throws std::invalid_argument if an option is out of its range.
  explicit Admission(AdmissionOptions options = {});
  Task<Result<void>> operator()(IncomingCall& call, Next next) const;
  AdmissionState state() const noexcept;

 private:
  struct Shared;
  class Place;
  std::shared_ptr<Shared> shared_;
};

}  // namespace hawser
