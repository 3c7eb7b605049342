// In place of names.cpp if the library was built without the component etcd.
#include "names.h"

namespace hawser::python {

std::vector<NamingScheme> naming_schemes() { return default_naming(); }

}  // namespace hawser::python
