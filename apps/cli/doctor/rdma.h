#pragma once

#include "cli/doctor/finding.h"
#include "cli/doctor/rdma_facts.h"

namespace hawser::cli::doctor {

Section examine_rdma(const RdmaFacts& facts);

}  // namespace hawser::cli::doctor
