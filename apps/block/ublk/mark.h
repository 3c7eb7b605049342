#pragma once

#include <cstdint>
#include <string_view>

namespace hawser::block::ublk {

// A part of the mark of a device.
enum class UblkMarkPart : std::uint8_t { none, volume, medium, client };

// Checksums in the description of a device, so that no process takes the device over with other data, or without an
// end of the requests that its predecessor has left: of the volume's `unique_name` (NAME@ID, 24 bits), the medium (24
// bits), and the name of the client (16 bits), which is empty for client_name_of_device().
std::uint64_t mark_of(std::string_view unique_name, std::string_view medium, std::string_view client_name) noexcept;

// The first part that differs.
UblkMarkPart difference_of(std::uint64_t mark, std::uint64_t other) noexcept;

}  // namespace hawser::block::ublk
