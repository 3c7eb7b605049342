#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace hawser::lab {

// Costs of a device and of the processor that drives it. The model is LogGP (Alexandrov, Ionescu, Schauser, Scheiman,
// 1995). The cost of posting is split into the cost of a doorbell and the cost of a work request, and the sender's
// processor has a cost per byte (the O of LogGOPS; Hoefler, Schneider, Lumsdaine, 2010). docs/performance-model.md
// defines every symbol.
struct Model {
  double o_post_ns = 0;        // Sender's processor, for each doorbell.
  double o_send_ns = 0;        // Sender's processor, for each work request, including its completion.
  double o_byte_ns = 0;        // Sender's processor, for each byte: inline copies, devices made of software.
  double o_recv_ns = 0;        // Receiver's processor, for each message: poll and post again.
  double gap_ns = 0;           // Device, between two messages of one queue pair.
  double device_gap_ns = 0;    // Device, between two messages of any queue pairs; at most gap_ns.
  double gap_per_byte_ns = 0;  // Wire, for each byte.
  double latency_ns = 0;       // Empty message: from the sender's doorbell until the receiver can see the completion.
  double latency_per_byte_ns = 0;  // Additional latency for each byte.
};

// The fields of Model in their order, with the names that documents and files use.
struct ModelField {
  std::string_view name;
  std::string_view unit;
  double Model::* field;
};
inline constexpr std::array<ModelField, 9> model_fields = {{
    {"o_post", "ns", &Model::o_post_ns},
    {"o_send", "ns", &Model::o_send_ns},
    {"o_byte", "ns/B", &Model::o_byte_ns},
    {"o_recv", "ns", &Model::o_recv_ns},
    {"g", "ns", &Model::gap_ns},
    {"g_device", "ns", &Model::device_gap_ns},
    {"G", "ns/B", &Model::gap_per_byte_ns},
    {"L", "ns", &Model::latency_ns},
    {"l", "ns/B", &Model::latency_per_byte_ns},
}};

// Describes how messages are sent.
struct Workload {
  std::size_t size_bytes = 16;
  unsigned window = 1;       // Most messages of one connection that are not completed yet.
  unsigned batch = 1;        // Work requests for each doorbell; at most the window.
  unsigned connections = 1;  // Each connection has its own sender.
  unsigned receivers = 1;    // Threads that receive the messages of all connections.
};

// The resource that limits the throughput.
enum class Bottleneck { sender_processor, window, message_rate, wire, receiver_processor };
inline constexpr std::size_t bottleneck_count = 5;
std::string_view to_string(Bottleneck bottleneck) noexcept;

struct Prediction {
  double message_ns = 0;  // Time between two messages of all connections together.
  Bottleneck bottleneck = Bottleneck::sender_processor;

  double messages_per_s() const noexcept { return message_ns > 0 ? 1e9 / message_ns : 0; }
};

// Predicts the throughput of a stream of messages.
Prediction predict(const Model& model, const Workload& workload) noexcept;
// Predicts half of a ping-pong's round trip.
double predict_latency_ns(const Model& model, std::size_t size_bytes) noexcept;
// Predicts the time from posting one message until its completion is seen. The window must cover this time.
double round_trip_ns(const Model& model, std::size_t size_bytes) noexcept;
// Returns the window beyond which the throughput does not grow.
double saturating_window(const Model& model, std::size_t size_bytes, unsigned batch) noexcept;

// Figures of a device that data sheets and papers publish.
struct DeviceFigures {
  double latency_us = 2;             // Half round trip of a small message.
  double messages_per_s = 14e6;      // Rate of one queue pair.
  double device_messages_per_s = 0;  // Rate of all queue pairs together; 0: the rate of one queue pair.
  double gbit_per_s = 100;
  unsigned saturating_window = 32;  // Window that reaches the best throughput without batching.
  unsigned saturating_batch = 8;    // Batch beyond which the device is the bottleneck.
};
// Derives the model of a device from published figures. The method: docs/performance-model.md, "Projection".
Model project(const DeviceFigures& figures) noexcept;

}  // namespace hawser::lab
