#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "hawser/codec.h"
#include "hawser/context.h"
#include "hawser/load_reports.h"
#include "hawser/method.h"
#include "hawser/stream.h"
#include "hawser/task.h"

// The messages of ORCA (xds/data/orca/v3/orca_load_report.proto, xds/service/orca/v3/orca.proto), without I/O.
namespace hawser::rpc {

// OrcaLoadReport. A value of 0 is left out.
std::string load_report_message(const LoadReport& report);
// Empty if the message is malformed, or a number in it is negative or not finite. A message has a bounded size already.
std::optional<LoadReport> read_load_report(std::string_view message);

// OrcaLoadReportRequest. An interval that is malformed or negative counts as 0.
std::string load_report_request(Duration interval);
Duration read_load_report_request(std::string_view message);

// One of these messages in its encoding.
struct LoadReportBytes {
  std::string bytes;
};

// The method. It sends the first report at once.
Task<Result<void>> stream_core_metrics(Context&, LoadReportBytes, Writer<LoadReportBytes>);

}  // namespace hawser::rpc

template <>
inline constexpr std::string_view hawser::method_name_override<&hawser::rpc::stream_core_metrics> =
    "xds.service.orca.v3.OpenRcaService/StreamCoreMetrics";

template <>
struct hawser::codec::Codec<hawser::rpc::LoadReportBytes> {
  static constexpr std::string_view signature = "protobuf";
  static constexpr std::size_t bytes_min = 0;
  static void size(Sizer& sizer, const rpc::LoadReportBytes& value) { sizer.add(value.bytes.size()); }
  static void encode(Encoder& encoder, const rpc::LoadReportBytes& value) {
    encoder.write(value.bytes.data(), value.bytes.size());
  }
  static bool decode(Decoder& decoder, rpc::LoadReportBytes& value) {
    const std::size_t bytes = decoder.available();
    const std::byte* data = nullptr;
    if (!decoder.charge(bytes, "report") || !decoder.take(bytes, data, "report")) return false;
    value.bytes.assign(reinterpret_cast<const char*>(data), bytes);
    return true;
  }
};
