#include "lab/model/fit.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace hawser::lab {
namespace {

constexpr std::size_t fields = model_fields.size();
using Vector = std::array<double, fields>;

// Lower bound of a field, because logarithms need one. A field of this value has no effect.
constexpr double least_value = 1e-6;
// Weight of the anchor, which keeps fields on which no point depends. It is negligible against the weight of a point.
constexpr double anchor_weight = 1e-4;
// Smallest assumed relative error of a point, because the model itself is not exact.
constexpr double noise_least = 0.005;
// A field with a larger standard error may be wrong by a factor of 1.6. It counts as bounded, not determined.
constexpr double standard_error_max = 0.5;

Vector logarithms_of(const Model& model) {
  Vector vector;
  for (std::size_t i = 0; i < fields; ++i) vector[i] = std::log(std::max(least_value, model.*model_fields[i].field));
  return vector;
}

Model model_of(const Vector& vector) {
  Model model;
  for (std::size_t i = 0; i < fields; ++i) model.*model_fields[i].field = std::exp(vector[i]);
  return model;
}

double predicted_ns(const Model& model, const FitPoint& point) {
  return point.latency ? predict_latency_ns(model, point.workload.size_bytes)
                       : predict(model, point.workload).message_ns;
}

// Returns log(predicted / measured) of each point, followed by the weighted distances from the anchor.
std::vector<double> errors_of(const Vector& vector, const Vector& anchor, std::span<const FitPoint> points) {
  const Model model = model_of(vector);
  std::vector<double> errors;
  errors.reserve(points.size() + fields);
  for (const FitPoint& point : points) errors.push_back(std::log(predicted_ns(model, point) / point.measured_ns));
  for (std::size_t i = 0; i < fields; ++i) errors.push_back(anchor_weight * (vector[i] - anchor[i]));
  return errors;
}

double squares(const std::vector<double>& errors) {
  double sum = 0;
  for (const double error : errors) sum += error * error;
  return sum;
}

// Solves a x = b in place by Gaussian elimination with pivoting. Returns false if `a` is singular.
bool solve(std::array<Vector, fields>& a, Vector& b) {
  for (std::size_t column = 0; column < fields; ++column) {
    std::size_t pivot = column;
    for (std::size_t row = column + 1; row < fields; ++row) {
      if (std::abs(a[row][column]) > std::abs(a[pivot][column])) pivot = row;
    }
    if (!(std::abs(a[pivot][column]) > std::numeric_limits<double>::min())) return false;
    std::swap(a[pivot], a[column]);
    std::swap(b[pivot], b[column]);
    for (std::size_t row = column + 1; row < fields; ++row) {
      const double factor = a[row][column] / a[column][column];
      for (std::size_t i = column; i < fields; ++i) a[row][i] -= factor * a[column][i];
      b[row] -= factor * b[column];
    }
  }
  for (std::size_t row = fields; row-- > 0;) {
    for (std::size_t i = row + 1; i < fields; ++i) b[row] -= a[row][i] * b[i];
    b[row] /= a[row][row];
  }
  return true;
}

// Returns the derivatives of the errors by each field, computed by differences.
std::vector<Vector> slopes_of(const Vector& vector, const Vector& anchor, std::span<const FitPoint> points) {
  constexpr double step = 1e-4;
  std::vector<Vector> slopes(points.size() + fields);
  for (std::size_t i = 0; i < fields; ++i) {
    Vector up = vector;
    Vector down = vector;
    up[i] += step;
    down[i] -= step;
    const std::vector<double> above = errors_of(up, anchor, points);
    const std::vector<double> below = errors_of(down, anchor, points);
    for (std::size_t j = 0; j < slopes.size(); ++j) slopes[j][i] = (above[j] - below[j]) / (2 * step);
  }
  return slopes;
}

Vector descend(Vector vector, std::span<const FitPoint> points) {
  constexpr int iterations_max = 300;
  constexpr double damping_max = 1e12;
  const Vector anchor = vector;
  double damping = 1e-2;
  std::vector<double> errors = errors_of(vector, anchor, points);
  double best = squares(errors);
  for (int iteration = 0; iteration < iterations_max && damping < damping_max; ++iteration) {
    const std::vector<Vector> slopes = slopes_of(vector, anchor, points);
    std::array<Vector, fields> normal{};
    Vector gradient{};
    for (std::size_t j = 0; j < slopes.size(); ++j) {
      for (std::size_t a = 0; a < fields; ++a) {
        gradient[a] -= slopes[j][a] * errors[j];
        for (std::size_t b = 0; b < fields; ++b) normal[a][b] += slopes[j][a] * slopes[j][b];
      }
    }
    for (;;) {
      std::array<Vector, fields> damped = normal;
      for (std::size_t i = 0; i < fields; ++i) damped[i][i] += damping * (normal[i][i] + 1e-9);
      Vector move = gradient;
      double next_best = std::numeric_limits<double>::infinity();
      Vector next = vector;
      if (solve(damped, move)) {
        for (std::size_t i = 0; i < fields; ++i) next[i] += std::clamp(move[i], -1.0, 1.0);
        for (double& value : next) value = std::max(value, std::log(least_value));
        next_best = squares(errors_of(next, anchor, points));
      }
      if (next_best < best) {
        const bool settled = best - next_best < 1e-12 * best;
        vector = next;
        errors = errors_of(vector, anchor, points);
        best = next_best;
        damping = settled ? damping_max : std::max(1e-9, damping / 5);
        break;
      }
      damping *= 4;
      if (damping >= damping_max) break;
    }
  }
  return vector;
}

// Returns the standard error of each field's logarithm, from the covariance of the least-squares estimate:
// noise^2 (J^T J)^-1.
Vector standard_errors(const std::vector<Vector>& slopes, double noise) {
  std::array<Vector, fields> normal{};
  for (const Vector& slope : slopes) {
    for (std::size_t a = 0; a < fields; ++a) {
      for (std::size_t b = 0; b < fields; ++b) normal[a][b] += slope[a] * slope[b];
    }
  }
  Vector errors;
  for (std::size_t i = 0; i < fields; ++i) {
    std::array<Vector, fields> matrix = normal;
    Vector column{};
    column[i] = 1;
    errors[i] =
        solve(matrix, column) ? noise * std::sqrt(std::max(0.0, column[i])) : std::numeric_limits<double>::infinity();
  }
  return errors;
}

// Estimates the fields from the points, as a person reads them off a plot.
Model read_off(std::span<const FitPoint> points) {
  double half_trip_ns = std::numeric_limits<double>::max();
  double round_trip = std::numeric_limits<double>::max();
  double unbatched_ns = std::numeric_limits<double>::max();
  double fastest_ns = std::numeric_limits<double>::max();
  double device_ns = std::numeric_limits<double>::max();
  double byte_ns = std::numeric_limits<double>::max();
  double latency_byte_ns = std::numeric_limits<double>::max();
  for (const FitPoint& point : points) {
    const double bytes = std::max<double>(1, static_cast<double>(point.workload.size_bytes));
    if (point.latency) {
      half_trip_ns = std::min(half_trip_ns, point.measured_ns);
      latency_byte_ns = std::min(latency_byte_ns, point.measured_ns / bytes);
      continue;
    }
    byte_ns = std::min(byte_ns, point.measured_ns / bytes);
    device_ns = std::min(device_ns, point.measured_ns);
    if (point.workload.connections > 1) continue;
    fastest_ns = std::min(fastest_ns, point.measured_ns);
    if (point.workload.batch == 1) unbatched_ns = std::min(unbatched_ns, point.measured_ns);
    if (point.workload.window == 1) round_trip = std::min(round_trip, point.measured_ns);
  }
  const auto known = [](double value) { return value < std::numeric_limits<double>::max(); };
  if (!known(fastest_ns)) fastest_ns = known(device_ns) ? device_ns : known(half_trip_ns) ? half_trip_ns / 10 : 100;
  if (!known(unbatched_ns)) unbatched_ns = fastest_ns;
  if (!known(half_trip_ns)) half_trip_ns = known(round_trip) ? round_trip / 2 : 10 * unbatched_ns;
  if (!known(round_trip)) round_trip = 2 * half_trip_ns;
  if (!known(byte_ns)) byte_ns = 0.1;
  Model model;
  model.gap_ns = fastest_ns;
  model.device_gap_ns = known(device_ns) ? device_ns / 2 : fastest_ns / 2;
  model.gap_per_byte_ns = byte_ns;
  model.o_post_ns = std::max(unbatched_ns - fastest_ns, 0.1 * unbatched_ns);
  model.o_send_ns = std::max(unbatched_ns - model.o_post_ns, 0.1 * unbatched_ns);
  model.o_byte_ns = byte_ns / 100;
  model.latency_ns = std::max((round_trip - unbatched_ns) / 2, 0.1 * round_trip);
  model.o_recv_ns = std::clamp(half_trip_ns - unbatched_ns - model.latency_ns, 0.1 * fastest_ns, fastest_ns);
  model.latency_per_byte_ns = known(latency_byte_ns) ? latency_byte_ns : byte_ns;
  return model;
}

// Returns the starting points. The sum of squares is not convex, so the fit starts from each of them and keeps the best
// result. This has found the best minimum of all data so far.
std::vector<Model> starting_points(std::span<const FitPoint> points) {
  const Model first = read_off(points);
  std::vector<Model> starts = {first};
  for (const double part : {0.2, 0.5, 0.9}) {
    Model model = first;  // A start must guess whether gap, o_send or o_recv limits the best rate.
    model.gap_ns = part * first.gap_ns;
    starts.push_back(model);
    model.o_recv_ns = part * first.o_recv_ns;
    starts.push_back(model);
    model.gap_ns = first.gap_ns;
    model.o_send_ns = part * first.o_send_ns;
    starts.push_back(model);
  }
  Model software = first;  // The processor bears the whole cost of a byte.
  software.o_byte_ns = first.gap_per_byte_ns;
  software.gap_per_byte_ns = first.gap_per_byte_ns / 10;
  starts.push_back(software);
  return starts;
}

}  // namespace

std::vector<Residual> residuals_of(const Model& model, std::span<const FitPoint> points) {
  std::vector<Residual> residuals;
  residuals.reserve(points.size());
  for (const FitPoint& point : points) {
    const double ns = predicted_ns(model, point);
    residuals.push_back({ns, (ns - point.measured_ns) / point.measured_ns,
                         point.latency ? Bottleneck::window : predict(model, point.workload).bottleneck});
  }
  return residuals;
}

double rms_of(std::span<const Residual> residuals) {
  if (residuals.empty()) return 0;
  double sum = 0;
  for (const Residual& residual : residuals) sum += residual.relative * residual.relative;
  return std::sqrt(sum / static_cast<double>(residuals.size()));
}

Fit fit_model(std::span<const FitPoint> points) {
  constexpr std::size_t points_min = 3;
  Fit fit;
  if (points.size() < points_min) {
    fit.model = read_off(points);
    fit.residuals = residuals_of(fit.model, points);
    fit.rms_relative = rms_of(fit.residuals);
    return fit;
  }
  double best = std::numeric_limits<double>::infinity();
  Vector found{};
  for (const Model& start : starting_points(points)) {
    const Vector vector = descend(logarithms_of(start), points);
    const std::vector<double> errors = errors_of(vector, vector, points);
    if (squares(errors) < best) best = squares(errors), found = vector;
  }
  fit.model = model_of(found);
  fit.residuals = residuals_of(fit.model, points);
  fit.rms_relative = rms_of(fit.residuals);
  fit.standard_error = standard_errors(slopes_of(found, found, points), std::max(noise_least, fit.rms_relative));
  for (std::size_t i = 0; i < fields; ++i) fit.determined[i] = fit.standard_error[i] < standard_error_max;
  return fit;
}

}  // namespace hawser::lab
