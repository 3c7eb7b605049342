#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <variant>

#include "transport/sim/rdma/sim_parameters.h"

namespace hawser::lab {

// Origin of a constant of SimParameters. sim_parameters.h explains each origin.
enum class Origin : std::uint8_t { data_sheet, measured, fitted, fitted_together, assumed };
std::string_view to_string(Origin origin) noexcept;

// Returns the factor of a constant's uncertainty: its true value lies between value / factor and value * factor. The
// factors are judgements by origin. They were made before any prediction was compared with published figures, and have
// not been changed since.
constexpr double uncertainty_factor(Origin origin) noexcept {
  switch (origin) {
    case Origin::data_sheet: return 1;
    case Origin::measured: return 1.1;         // The evaluation gives two digits at most.
    case Origin::fitted: return 1.25;          // Derived from one figure by a model of the device.
    case Origin::fitted_together: return 1.5;  // The sum is known, the parts are not.
    case Origin::assumed: return 2;
  }
  return 1;
}

struct SimConstant {
  using Field = std::variant<double transport::SimParameters::*, unsigned transport::SimParameters::*,
                             std::size_t transport::SimParameters::*>;
  std::string_view name;
  std::string_view unit;
  Field field;
  Origin origin;
  std::string_view figure;  // The figure from which it is derived.
  bool varied = true;       // False for sizes and limits that are settings.

  double value(const transport::SimParameters& parameters) const noexcept;
  double factor() const noexcept { return varied ? uncertainty_factor(origin) : 1; }
};
// Returns all constants of SimParameters except its switches and corrupt_message, in the order of the struct.
std::span<const SimConstant> sim_constants() noexcept;

// Returns `nominal` with each constant multiplied by a random factor within its uncertainty. The logarithm of the
// factor is distributed evenly. The same seed gives the same parameters on every machine with the same libm.
transport::SimParameters varied(const transport::SimParameters& nominal, std::uint64_t seed);

// Returns half of the round trip of a small message that is not inline, as the sum of the constants.
double half_trip_ns(const transport::SimParameters& parameters) noexcept;

}  // namespace hawser::lab
