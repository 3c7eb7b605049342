#pragma once

// What DataPath and Connection promise, tried on any path. A backend's test instantiates it:
//
//   INSTANTIATE_TEST_SUITE_P(Shm, PathSuite, testing::ValuesIn(path_cases("shm", make, {eager, ring})), name_of_path_case);
#include "transport/conformance/path_fixture_testing.h"
#include "transport/conformance/path_suite_end_testing.h"
#include "transport/conformance/path_suite_flow_testing.h"
#include "transport/conformance/path_suite_garbage_testing.h"
#include "transport/conformance/path_suite_messages_testing.h"
