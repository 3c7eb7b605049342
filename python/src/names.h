#pragma once

#include <vector>

#include "hawser/naming.h"

namespace hawser::python {

// The kinds of names that may stand for an address.
std::vector<NamingScheme> naming_schemes();

}  // namespace hawser::python
