#include "rpc/port/load_report_message.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

namespace hawser::rpc {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A field of type double.
std::string double_field(unsigned number, double value) {
  std::string field(1, static_cast<char>(number << 3 | 1));
  return field.append(reinterpret_cast<const char*>(&value), sizeof value);
}

TEST(LoadReportMessage, HasTheEncodingOfProtobuf) {
  EXPECT_EQ(load_report_message({}), "");
  EXPECT_EQ(load_report_message({.cpu_utilization = 0.5, .application_utilization = 2}),
            std::string("\x09\0\0\0\0\0\0\xE0\x3F\x49\0\0\0\0\0\0\0\x40", 18));
  const LoadReport given{.cpu_utilization = 0.25,
                         .memory_utilization = 0.5,
                         .application_utilization = 1.5,
                         .calls_per_second = 1000,
                         .errors_per_second = 3};
  const auto read = read_load_report(load_report_message(given));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->cpu_utilization, 0.25);
  EXPECT_EQ(read->memory_utilization, 0.5);
  EXPECT_EQ(read->application_utilization, 1.5);
  EXPECT_EQ(read->calls_per_second, 1000);
  EXPECT_EQ(read->errors_per_second, 3);
}

TEST(LoadReportMessage, IgnoresFieldsThatItDoesNotKnow) {
  // rps = 7 (3), request_cost {"a": 1} (4), a fixed32 (15), a varint where a double is expected (1).
  const std::string others = std::string("\x18\x07", 2) + "\x22\x0C\x0A\x01\x61" + double_field(2, 1) +
                             std::string("\x7D\1\2\3\4", 5) + std::string("\x08\x05", 2);
  const auto read = read_load_report(others + double_field(6, 10));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->calls_per_second, 10);
  EXPECT_EQ(read->cpu_utilization, 0);
  EXPECT_EQ(read->memory_utilization, 0) << "a field within the map";
}

TEST(LoadReportMessage, RefusesNumbersThatAreNone) {
  for (const double bad :
       {-1.0, -std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity(), std::nan("")}) {
    for (const unsigned field : {1U, 2U, 6U, 7U, 9U}) {
      EXPECT_FALSE(read_load_report(double_field(field, bad))) << field << " is " << bad;
    }
  }
}

TEST(LoadReportMessage, RefusesMalformedMessages) {
  const std::string whole = double_field(1, 0.5) + double_field(6, 10);
  for (std::size_t i = 1; i < whole.size(); ++i) {
    if (i != 9) EXPECT_FALSE(read_load_report(whole.substr(0, i))) << i << " bytes";
  }
  EXPECT_FALSE(read_load_report("\x0B")) << "a group";
  EXPECT_FALSE(read_load_report("\x22\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01")) << "a length of 2^64 - 1";
  EXPECT_FALSE(read_load_report(std::string(11, '\xFF'))) << "a number without an end";
}

TEST(LoadReportMessage, RequestsAnInterval) {
  EXPECT_EQ(load_report_request(seconds(10) + milliseconds(1)), std::string("\x0A\x06\x08\x0A\x10\xC0\x84\x3D", 8));
  for (const Duration interval : {Duration(), Duration(milliseconds(1500)), Duration(seconds(3600))}) {
    EXPECT_EQ(read_load_report_request(load_report_request(interval)), interval);
  }
  EXPECT_EQ(read_load_report_request(""), Duration());
  EXPECT_EQ(read_load_report_request("\x0A\x7F"), Duration()) << "malformed";
  EXPECT_EQ(read_load_report_request(std::string("\x0A\x0B\x08\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01", 13)),
            Duration())
      << "negative";
  EXPECT_EQ(read_load_report_request(std::string("\x0A\x0A\x08\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F", 12)),
            Duration(std::chrono::hours(24)))
      << "longer than a Duration can be";
}

}  // namespace
}  // namespace hawser::rpc
