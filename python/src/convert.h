#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hawser/error.h"
#include "hawser/metadata.h"
#include "hawser/time.h"
#include "hawser/transports.h"
#include "references.h"

// Small conversions between objects of Python and of Hawser. With the GIL.
namespace hawser::python {

namespace nb = nanobind;

// Functions of the Python part of the package that this module calls.
struct Hooks {
  nb::object make_error;   // (code, scope, initiator, application_code, text) -> exception
  nb::object make_reply;   // (value, attachment, metadata) -> Reply
  nb::object make_struct;  // (name, fields) -> class
};
Hooks& hooks() noexcept;

// The exception for an error.
nb::object exception_of(const Error& error);
[[noreturn]] void raise(const Error& error);

// Throws the exception of an Error unless `generation`, of `owner`, is that of this process.
void require_own_process(std::uint64_t generation, const char* owner);

// None: nothing. Infinity: `forever`.
std::optional<Duration> duration_of(nb::handle seconds);
Metadata metadata_of(nb::handle pairs);
nb::object metadata_list(const Metadata& metadata);
// The transports of these names.
std::vector<TransportSpec> transports_of(const std::vector<std::string>& names);
// A memoryview of received memory, which it keeps.
nb::object memory_object(Buffer memory);

void bind_convert(nb::module_& module);

}  // namespace hawser::python
