#include "lab/sim_constants.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/random.h"

namespace hawser::lab {
namespace {

using P = transport::SimParameters;
using enum Origin;

constexpr std::string_view half_trip = "a little more than 2 us half round trip";
constexpr std::string_view posting = "32 outstanding saturate; batches of 8 suffice, up to twice the rate";
constexpr std::string_view receiving = "16 M/s N:1 at 512 B";
constexpr std::string_view decline = "N:1 declines with more senders; by how much is assumed";
constexpr std::string_view none = "none";

constexpr std::array constants = {
    SimConstant{"doorbell_ns", "ns", &P::doorbell_ns, fitted_together, posting},
    SimConstant{"send_request_ns", "ns", &P::send_request_ns, fitted_together, posting},
    SimConstant{"inline_byte_ns", "ns/B", &P::inline_byte_ns, assumed, none},
    SimConstant{"poll_ns", "ns", &P::poll_ns, fitted_together, posting},
    SimConstant{"send_completion_ns", "ns", &P::send_completion_ns, fitted_together, posting},
    SimConstant{"receive_completion_ns", "ns", &P::receive_completion_ns, fitted_together, receiving},
    SimConstant{"receive_doorbell_ns", "ns", &P::receive_doorbell_ns, fitted_together, receiving},
    SimConstant{"receive_request_ns", "ns", &P::receive_request_ns, fitted_together, receiving},
    SimConstant{"switch_ns", "ns", &P::switch_ns, fitted_together, receiving},
    SimConstant{"cached_receives", "", &P::cached_receives, fitted_together, decline},
    SimConstant{"cache_miss_ns", "ns", &P::cache_miss_ns, fitted_together, decline},
    SimConstant{"handover_ns", "ns", &P::handover_ns, fitted, "1.8 M/s with one re-poster for all"},
    SimConstant{"registration_ns", "ns", &P::registration_ns, assumed, none},
    SimConstant{"registration_page_ns", "ns", &P::registration_page_ns, assumed, none},
    SimConstant{"allocation_ns", "ns", &P::allocation_ns, assumed, none},
    SimConstant{"log_line_ns", "ns", &P::log_line_ns, assumed, none},
    SimConstant{"fill_byte_ns", "ns/B", &P::fill_byte_ns, assumed, none},
    SimConstant{"processing_units", "", &P::processing_units, assumed, "several, says the evaluation"},
    SimConstant{"gap_ns", "ns", &P::gap_ns, measured, "14 M/s of one queue pair"},
    SimConstant{"doorbell_latency_ns", "ns", &P::doorbell_latency_ns, fitted_together, half_trip},
    SimConstant{"fetch_ns", "ns", &P::fetch_ns, fitted_together, half_trip},
    SimConstant{"memory_byte_ns", "ns/B", &P::memory_byte_ns, assumed, none},
    SimConstant{"inline_receive_bytes", "B", &P::inline_receive_bytes, measured, "shared receives are slow above 32 B",
                false},
    SimConstant{"inline_receive_gap_ns", "ns", &P::inline_receive_gap_ns, fitted_together,
                "over twice the messages at 16 B as at 512 B, many threads"},
    SimConstant{"inline_receive_ns", "ns", &P::inline_receive_ns, fitted, "11 M/s N:1 at 16 B, beside 16 at 512 B"},
    SimConstant{"receive_gap_ns", "ns", &P::receive_gap_ns, fitted,
                "shared receives are nearly 10 times slower than own ones"},
    SimConstant{"shared_receive_gap_ns", "ns", &P::shared_receive_gap_ns, measured, "2 M/s with shared receives"},
    SimConstant{"completion_ns", "ns", &P::completion_ns, fitted_together, half_trip},
    SimConstant{"acknowledge_ns", "ns", &P::acknowledge_ns, fitted_together, "32 outstanding saturate"},
    SimConstant{"inline_bytes_max", "B", &P::inline_bytes_max, assumed, none, false},
    SimConstant{"reads_outstanding", "", &P::reads_outstanding, data_sheet, "max_qp_rd_atom of the device", false},
    SimConstant{"gbit_per_s", "Gb/s", &P::gbit_per_s, data_sheet, "100 Gb/s link", false},
    SimConstant{"link_ns", "ns", &P::link_ns, fitted_together, half_trip},
    SimConstant{"packet_bytes", "B", &P::packet_bytes, data_sheet, "largest path MTU of the specification", false},
    SimConstant{"jitter", "", &P::jitter, assumed, none, false},
};

// Returns a number that is evenly distributed in [-1, 1).
double part(Random& random) noexcept { return static_cast<double>(random.next() >> 11) * 0x1.0p-52 - 1; }

}  // namespace

std::string_view to_string(Origin origin) noexcept {
  switch (origin) {
    case data_sheet: return "data sheet";
    case measured: return "measured";
    case fitted: return "fitted";
    case fitted_together: return "fitted together";
    case assumed: return "assumed";
  }
  return "";
}

double SimConstant::value(const transport::SimParameters& parameters) const noexcept {
  return std::visit([&](auto member) { return static_cast<double>(parameters.*member); }, field);
}

std::span<const SimConstant> sim_constants() noexcept { return constants; }

transport::SimParameters varied(const transport::SimParameters& nominal, std::uint64_t seed) {
  transport::SimParameters result = nominal;
  Random random(seed);
  for (const SimConstant& constant : constants) {
    // A number is drawn for every constant, so that the draws of the others stay the same if one is no longer varied.
    const double scale = std::pow(constant.factor(), part(random));
    std::visit(
        [&]<class T>(T transport::SimParameters::* member) {
          const double value = static_cast<double>(nominal.*member) * scale;
          if constexpr (std::is_same_v<T, double>) {
            result.*member = value;
          } else {
            result.*member = static_cast<T>(std::max(1.0, std::round(value)));
          }
        },
        constant.field);
  }
  return result;
}

double half_trip_ns(const transport::SimParameters& p) noexcept {
  const double processors =
      p.doorbell_ns + p.send_request_ns + p.poll_ns + p.receive_completion_ns + p.inline_receive_ns;
  const double devices = p.doorbell_latency_ns + p.gap_ns + p.fetch_ns + p.inline_receive_gap_ns + p.completion_ns;
  return processors + devices + p.link_ns;
}

}  // namespace hawser::lab
