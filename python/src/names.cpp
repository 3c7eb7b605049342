// With the component etcd.
#include "names.h"

#include "hawser/etcd.h"

namespace hawser::python {

std::vector<NamingScheme> naming_schemes() {
  std::vector<NamingScheme> schemes = default_naming();
  schemes.push_back(etcd_naming());
  return schemes;
}

}  // namespace hawser::python
