#!/usr/bin/env python3
"""Shows that each rule of tidy.py fires on what it is for, and keeps quiet otherwise."""

import contextlib
import io
import pathlib
import shutil
import tempfile
import unittest
from unittest import mock

import tidy

HEADER = "#pragma once\n"


class TidyTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.pend()

    def pend(self, *folders):
        """The folders whose prose is not checked yet; none, unless a test says otherwise."""
        patch = mock.patch.object(tidy, "PROSE_PENDING", folders)
        patch.start()
        self.addCleanup(patch.stop)

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def findings(self, path, text):
        self.write(path, text)
        return [str(finding) for finding in tidy.check_tree(self.root)]

    def assert_fires(self, path, text, line, problem):
        found = self.findings(path, text)
        self.assertEqual(len(found), 1, found)
        self.assertIn(f"{path}:{line}: ", found[0])
        self.assertIn(problem, found[0])
        self.assertRegex(found[0], "; .+", "a finding names its remedy")

    def assert_quiet(self, path, text):
        self.assertEqual(self.findings(path, text), [])


class Descriptors(TidyTest):
    def test_unowned(self):
        for call in ("const int fd = ::open(path, O_RDONLY | O_CLOEXEC);", "int fd = socket(AF_INET, SOCK_STREAM, 0);",
                     "fd_ = accept4(listener, nullptr, nullptr, 0);", "wake = eventfd(0, EFD_NONBLOCK);",
                     "const int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);", "std::ofstream file(path);"):
            self.assert_fires("src/base/file.cpp", "int x;\n" + call + "\n", 2, "may be 0, 1 or 2")

    def test_owned(self):
        for call in ("const Descriptor file(::open(path, O_RDONLY));", "epoll_(epoll_create1(EPOLL_CLOEXEC))",
                     "socket_ = Descriptor(\n    ::socket(AF_INET, SOCK_STREAM, 0));",
                     "int fd = above_standard(::socket(family, type | SOCK_NONBLOCK, protocol));",
                     "auto opened = RdmaDevice::open(options_, O_);", "std::ifstream file(path);"):
            self.assert_quiet("src/base/file.cpp", call + "\n")

    def test_programs_and_tests_are_free(self):
        self.assert_quiet("apps/kv/file.cpp", "const int fd = ::open(path, O_RDONLY);\n")
        self.assert_quiet("src/base/test/file_test.cpp", "TEST(A, B) { const int fd = ::open(path, O_RDONLY); }\n")

    def test_sigpipe(self):
        for call in ("::write(fd, data, size);", "send(socket_.get(), data, size,\n     MSG_DONTWAIT);", "write(bell_.get(), &one, 1);"):
            self.assert_fires("src/base/file.cpp", call + "\n", 1, "may raise SIGPIPE")
        for call in ("send(fd, data, size,\n     MSG_DONTWAIT | MSG_NOSIGNAL);", "stream_->send(pieces);", "write(bytes);"):
            self.assert_quiet("src/base/file.cpp", call + "\n")


class Locales(TidyTest):
    def test_numbers_that_follow_the_locale(self):
        for call in ('std::snprintf(text.data(), text.size(), "%.1f s", seconds);', 'std::printf("%d of %g", a, b);',
                     'snprintf(to, 9,\n         at ? "x" : "%8.3e", x);', "std::strtod(line.c_str(), nullptr);"):
            self.assert_fires("src/observe/file.cpp", call + "\n", 1, "follows the locale")

    def test_other_calls(self):
        self.assert_quiet("apps/cli/file.cpp", 'std::printf("%g", a);\n')
        for call in ('snprintf(to, 9, "%02X%% of", x);', "strtod_l(text, &end, plain);", "parse_double(text);"):
            self.assert_quiet("src/observe/file.cpp", call + "\n")


class Names(TidyTest):
    def test_a_namespace_is_that_of_the_folder(self):
        for path, opened in (("src/exec/loop.cpp", "hawser::rpc"), ("src/transport/shm/ring.cpp", "hawser::shm"),
                             ("src/protobuf/json.cpp", "hawser::protobuf"), ("src/exec/loop.cpp", "hawser::exec::loop")):
            self.assert_fires(path, f"namespace {opened} {{\n}}\n", 1, f"{opened} is not the namespace of its folder")
            self.write(path, "")

    def test_a_namespace_may_be_a_part_of_the_folder(self):
        for path, opened in (("src/exec/loop.cpp", "hawser"), ("src/exec/loop.cpp", "hawser::exec"), ("src/base/a.cpp", "hawser::detail"),
                             ("src/transport/shm/memory/ring.cpp", "hawser::transport::shm"), ("src/protobuf/json.cpp", "hawser::pb"),
                             ("src/transport/ucx/absent/ucx.cpp", "hawser::transport::ucx"), ("src/exec/test/a.h", "hawser::testing"),
                             ("apps/kv/store.h", "hawser::kv")):
            self.assert_quiet(path, f"{HEADER}namespace {opened} {{\n}}\n")

    def test_a_type_has_one_name(self):
        self.write("src/exec/loop.h", f"{HEADER}class Loop final : public Base {{\n}};\n")
        for text in ("struct Loop {\n", "enum class Loop : int {\n", "template <class T>\nclass Loop {\n"):
            self.assert_fires("src/rpc/other.cpp", "\n" + text, 2 + text.count("\n") - 1, "Loop is also a type of src/exec/loop.h:2")

    def test_nested_types_and_tests_are_free(self):
        self.write("src/exec/loop.h", f"{HEADER}class Loop {{\n  struct State {{}};\n}};\n")
        self.assert_quiet("src/rpc/other.cpp", "class Loop;\nclass Other {\n  struct State {};\n  class Loop {};\n};\n")
        self.assert_quiet("src/rpc/test/other_test.cpp", "struct Loop {};\nTEST(A, B) {}\n")
        self.assert_quiet("include/hawser/protobuf_channel.h", f"{HEADER}class Loop {{\n}};\n")


class Layers(TidyTest):
    def test_arrow_up(self):
        self.assert_fires("src/exec/loop.cpp", '// Why.\n#include "rpc/client.h"\n', 2, "from exec to rpc points up")

    def test_arrow_up_from_base(self):
        self.assert_fires("src/base/error.cpp", '#include "exec/loop.h"\n', 1, "from base to exec points up")

    def test_io_in_a_file_that_decides(self):
        self.assert_quiet("src/negotiate/dial.cpp", '#include "hawser/loop.h"\n')
        self.assert_quiet("src/negotiate/settle.cpp", '#include <vector>\n#include "transport/path_proof.h"\n')
        for include in ('"hawser/loop.h"', '"negotiate/dial.h"', '"transport/network.h"', "<coroutine>", "<chrono>"):
            self.assert_fires("src/negotiate/settle.cpp", f"#include {include}\n", 1, "decides without I/O")

    def test_arrow_sideways(self):
        self.assert_fires("src/wire/frame.cpp", '#include "codec/encode.h"\n', 1, "from wire to codec points up")

    def test_backend_knows_another(self):
        self.assert_fires("src/transport/tcp/socket.cpp", '#include "transport/shm/memory/ring.h"\n', 1, "no other backend")

    def test_rpc_knows_a_backend(self):
        self.assert_fires("src/rpc/client/client.cpp", '#include "transport/tcp/socket.h"\n', 1, "only runtime names backends")

    def test_transport_knows_a_backend(self):
        self.assert_fires("src/transport/stream.h", HEADER + '#include "transport/tcp/socket.h"\n', 2, "points up")

    def test_public_header_knows_src(self):
        self.assert_fires("include/hawser/loop.h", HEADER + '#include "exec/mailbox.h"\n', 2, "public header includes")

    def test_example_knows_src(self):
        self.assert_fires("examples/echo.cpp", '#include "rpc/client.h"\n', 1, "an example includes")

    def test_python_package_knows_src(self):
        self.assert_fires("python/src/client.cpp", '#include "rpc/client.h"\n', 1, "the Python package includes")

    def test_python_package_knows_its_own_headers(self):
        self.assert_quiet("python/src/client.cpp", '#include "client.h"\n#include "hawser/client.h"\n')
        self.assert_fires("integrations/x/peer.cpp", '#include "rpc/client.h"\n', 1, "an integration includes")
        self.assert_quiet("integrations/x/peer.cpp", '#include "peer.h"\n#include "backend/engine.h"\n')

    def test_unknown_layer(self):
        self.assert_fires("src/extra/x.cpp", '#include "base/block_pool.h"\n', 1, "no known layer")

    def test_path_without_layer(self):
        self.assert_fires("src/exec/loop.cpp", '#include "poller.h"\n', 1, "names no layer")

    def test_cmake_says_more(self):
        text = "hawser_layer(base)\nhawser_layer(wire\n  DEPENDS base rpc LIBRARIES PkgConfig::x)\n"
        self.assert_fires("CMakeLists.txt", text, 2, "from wire to rpc points up")

    def test_cmake_names_unknown_layer(self):
        self.assert_fires("CMakeLists.txt", "hawser_layer(extra)\n", 1, "no known layer")

    def test_arrows_down(self):
        self.write("CMakeLists.txt", "hawser_layer(base)\nhawser_layer(rpc DEPENDS wire codec base)\n")
        self.write("src/runtime/server.cpp", '#include "transport/tcp/socket.h"\n#include "rpc/server.h"\n')
        self.write("src/transport/tcp/socket.cpp", '#include "transport/tcp/socket.h"\n#include "exec/poller.h"\n')
        self.assert_quiet("src/rpc/client/client.cpp", '#include <hawser/client.h>\n#include "hawser/client.h"\n'
                                                '#include "wire/frame.h"\n#include "transport/connection.h"\n')

    def test_transport_sees_the_lengths_of_messages(self):
        self.write("src/transport/common/x.cpp", '#include "wire/message.h"\n')
        self.assert_quiet("src/transport/tcp/x.cpp", '#include "wire/message.h"\n')

    def test_transport_does_not_see_frames(self):
        self.assert_fires("src/transport/common/x.cpp", '#include "wire/frame.h"\n', 1, "does not look into messages")

    def test_backend_does_not_see_frames(self):
        self.assert_fires("src/transport/tcp/x.cpp", '#include "wire/frame.h"\n', 1, "does not look into messages")

    def test_test_may_use_the_simulated_network(self):
        self.assert_quiet("src/rpc/client/test/client_test.cpp", '#include <gtest/gtest.h>\n#include "transport/sim/net.h"\n'
                                                     "TEST(A, B) {}\n")


class Headers(TidyTest):
    def test_system_header_in_public_header(self):
        self.assert_fires("include/hawser/x.h", HEADER + "#include <sys/socket.h>\n", 2, "not of the standard library")

    def test_system_header_in_wire(self):
        self.assert_fires("src/wire/frame.cpp", "#include <unistd.h>\n", 1, "system header")

    def test_vendor_header_outside_a_backend(self):
        self.assert_fires("src/rpc/client/client.cpp", "#include <infiniband/verbs.h>\n", 1, "vendor header")

    def test_library_in_public_header(self):
        self.assert_fires("include/hawser/client.h", HEADER + "#include <fmt/core.h>\n", 2, "not of the standard library")

    def test_gtest_in_a_library_file(self):
        self.assert_fires("src/exec/loop.cpp", "#include <gtest/gtest.h>\n", 1, "does not belong here")

    def test_where_they_belong(self):
        self.write("include/hawser/codec/fields.h", HEADER + "#include <vector>\n")
        self.write("src/transport/rdma/device/device.cpp", "#include <infiniband/verbs.h>\n#include <poll.h>\n")
        self.write("src/exec/io_uring_poller.cpp", "#include <liburing.h>\n")
        self.assert_quiet("src/base/clock.cpp", "#include <time.h>\n")


class Files(TidyTest):
    def test_condition(self):
        for keyword in ("#ifdef X", "#ifndef X", "#if X", "  # if X"):
            self.assert_fires("src/rpc/client/client.cpp", f"{keyword}\n#endif\n", 1, "preprocessor condition")

    def test_condition_in_a_backend_and_a_poller(self):
        self.write("src/exec/make_poller.cpp", "#ifdef X\n#endif\n")
        self.assert_quiet("src/transport/rdma/device/device.cpp", "#ifdef X\n#endif\n")

    def test_long_header(self):
        self.assert_quiet("src/base/x.h", HEADER + "//\n" * 299)
        self.assert_fires("src/base/x.h", HEADER + "//\n" * 300, 301, "301 lines, more than 300")

    def test_long_source(self):
        self.assert_quiet("src/base/x.cpp", "//\n" * 600)
        self.assert_fires("src/base/x.cpp", "//\n" * 601, 601, "601 lines, more than 600")

    def test_listed_long_file(self):
        with mock.patch.dict(tidy.LONG_FILES, {"src/base/x.h": "a table"}):
            self.assert_quiet("src/base/x.h", HEADER + "//\n" * 400)

    def test_pragma_once(self):
        self.assert_fires("src/base/x.h", "int x();\n", 1, "#pragma once is missing")

    def test_test_without_test(self):
        self.assert_fires("src/base/test/x_test.cpp", "// Nothing.\n", 1, "without a TEST")

    def test_each_kind_of_test_counts(self):
        for kind in ("TEST", "TEST_F", "TEST_P", "TYPED_TEST", "TYPED_TEST_P", "INSTANTIATE_TEST_SUITE_P"):
            self.assert_quiet("src/base/test/x_test.cpp", f"{kind}(A, B) {{}}\n")


class Words(TidyTest):
    def test_trailing_blank(self):
        self.assert_fires("README.md", "one\ntwo \n", 2, "trailing blank")

    def test_tab(self):
        self.assert_fires("src/base/x.cpp", "\tint x;\n", 1, "tab")

    def test_tab_in_a_makefile(self):
        self.assert_quiet("Makefile", "all:\n\ttrue\n")

    def test_unfinished_work(self):
        for word in ("TO" + "DO", "FIX" + "ME", "XX" + "X"):
            self.assert_fires("src/base/x.cpp", f"// {word}: later\n", 1, "unfinished")

    def test_path_of_a_machine(self):
        for place in ("work", "tmp", "home", "root"):
            self.assert_fires("tools/x.sh", f"cat /{place}/file\n", 1, "path of a machine")

    def test_other_paths(self):
        self.assert_quiet("tools/x.sh", "cat /dev/null ./tmp/x $HOME/work/x https://a.example/home/\n")

    def test_not_utf8(self):
        (self.root / "README.md").write_bytes(b"\xff\xfe")
        self.assertIn("not UTF-8", str(next(tidy.check_tree(self.root))))

    def test_build_folders_are_left_alone(self):
        self.assert_quiet("build/dev/x.cpp", "\t \n")


class Compiled(TidyTest):
    def setUp(self):
        super().setUp()
        self.compiler = shutil.which("clang++-19") or shutil.which("g++")
        if self.compiler is None:
            self.skipTest("no compiler")

    def compiled(self):
        with contextlib.redirect_stdout(io.StringIO()):
            return [str(finding) for finding in tidy.check_headers(self.root, self.compiler)]

    def test_header_that_does_not_compile_alone(self):
        self.write("include/hawser/x.h", HEADER + "std::string x();\n")
        found = self.compiled()
        self.assertEqual(len(found), 1, found)
        self.assertRegex(found[0], r"^include/hawser/x\.h:1: does not compile alone \(.*x\.h:2: ")

    def test_header_that_cannot_be_included_twice(self):
        self.write("src/base/x.h", "struct X {};\n")
        self.assertEqual(len(self.compiled()), 1)

    def test_header_of_a_backend_that_is_not_installed(self):
        self.write("src/transport/rdma/connection/x.h", HEADER + "#include <infiniband/not_there.h>\n")
        self.assertEqual(self.compiled(), [])

    def test_good_header(self):
        self.write("include/hawser/x.h", HEADER + "#include <string>\nstd::string x();\n")
        self.write("src/base/y.h", HEADER + '#include "hawser/x.h"\n')
        self.assertEqual(self.compiled(), [])

    def test_heavy_umbrella(self):
        self.write("include/hawser/hawser.h", HEADER + "#include <cstddef>\n")
        self.assertEqual(self.compiled(), [])
        with mock.patch.object(tidy, "PREPROCESSED_LINES_MAX", 10):
            self.assertIn("more than 10", self.compiled()[0])


class Format(TidyTest):
    def test_layout(self):
        program = shutil.which("clang-format-19")
        if program is None:
            self.skipTest("clang-format-19 is not installed")
        self.write(".clang-format", "BasedOnStyle: Google\n")
        self.write("good.cpp", "int x;\n")
        self.write("bad.cpp", "int   x;\nint   y;\n")
        found = [str(finding) for finding in tidy.check_format(self.root, program)]
        self.assertEqual(found, ["bad.cpp:1: not as clang-format lays it; run make format"])


class Project(unittest.TestCase):
    def test_exceptions_are_in_use(self):
        root = pathlib.Path(tidy.__file__).resolve().parent.parent
        for path in [*tidy.LONG_FILES, *tidy.CONDITIONAL_FILES]:
            self.assertTrue((root / path).exists(), f"{path} is gone: drop its exception")


class Prose(TidyTest):
    """Comments, error texts and pages."""

    def test_retired_word_in_a_comment(self):
        self.assert_fires("src/base/a.cpp", "int a;  // Is told of it.\n", 1, "'told' is retired")

    def test_retired_word_in_an_error_text(self):
        self.assert_fires("src/base/a.cpp", 'auto a = "a breach";\n', 1, "'breach' is retired")

    def test_retired_word_in_a_page(self):
        self.assert_fires("docs/a.md", "Two words.\nIt was buried.\n", 2, "'buried' is retired")

    def test_retired_word_in_a_tool(self):
        self.assert_fires("tools/a.py", '"""Tells all."""\n', 1, "'Tells' is retired")

    def test_code_is_no_prose(self):
        self.assert_quiet("src/base/a.cpp", "int bye = tell();  // Calls `tell()`; https://a.b/bye\n")
        self.assert_quiet("docs/a.md", "`Lobby`\n```\ntold\n```\n## Names in transition\n| tell, told | notify |\n")
        self.assert_quiet("src/base/test/a_test.cpp", 'TEST(A, B) { send("bye"); }\n')

    def test_parts_of_words(self):
        self.assert_quiet("src/base/a.cpp", "// Intelligent, recommend, blend, calendar, retold.\n")

    def test_is_no(self):
        self.assert_fires("src/base/a.cpp", "int a;  // It is no peer.\n", 1, "'is no' is not plain English")
        self.assert_quiet("src/base/a.cpp", "int a;  // There is no peer. It is no longer used.\n")

    def test_opening(self):
        for word in ("What", "Of", "That", "Those", "Where"):
            self.assert_fires("src/base/a.h", f"#pragma once\n\n// {word} it is.\n", 3, f"begins with '{word}'")

    def test_opening_of_a_trailing_comment(self):
        self.assert_fires("src/base/a.h", "#pragma once\nint a;  // Of what.\n", 2, "begins with 'Of'")

    def test_line_within_a_comment(self):
        self.assert_quiet("src/base/a.h", "#pragma once\n// It waits.\n// Those words continue the sentence.\n// Whatever.\n")

    def test_long_comment(self):
        self.assert_fires("src/base/a.h", "#pragma once\n// " + "x" * 118 + "\n", 2, "121 columns")
        self.assert_quiet("src/base/a.h", "#pragma once\n// " + "x" * 117 + "\n")

    def test_pending_folder(self):
        self.pend("src/base")
        self.assert_quiet("src/base/a.cpp", "// What it is.\n")
        self.assert_fires("src/wire/a.cpp", "// What it is.\n", 1, "begins with")

    def test_clean_folder_leaves_the_table(self):
        self.pend("src/base", "src/moved")
        self.write("src/base/a.cpp", "int a;\n")
        found = [str(finding) for finding in tidy.check_tree(self.root)]
        self.assertEqual(len(found), 1, found)
        self.assertIn("PROSE_PENDING lists src/base", found[0])

    def test_counts(self):
        self.pend("src/base")
        self.write("src/base/a.cpp", "// What is told.\n// " + "x" * 118 + "\n")
        self.write("src/wire/a.cpp", "int a;\n")
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            tidy.print_prose(self.root)
        self.assertRegex(output.getvalue(), r"1 +1 +1 +0  src/base  \(pending\)\n +1 +1 +1 +0  in total")


if __name__ == "__main__":
    unittest.main()
