#pragma once

#include "doctor/finding.h"
#include "doctor/rdma_facts.h"

namespace hawser::cli::doctor {

Section examine_rdma(const RdmaFacts& facts);

}  // namespace hawser::cli::doctor
