#pragma once

#include <array>
#include <span>
#include <vector>

#include "lab/model/model.h"

namespace hawser::lab {

// A measured point to which the model can be compared.
struct FitPoint {
  Workload workload;
  bool latency = false;    // Half of a ping-pong's round trip; else the time between two messages.
  double measured_ns = 0;  // Positive.
};

struct Residual {
  double predicted_ns = 0;
  double relative = 0;                         // (predicted - measured) / measured.
  Bottleneck bottleneck = Bottleneck::window;  // For a latency always the window, which is one message.
};

struct Fit {
  Model model;
  std::vector<Residual> residuals;                           // One for each point, in the same order.
  double rms_relative = 0;                                   // Root mean square of the residuals.
  std::array<double, model_fields.size()> standard_error{};  // Relative error of each field.
  // Whether the points determine a field. A field that is never the bottleneck is only bounded; its value is one that
  // fits.
  std::array<bool, model_fields.size()> determined{};
};

// Fits the model by least squares of log(predicted / measured), so that fast and slow points have equal weight. The
// method is Levenberg-Marquardt over the logarithms of the fields, from starting points that are read off the data. It
// is deterministic. With fewer than three points the model is the starting point, and no field is determined.
Fit fit_model(std::span<const FitPoint> points);

// Returns the residuals of `points` under `model`.
std::vector<Residual> residuals_of(const Model& model, std::span<const FitPoint> points);
double rms_of(std::span<const Residual> residuals);

}  // namespace hawser::lab
