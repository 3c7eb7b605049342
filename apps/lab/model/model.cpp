#include "lab/model/model.h"

#include <algorithm>

namespace hawser::lab {
namespace {

struct Term {
  double ns;
  Bottleneck bottleneck;
};

double sender_ns(const Model& model, std::size_t size_bytes, double batch) {
  return model.o_post_ns / batch + model.o_send_ns + model.o_byte_ns * static_cast<double>(size_bytes);
}

// Returns the time for which one message occupies each stage that messages pass, without the window.
std::array<Term, 4> stages(const Model& model, const Workload& workload) {
  const double bytes = static_cast<double>(workload.size_bytes);
  const double connections = std::max(1u, workload.connections);
  const double batch = std::max(1u, workload.batch);
  return {{
      {sender_ns(model, workload.size_bytes, batch) / connections, Bottleneck::sender_processor},
      {std::max(model.gap_ns / connections, model.device_gap_ns), Bottleneck::message_rate},
      {model.gap_per_byte_ns * bytes, Bottleneck::wire},
      {model.o_recv_ns / std::max(1u, workload.receivers), Bottleneck::receiver_processor},
  }};
}

}  // namespace

std::string_view to_string(Bottleneck bottleneck) noexcept {
  switch (bottleneck) {
    case Bottleneck::sender_processor: return "sender processor";
    case Bottleneck::window: return "window";
    case Bottleneck::message_rate: return "message rate";
    case Bottleneck::wire: return "wire";
    case Bottleneck::receiver_processor: return "receiver processor";
  }
  return "";
}

double round_trip_ns(const Model& model, std::size_t size_bytes) noexcept {
  return sender_ns(model, size_bytes, 1) + 2 * model.latency_ns +
         model.latency_per_byte_ns * static_cast<double>(size_bytes);
}

double predict_latency_ns(const Model& model, std::size_t size_bytes) noexcept {
  return sender_ns(model, size_bytes, 1) + model.latency_ns +
         model.latency_per_byte_ns * static_cast<double>(size_bytes) + model.o_recv_ns;
}

Prediction predict(const Model& model, const Workload& workload) noexcept {
  Term slowest{0, Bottleneck::sender_processor};
  for (const Term& term : stages(model, workload)) {
    if (term.ns > slowest.ns) slowest = term;
  }
  const double connections = std::max(1u, workload.connections);
  const double batch = std::max(1u, workload.batch);
  const double window = std::max<double>(batch, workload.window);
  // The slots of a batch are free when its last message has completed: one stage time for each message after the first.
  const double window_ns =
      (round_trip_ns(model, workload.size_bytes) + (batch - 1) * slowest.ns * connections) / window / connections;
  if (window_ns > slowest.ns) slowest = {window_ns, Bottleneck::window};
  return {slowest.ns, slowest.bottleneck};
}

double saturating_window(const Model& model, std::size_t size_bytes, unsigned batch) noexcept {
  double slowest_ns = 0;
  for (const Term& term : stages(model, {.size_bytes = size_bytes, .batch = batch})) {
    slowest_ns = std::max(slowest_ns, term.ns);
  }
  return slowest_ns > 0 ? round_trip_ns(model, size_bytes) / slowest_ns + (batch - 1) : 1;
}

Model project(const DeviceFigures& figures) noexcept {
  Model model;
  const double half_trip_ns = figures.latency_us * 1e3;
  model.gap_ns = 1e9 / figures.messages_per_s;
  model.device_gap_ns = figures.device_messages_per_s > 0 ? 1e9 / figures.device_messages_per_s : model.gap_ns;
  model.gap_per_byte_ns = 8 / figures.gbit_per_s;
  model.latency_per_byte_ns = model.gap_per_byte_ns;
  // The only known fact is that one receiving thread keeps up with one queue pair.
  constexpr double receiver_to_gap = 0.8;
  model.o_recv_ns = receiver_to_gap * model.gap_ns;
  // Let o = o_post + o_send. At the saturating window o = (o + 2 L) / window, and the half trip is o + L + o_recv.
  // These are two equations for o and L.
  const double overhead_ns = 2 * (half_trip_ns - model.o_recv_ns) / (figures.saturating_window + 1);
  model.latency_ns = half_trip_ns - model.o_recv_ns - overhead_ns;
  // At the saturating batch, o_send + o_post / batch is just below the gap.
  constexpr double processor_to_gap = 0.95;
  const double batch = std::max(2u, figures.saturating_batch);
  const double saved_ns = std::max(0.0, overhead_ns - processor_to_gap * model.gap_ns);
  model.o_post_ns = std::min(saved_ns / (1 - 1 / batch), overhead_ns);
  model.o_send_ns = overhead_ns - model.o_post_ns;
  return model;
}

}  // namespace hawser::lab
