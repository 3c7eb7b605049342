#!/usr/bin/env python3
"""Shows that snippets.py, links.py and test_index.py find their faults, and that reference.py writes what users need."""

import pathlib
import tempfile
import unittest

import links
import reference
import snippets
import test_index

PAGE = """# Page

<!-- snippet: examples/a.cpp#one -->
```cpp
int one();
```
"""

HEADER = """#pragma once
#include <string>

// A file comment.

namespace hawser {
namespace detail {
struct Hidden {};
}  // namespace detail
class Loop;

// Kinds.
enum class Kind : int { one, two };

// A box.
//
//   Box box(1);
class Box : Base {
 public:
  explicit Box(int size) : size_{size}, other_(1) { start(); }
  ~Box();
  Box(const Box&) = delete;
  // The size in bytes.
  int size() const noexcept { return size_; }
  int limit = 5;  // At most 9.
  struct Part { int x = 0; };
  // For the library: internals.
  int internals() const;

 private:
  int size_;
};

// Adds.
template <class T>
T add(T a, T b) {
  if (a) { return b; }
  return a + b;
}
}  // namespace hawser
"""


class DocsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.write("examples/a.cpp", "void f() {\n  // [one]\n  int one();\n  // [/one]\n}\n")

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    def faults(self, text):
        return [problem for _, problem in snippets.check_page(self.root, None, text)[0]]

    def broken(self, text):
        return [problem for _, problem in links.check_page(self.root, self.write("docs/page.md", text))]

    def test_a_block_equal_to_its_source_is_accepted(self):
        self.assertEqual(self.faults(PAGE), [])

    def test_a_block_that_differs_is_found_and_replaced(self):
        faults, written = snippets.check_page(self.root, None, PAGE.replace("int one();", "int two();"))
        self.assertEqual(len(faults), 1)
        self.assertIn("differs", faults[0][1])
        self.assertEqual(written, PAGE)

    def test_a_block_without_a_source_needs_a_reason(self):
        bare = "```cpp\nint x;\n```\n"
        self.assertIn("names no source", self.faults(bare)[0])
        self.assertEqual(self.faults("<!-- no snippet: it shows a fault -->\n" + bare), [])
        self.assertEqual(self.faults("```sh\nls\n```\n"), [])

    def test_missing_files_and_regions_are_found(self):
        self.assertIn("does not exist", self.faults(PAGE.replace("a.cpp", "b.cpp"))[0])
        self.assertIn("no region", self.faults(PAGE.replace("#one", "#two"))[0])

    def test_a_block_without_an_end_is_found(self):
        self.assertIn("this block has no end", self.faults(PAGE.removesuffix("```\n")))

    def test_links_to_files_and_headings(self):
        self.write("docs/other.md", "# First `part`\n\n## Twice\n\n## Twice\n")
        self.assertEqual(self.broken("# A\n[a](other.md) [b](other.md#first-part) [c](other.md#twice-1) [d](#a)\n"), [])
        self.assertIn("no such file", self.broken("[a](missing.md)\n")[0])
        self.assertIn("no such heading", self.broken("[a](other.md#second)\n")[0])
        self.assertIn("no such heading", self.broken("[a](#nothing)\n")[0])

    def test_code_and_other_sites_are_no_links(self):
        self.assertEqual(self.broken("`[a](x.md)` [b](https://example.org/x)\n```\n[c](y.md)\n```\n"), [])

    def test_a_link_out_of_the_project_is_found(self):
        self.assertIn("no such file", self.broken("[a](../../../etc/hostname)\n")[0])

    def test_a_reference_page_has_what_users_need(self):
        page = reference.page("box.h", HEADER)
        for part in ("# hawser/box.h\n", "## Kind\n\nKinds.\n", "enum class Kind : int {\n  one, two\n};",
                     "## Box\n\nA box.\n", "```cpp\n  Box box(1);\n```", "class Box : Base\n", "explicit Box(int size);\n",
                     "// The size in bytes.\nint size() const noexcept;\n", "// At most 9.\nint limit = 5;\n",
                     "### Part\n", "// Adds.\ntemplate <class T> T add(T a, T b);\n"):
            self.assertIn(part, page)
        for part in ("Hidden", "size_", "other_", "~Box", "delete", "internals", "class Loop", "file comment", "return"):
            self.assertNotIn(part, page)

    def test_an_index_of_tests_that_lacks_a_test_or_has_a_wrong_path_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for file in ("src/a/test/b_test.cpp", "tests/c_test.cpp", "tests/c/part.cpp", "tests/d/tool.py",
                         "fuzz/e_fuzz.cpp", "tools/f_test.py", "docs/tests.md"):
                (root / file).parent.mkdir(parents=True, exist_ok=True)
                (root / file).touch()
            whole = "`src/a/test` `tests/c_test.cpp` `tests/d` `fuzz/e_fuzz.cpp` `tools/f_test.py`"
            (root / "docs/tests.md").write_text(whole, encoding="utf-8")
            self.assertEqual(list(test_index.findings(root)), [])
            for path in whole.replace("`", "").split():
                (root / "docs/tests.md").write_text(whole.replace(f"`{path}`", ""), encoding="utf-8")
                self.assertIn(f"{path} is not in a table", list(test_index.findings(root))[0])
            (root / "docs/tests.md").write_text(whole + "`src/b/test`", encoding="utf-8")
            self.assertIn("src/b/test does not exist", list(test_index.findings(root))[0])
            (root / "tests/c_test.cpp").write_text("TEST_F(Peers, AreServed) {}\n", encoding="utf-8")
            (root / "docs/tests.md").write_text(whole + " `Peers.AreServed` `Peers.Wait`", encoding="utf-8")
            self.assertEqual(["docs/tests.md:1: the test Peers.Wait does not exist: name the one that replaces it"],
                             list(test_index.findings(root)))


if __name__ == "__main__":
    unittest.main()
