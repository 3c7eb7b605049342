#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace hawser::lab {

// What a device and the processor that drives it cost: LogGP (Alexandrov, Ionescu, Schauser, Scheiman, 1995) with the
// cost of posting split into that of a doorbell and that of a work request, and a cost per byte of the sender's
// processor (the O of LogGOPS; Hoefler, Schneider, Lumsdaine, 2010). Every symbol is defined in
// docs/performance-model.md.
struct Model {
  double o_post_ns = 0;            // Sender's processor, for each doorbell.
  double o_send_ns = 0;            // Sender's processor, for each work request, its completion included.
  double o_byte_ns = 0;            // Sender's processor, for each byte: inline copies, devices made of software.
  double o_recv_ns = 0;            // Receiver's processor, for each message: poll and post again.
  double gap_ns = 0;               // Device, between two messages of one queue pair.
  double device_gap_ns = 0;        // Device, between two messages of whatever queue pairs; at most gap_ns.
  double gap_per_byte_ns = 0;      // Wire, for each byte.
  double latency_ns = 0;           // From the sender's doorbell until the receiver can see the completion, of 0 bytes.
  double latency_per_byte_ns = 0;  // What each byte adds to that.
};

// The fields in turn, with the names that documents and files use.
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

// How messages are sent.
struct Workload {
  std::size_t size_bytes = 16;
  unsigned window = 1;       // Messages that are not completed yet, of one connection.
  unsigned batch = 1;        // Work requests behind one doorbell; at most the window.
  unsigned connections = 1;  // Each with a sender of its own.
  unsigned receivers = 1;    // Threads that receive them all.
};

// What sets the pace.
enum class Bottleneck { sender_processor, window, message_rate, wire, receiver_processor };
inline constexpr std::size_t bottleneck_count = 5;
std::string_view to_string(Bottleneck bottleneck) noexcept;

struct Prediction {
  double message_ns = 0;  // Between two messages, of all connections together.
  Bottleneck bottleneck = Bottleneck::sender_processor;

  double messages_per_s() const noexcept { return message_ns > 0 ? 1e9 / message_ns : 0; }
};

// Throughput of a stream of messages.
Prediction predict(const Model& model, const Workload& workload) noexcept;
// Half of a ping-pong's round trip.
double predict_latency_ns(const Model& model, std::size_t size_bytes) noexcept;
// From posting one message until its completion is seen: what a window has to cover.
double round_trip_ns(const Model& model, std::size_t size_bytes) noexcept;
// Messages in flight beyond which more do not help.
double saturating_window(const Model& model, std::size_t size_bytes, unsigned batch) noexcept;

// What data sheets and papers give of a device.
struct DeviceFigures {
  double latency_us = 2;             // Half round trip of a small message.
  double messages_per_s = 14e6;      // Of one queue pair.
  double device_messages_per_s = 0;  // Of all queue pairs; 0 for as many as one has.
  double gbit_per_s = 100;
  unsigned saturating_window = 32;  // Messages in flight that reach the best throughput without batching.
  unsigned saturating_batch = 8;    // Work requests a doorbell beyond which the device is the bottleneck.
};
// A device of which nothing else is known. How: docs/performance-model.md, "Projection".
Model project(const DeviceFigures& figures) noexcept;

}  // namespace hawser::lab
