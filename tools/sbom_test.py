#!/usr/bin/env python3
"""Checks the list of packages that a build has written: sbom_test.py hawser.spdx.json FOLDER_OF_THE_PC_FILES."""

import json
import pathlib
import re
import sys
import unittest

DOCUMENT, FOLDER = json.loads(pathlib.Path(sys.argv[1]).read_text()), pathlib.Path(sys.argv[2])
PACKAGES = {package["name"]: package for package in DOCUMENT["packages"]}


class Sbom(unittest.TestCase):
    def test_the_document_is_complete(self):
        self.assertEqual(DOCUMENT["spdxVersion"], "SPDX-2.3")
        self.assertRegex(DOCUMENT["creationInfo"]["created"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        for package in PACKAGES.values():
            self.assertRegex(package["SPDXID"], r"^SPDXRef-[A-Za-z0-9.-]+$")
            self.assertRegex(package["versionInfo"], r"^\d", package["name"])
            self.assertTrue(package["licenseDeclared"], package["name"])

    def test_each_package_has_one_relation(self):
        related = [relation["relatedSpdxElement"] for relation in DOCUMENT["relationships"]]
        self.assertEqual(sorted(related), sorted(package["SPDXID"] for package in PACKAGES.values()))

    def test_libraries_of_the_pc_files_are_listed(self):
        words = []
        for file in FOLDER.glob("hawser*.pc"):
            for line in re.findall(r"^Requires[.\w]*:(.*)$", file.read_text(), re.MULTILINE):
                words += re.findall(r"[A-Za-z][\w.+-]*", line)
        libraries = {word for word in words if not word.startswith("hawser")}
        self.assertIn("liburing", libraries)
        self.assertLessEqual(libraries, PACKAGES.keys())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
