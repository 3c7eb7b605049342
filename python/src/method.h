#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <utility>

#include "plan.h"

namespace hawser::python {

namespace nb = nanobind;

// A method with its types, as an object of Python.
struct Method {
  std::shared_ptr<const Plan> plan;

  const schema::Description& description() const noexcept { return plan->description(); }
};

void bind_method(nb::module_& module);

}  // namespace hawser::python
