#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "hawser/naming.h"

namespace hawser::cluster {

// The name "hand:x", whose reports the test makes. Longer-lived than the names that are opened with its scheme.
class HandName {
 public:
  NamingScheme scheme() {
    return {.name = "hand", .open = [this](std::string_view) { return std::make_unique<Source>(*this); }};
  }

  std::vector<Endpoint> endpoints;  // The first list, reported when a name is opened; empty: the test reports it.
  NamingSink* sink = nullptr;       // The name that was opened last has it. Null before.

 private:
  class Source final : public NamingSource {
   public:
    explicit Source(HandName& of) : of_(of) {}
    void start(Loop&, NamingSink& to) override {
      of_.sink = &to;
      if (!of_.endpoints.empty()) to.on_endpoints(of_.endpoints);
    }

   private:
    HandName& of_;
  };
};

}  // namespace hawser::cluster
