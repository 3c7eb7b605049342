#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <variant>

#include "transport/sim/rdma/sim_parameters.h"

namespace hawser::lab {

// Where a constant of SimParameters comes from: sim_parameters.h says what each means.
enum class Origin : std::uint8_t { data_sheet, measured, fitted, fitted_together, assumed };
std::string_view to_string(Origin origin) noexcept;

// By how much a constant may be wrong: its true value lies between value / factor and value * factor. A judgement by
// origin, made before any prediction was compared with what others published, and not changed afterwards.
constexpr double uncertainty_factor(Origin origin) noexcept {
  switch (origin) {
    case Origin::data_sheet: return 1;
    case Origin::measured: return 1.1;         // The evaluation gives two digits at most.
    case Origin::fitted: return 1.25;          // One figure, through a model of how it comes about.
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
  std::string_view figure;  // On which it rests.
  bool varied = true;       // Sizes and limits that are settings are not varied.

  double value(const transport::SimParameters& parameters) const noexcept;
  double factor() const noexcept { return varied ? uncertainty_factor(origin) : 1; }
};
// All of SimParameters but its switches and corrupt_message, in the order of the struct.
std::span<const SimConstant> sim_constants() noexcept;

// `nominal` with each constant multiplied by its own random part of its uncertainty, evenly over its logarithm. The
// same seed gives the same parameters on every machine with the same libm.
transport::SimParameters varied(const transport::SimParameters& nominal, std::uint64_t seed);

// Half of the round trip of a small message that is not inline, as the sum of the constants.
double half_trip_ns(const transport::SimParameters& parameters) noexcept;

}  // namespace hawser::lab
