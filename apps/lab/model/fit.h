#pragma once

#include <array>
#include <span>
#include <vector>

#include "lab/model/model.h"

namespace hawser::lab {

// A measured point that the model can be held against.
struct FitPoint {
  Workload workload;
  bool latency = false;    // Half a ping-pong's round trip, else the time between two messages.
  double measured_ns = 0;  // Positive.
};

struct Residual {
  double predicted_ns = 0;
  double relative = 0;                         // (predicted - measured) / measured.
  Bottleneck bottleneck = Bottleneck::window;  // Of a latency: window, which is one message.
};

struct Fit {
  Model model;
  std::vector<Residual> residuals;                           // One for each point, in their order.
  double rms_relative = 0;                                   // Root mean square of the residuals.
  std::array<double, model_fields.size()> standard_error{};  // Of each field, relative to it.
  // Whether the points say anything about a field: what never binds is only bounded, by a value that fits.
  std::array<bool, model_fields.size()> determined{};
};

// Least squares over log(predicted / measured), so that fast and slow points count alike: Levenberg-Marquardt over the
// logarithms of the fields, from starting points read off the data. Deterministic. With fewer than three points the
// model is what the starting point says, and nothing is determined.
Fit fit_model(std::span<const FitPoint> points);

// What `model` makes of `points`.
std::vector<Residual> residuals_of(const Model& model, std::span<const FitPoint> points);
double rms_of(std::span<const Residual> residuals);

}  // namespace hawser::lab
